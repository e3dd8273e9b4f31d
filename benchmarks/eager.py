"""What an eager operation costs: every public function and the common methods of tensors, forward and backward, at several sizes.

Run as `python -m benchmarks.eager [NAME ...] [--sizes 10,1000,100000] [--pass forward|backward|both] [--most RATIO]`.  Where torch is
installed each operation is timed in turn with torch's, both on one thread.  The figures are the least CPU time of several short rounds,
and the ratio of the two: what another process adds to a round is not what an operation costs.  Without torch there are no ratios.

A row is an expression, which is the same source for both libraries.  `CASES` has those of functions whose arguments mean something; others
are called with the first of `USUAL` that both libraries take.  Functions that no expression fits are named at the end.

A forward row runs the expression without gradients.  A backward row, `grad NAME`, runs it on operands that want gradients, and
`autograd.grad` of its results by those operands.  Before it is timed, what a row computes is compared with what torch computes; rows that
differ are named, and the exit code is 1.  `UNCHECKED` has those that need not agree.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import tracejit
from benchmarks.workload import relative_difference
from tracejit.ops.public import FUNCTIONS, METHODS

__all__ = ["CASES", "UNCHECKED", "UNTIMED", "differences", "expressions", "gradients", "main", "measure", "names", "summary"]

SIZES = (10, 1000, 100000)
ROUNDS = 9
_SHORTEST = 3e-4  # seconds of a sample
_WARM = 0.03  # seconds of each side before it is timed
_TOLERANCE = 1e-3  # of float32 results, in the Euclidean norm
_WORST = 20  # rows that the summary names at each size

USUAL = (
    "{f}(x)",
    "{f}(p)",
    "{f}(i)",
    "{f}(c)",
    "{f}(m)",
    "{f}(s)",
    "{f}(x, y)",
    "{f}(i, j)",
    "{f}(c, d)",
    "{f}(m, m)",
    "{f}(s, s)",
    "{f}(x, 0)",
    "{f}(m, 0)",
    "{f}(x, 2)",
    "{f}(m, 1, 0)",
    "{f}(x, p, y)",
    "{f}(n)",
    "{f}([x, y])",
    "{f}(b, x)",
    "{f}(images, 2)",
)
"""x, y: vectors of n numbers; z: one that functions change in place; p, q: likewise, between 0 and 1; i, j: of integers below 10; b, c,
d: of truth values; m: a matrix of about as many numbers; s: a symmetric positive definite matrix of at most 100 rows; images: (batch, 3,
8, 8) of about as many."""

CASES = {
    "addbmm": "t.addbmm(s, s[None], s[None])",
    "addmm": "t.addmm(s, s, s)",
    "addmv": "t.addmv(s[0], s, s[0])",
    "addr": "t.addr(s, s[0], s[0])",
    "arange": "t.arange(n)",
    "baddbmm": "t.baddbmm(s[None], s[None], s[None])",
    "bernoulli": "t.bernoulli(p)",
    "bmm": "t.bmm(s[None], s[None])",
    "broadcast_to": "t.broadcast_to(x, (2, n))",
    "bucketize": "t.bucketize(x, edges)",
    "cat": "t.cat([x, y])",
    "cdist": "t.cdist(m, m)",
    "cosine_similarity": "F.cosine_similarity(m, m.flip(1))",
    "cross": "t.cross(m[:, :3], m[:, 3:6], dim=1)",
    "cholesky_inverse": "t.cholesky_inverse(s.tril())",
    "cholesky_solve": "t.cholesky_solve(s, s.tril())",
    "chunk": "t.chunk(x, 4)",
    "combinations": "t.combinations(x[:100])",
    "cartesian_prod": "t.cartesian_prod(x[:100], y[:100])",
    "clamp": "t.clamp(x, -0.5, 0.5)",
    "clamp_max": "t.clamp_max(x, 0.5)",
    "clamp_min": "t.clamp_min(x, -0.5)",
    "clip": "t.clip(x, -0.5, 0.5)",
    "diag": "t.diag(x[:100])",
    "diag_embed": "t.diag_embed(x[:100])",
    "diagflat": "t.diagflat(x[:100])",
    "diagonal_scatter": "t.diagonal_scatter(s, s[0])",
    "digamma": "t.digamma(p)",
    "dropout": "F.dropout(x, 0.5)",
    "einsum": "t.einsum('ij,kj->ik', s, s)",
    "embedding": "F.embedding(i, table)",
    "empty": "t.empty(n)",
    "expand": "x.expand(2, n)",
    "eye": "t.eye(side)",
    "fill_": "z.fill_(1.0)",
    "full": "t.full((n,), 1.5)",
    "full_like": "t.full_like(x, 1.5)",
    "gather": "t.gather(m, 1, positions)",
    "gelu": "F.gelu(x)",
    "ger": "t.ger(x[:100], y[:100])",
    "getitem mask": "x[b]",
    "getitem number": "x[2]",
    "getitem positions": "x[i]",
    "getitem slice": "x[1:5]",
    "histc": "t.histc(x, 10)",
    "index_add": "t.index_add(m, 0, rows, m)",
    "index_copy": "t.index_copy(m, 0, rows, m)",
    "index_fill": "t.index_fill(x, 0, i, 1.0)",
    "index_put": "t.index_put(x, (i,), y)",
    "index_select": "t.index_select(m, 0, rows)",
    "interpolate": "F.interpolate(images, scale_factor=2)",
    "item": "one.item()",
    "kron": "t.kron(x[:100], y[:100])",
    "kthvalue": "t.kthvalue(x, 5)",
    "layer_norm": "F.layer_norm(m, m.shape[1:])",
    "lerp": "t.lerp(x, y, 0.5)",
    "linear": "F.linear(s, s)",
    "linspace": "t.linspace(0, 1, n)",
    "log_softmax": "F.log_softmax(m, -1)",
    "logspace": "t.logspace(0, 1, n)",
    "logsumexp": "t.logsumexp(m, 1)",
    "masked_fill": "t.masked_fill(x, b, 0.0)",
    "masked_scatter": "t.masked_scatter(x, b, y)",
    "masked_select": "t.masked_select(x, b)",
    "matrix_power": "t.matrix_power(s, 3)",
    "median": "t.median(x)",
    "movedim": "t.movedim(m, 0, 1)",
    "multinomial": "t.multinomial(p[:100], 5)",
    "mv": "t.mv(s, s[0])",
    "nan_to_num": "t.nan_to_num(x)",
    "narrow": "t.narrow(x, 0, 1, 5)",
    "nll_loss": "F.nll_loss(m, classes)",
    "cross_entropy": "F.cross_entropy(m, classes)",
    "norm": "t.norm(x)",
    "normal": "t.normal(0.0, 1.0, (n,))",
    "one_hot": "F.one_hot(i, 10)",
    "ones": "t.ones(n)",
    "outer": "t.outer(x[:100], y[:100])",
    "pdist": "t.pdist(s)",
    "permute": "t.permute(m, (1, 0))",
    "pow": "t.pow(x, 2)",
    "quantile": "t.quantile(x, 0.5)",
    "rand": "t.rand(n)",
    "randint": "t.randint(0, 100, (n,))",
    "randn": "t.randn(n)",
    "randperm": "t.randperm(n)",
    "repeat": "x.repeat(2)",
    "repeat_interleave": "t.repeat_interleave(x, 2)",
    "reshape": "t.reshape(x, (-1, 1))",
    "roll": "t.roll(x, 3)",
    "rot90": "t.rot90(m)",
    "scatter": "t.scatter(m, 1, positions, m)",
    "scatter_add": "t.scatter_add(m, 1, positions, m)",
    "searchsorted": "t.searchsorted(edges, x)",
    "select_scatter": "t.select_scatter(m, m[0], 0, 0)",
    "setitem": "z.__setitem__(slice(1, 5), 0.0)",
    "slice_scatter": "t.slice_scatter(x, y[:5], 0, 0, 5)",
    "softmax": "F.softmax(x, -1)",
    "sort": "t.sort(x)",
    "split": "t.split(x, max(n // 4, 1))",
    "stack": "t.stack(parts)",
    "std": "t.std(x)",
    "swapaxes": "t.swapaxes(m, 0, 1)",
    "swapdims": "t.swapdims(m, 0, 1)",
    "take": "t.take(x, i)",
    "take_along_dim": "t.take_along_dim(m, positions, 1)",
    "tensor_split": "t.tensor_split(x, 4)",
    "tensordot": "t.tensordot(s, s, 1)",
    "tile": "t.tile(x, (2,))",
    "topk": "t.topk(x, 5)",
    "to": "i.to(t.float32)",
    "transpose": "t.transpose(m, 0, 1)",
    "tril_indices": "t.tril_indices(side, side)",
    "triu_indices": "t.triu_indices(side, side)",
    "unbind": "t.unbind(s)",
    "unsafe_split": "t.unsafe_split(x, max(n // 4, 1))",
    "unflatten": "t.unflatten(x, 0, (-1, 1))",
    "unfold": "x.unfold(0, 3, 1)",
    "unique": "t.unique(i)",
    "unsqueeze": "t.unsqueeze(x, 0)",
    "vander": "t.vander(x[:100])",
    "view": "x.view(-1, 1)",
    "where": "t.where(b, x, y)",
    "zeros": "t.zeros(n)",
    "conv1d": "F.conv1d(images.flatten(2), kernels.flatten(2))",
    "conv2d": "F.conv2d(images, kernels)",
    "conv2d as wide as its input": "F.conv2d(images, widest)",
    "conv_transpose2d": "F.conv_transpose2d(images, kernels.transpose(0, 1))",
    "batch_norm": "F.batch_norm(images, None, None, training=True)",
    "group_norm": "F.group_norm(images, 3)",
    "pad": "F.pad(x, (1, 1))",
    "avg_pool1d": "F.avg_pool1d(x[None], 2)",
    "max_pool1d": "F.max_pool1d(x[None], 2)",
    "flip": "t.flip(x, (0,))",
    "binary_cross_entropy": "F.binary_cross_entropy(p, q)",
    "rms_norm": "F.rms_norm(m, m.shape[1:])",
    "instance_norm": "F.instance_norm(images)",
    "scatter_reduce": "t.scatter_reduce(m, 1, positions, m, 'amax')",
    "renorm": "t.renorm(m, 2, 0, 1.0)",
    "split_with_sizes": "t.split_with_sizes(x, [n - 5, 5])",
    "put": "x.put(i, y)",
    "index_reduce": "t.index_reduce(m, 0, rows, m, 'amax')",
    "new_full": "x.new_full((n,), 1.5)",
    "vsplit": "t.vsplit(m[:1], 1)",
    "polygamma": "t.polygamma(1, p)",
    "sum_to_size": "m.sum_to_size(1, m.shape[1])",
    "affine_grid": "F.affine_grid(p[:6].reshape(1, 2, 3), [1, 1, 8, 8])",
    "conv3d": "F.conv3d(images[:, :, None], kernels[:, :, None])",
    "conv_transpose1d": "F.conv_transpose1d(images.flatten(2), kernels.transpose(0, 1).flatten(2))",
    "pixel_shuffle": "F.pixel_shuffle(images.repeat(1, 4, 1, 1), 2)",
    "grid_sample": "F.grid_sample(images, images.permute(0, 2, 3, 1)[..., :2])",
    "scaled_dot_product_attention": "F.scaled_dot_product_attention(s[None], s[None], s[None])",
    "prelu": "F.prelu(x, p[:1])",
}
"""Name -> expression; a name that is no function's has more words, or is a method's."""

UNTIMED = frozenset(
    (
        *(
            "can_cast",
            "result_type",
            "is_same_size",
            "numel",
            "is_complex",
            "is_conj",
            "is_floating_point",
            "is_neg",
            "is_signed",
        ),
        *(
            "get_rng_state",
            "set_rng_state",
            "initial_seed",
            "manual_seed",
            "seed",
            "resolve_conj",
            "resolve_neg",
            "requires_grad_",
        ),
    )
)
"""What computes nothing, or changes what other rows rely on."""

UNCHECKED = frozenset(
    (
        *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "data_ptr"),
        *("bernoulli", "bernoulli_", "binomial", "multinomial", "normal", "normal_", "poisson", "rand", "rand_like", "randint"),
        *("randint_like", "randn", "randn_like", "randperm", "random_", "uniform_", "cauchy_", "exponential_", "geometric_"),
        *("log_normal_", "alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout", "rrelu"),
        *("rrelu_", "gumbel_softmax"),
        *("argsort", "msort", "sort", "svd", "svd_lowrank", "pca_lowrank", "complex", "polar"),
    )
)
"""What draws random numbers or has contents that nobody wrote; what is free in the order of equals or in signs; complex numbers, which are
pairs here."""


def names(n: int, library: Any, wants_grad: bool = False) -> dict[str, Any]:
    """What expressions speak of, as tensors of a library; those of floating-point numbers want gradients where that is wanted."""
    random, tensor = np.random.default_rng(0), library.from_numpy
    width, side = 10 if n < 1000 else 100, min(max(math.isqrt(n), 2), 100)
    count = max(n // width, 1)

    def floats(*shape: int) -> Any:
        return tensor(random.standard_normal(shape).astype(np.float32))

    def integers(high: int, *shape: int) -> Any:
        return tensor(random.integers(0, high, shape))

    def truths() -> Any:
        return tensor(random.random(n) < 0.5)

    square = random.standard_normal((side, side)).astype(np.float32)
    images = max(n // 192, 1)
    world = {
        "t": library,
        "F": library.nn.functional,
        "n": n,
        "side": side,
        "x": floats(n),
        "y": floats(n),
        "z": floats(n),
        "one": floats(1),
        "p": tensor(random.random(n).astype(np.float32) * 0.98 + 0.01),
        "q": tensor(random.random(n).astype(np.float32)),
        "i": integers(min(10, n), n),
        "j": integers(min(10, n), n),
        "b": truths(),
        "c": truths(),
        "d": truths(),
        "m": floats(count, width),
        "rows": integers(count, count),
        "positions": integers(width, count, width),
        "classes": integers(width, count),
        "s": tensor(square @ square.T / side + np.eye(side, dtype=np.float32)),
        "parts": [floats(max(n // 64, 1)) for _ in range(64)],
        "edges": tensor(np.linspace(-2, 2, 20, dtype=np.float32)),
        "table": floats(10, 8),
        "images": floats(images, 3, 8, 8),
        "kernels": floats(4, 3, 3, 3),
        "widest": floats(4, 3, 3, 8),
    }
    if wants_grad:
        for value in world.values():
            for x in value if isinstance(value, list) else (value,):
                if hasattr(x, "requires_grad") and x.is_floating_point():
                    x.requires_grad_()
    return world


def _source(expression: str) -> CodeType:
    return compile(f"lambda: {expression}", expression, "eval")


def _runs(expression: str, worlds: Sequence[dict[str, Any]]) -> bool:
    """Whether all libraries take an expression."""
    try:
        for world in worlds:
            eval(_source(expression), world)()
    except Exception:  # whatever another library raises for arguments that mean nothing
        return False
    return True


def _tensors(value: Any) -> Iterator[Any]:
    """The tensors in what an expression gives."""
    if hasattr(value, "requires_grad"):
        yield value
    elif isinstance(value, tuple | list):
        for x in value:
            yield from _tensors(x)


def gradients(expression: str, world: dict[str, Any]) -> Callable[[], Any] | None:
    """A call that computes an expression and the gradients of its results by its operands; None where it has none.  world: with operands
    that want gradients."""
    code, grad = _source(expression), world["t"].autograd.grad
    run = eval(code, world)
    used = [world[name] for name in dict.fromkeys(run.__code__.co_names) if name in world]
    leaves = [x for x in _tensors(used) if x.requires_grad]
    try:
        result = run()
        wanted = [i for i, x in enumerate(_tensors(result)) if x.requires_grad]
        if not wanted or not leaves:
            return None
        random = np.random.default_rng(1)
        cotangents = []
        for x in [list(_tensors(result))[i] for i in wanted]:
            array = random.standard_normal(tuple(x.shape))
            cotangents.append(world["t"].from_numpy(np.asarray(array)).to(x.dtype))
        alone = hasattr(result, "requires_grad")

        def call() -> Any:
            results = run()
            if not alone:
                found = list(_tensors(results))
                results = [found[i] for i in wanted]
            return grad(results, leaves, cotangents, allow_unused=True)

        call()
    except Exception:  # whatever a library raises where there is no derivative
        return None
    return call


def _arrays(value: Any) -> list[np.ndarray]:
    """What an expression gives, as arrays: an empty one for None; numbers of Python are none."""
    if isinstance(value, tuple | list):
        return [array for x in value for array in _arrays(x)]
    if value is None:
        return [np.zeros(0)]
    if not hasattr(value, "requires_grad"):
        return []
    value = value.detach().resolve_conj()
    return [(value.double() if value.is_floating_point() else value).numpy()]


def differences(calls: Sequence[Callable[[], Any]]) -> float:
    """How far the results of the first call are from those of the others, as `relative_difference` says of elements that are not equal,
    or NaN in both."""
    first, *others = [_arrays(call()) for call in calls]
    return max((relative_difference(*_without_equal(first, other)) for other in others), default=0.0)


def _without_equal(ones: list[np.ndarray], others: list[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The arrays with 0 in the place of infinities and NaN that are in both."""
    if [x.shape for x in ones] != [x.shape for x in others]:
        return ones, others
    unusual = [~np.isfinite(a) & ((a == b) | (np.isnan(a) & np.isnan(b))) for a, b in zip(ones, others, strict=True)]
    return [np.where(u, 0, a) for u, a in zip(unusual, ones, strict=True)], [
        np.where(u, 0, b) for u, b in zip(unusual, others, strict=True)
    ]


def expressions(libraries: Sequence[Any], wanted: Sequence[str] = ()) -> tuple[dict[str, str], list[str]]:
    """(name -> expression of every public function and method that all libraries have, those of which no expression fits).  wanted: only
    these names."""
    functional = tracejit.nn.functional
    positions = {name: f"x.{name}" for name in METHODS}
    positions |= {name: f"F.{name}" for name in functional.__all__ if callable(getattr(functional, name))}
    positions |= {name: f"t.{name}" for name in FUNCTIONS}
    worlds = [names(10, library) for library in libraries]
    found: dict[str, str] = {}
    missing = []
    for name in sorted({*positions, *CASES}):
        if name in UNTIMED or (wanted and name not in wanted):
            continue
        if name in CASES:
            if _runs(CASES[name], worlds):
                found[name] = CASES[name]
            else:
                missing.append(name)
            continue
        position = positions[name]
        usual = (
            (f"{position}()", f"{position}(y)", f"{position}(2)")
            if position.startswith("x.")
            else [u.format(f=position) for u in USUAL]
        )
        if name.endswith("_"):  # what it changes time and again is no operand of other rows
            usual = [u.replace("(x", "(z").replace("(m", "(z") for u in usual]
        fitting = next((e for e in usual if _runs(e, worlds)), None)
        if fitting is None:
            missing.append(name)
        else:
            found[name] = fitting
    return found, missing


def _sample(call: Callable[[], object], count: int) -> float:
    clock, turns = time.thread_time, range(count)  # what other processes take does not count
    start = clock()
    for _ in turns:
        call()
    return (clock() - start) / count


def _warm(call: Callable[[], object]) -> None:
    """Call it until what is made at first use, and after some, is there."""
    end = time.thread_time() + _WARM
    call()
    while time.thread_time() < end:
        call()


def measure(calls: Sequence[Callable[[], object]], rounds: int = ROUNDS) -> list[float]:
    """The least seconds that each call takes, of several rounds in turn."""
    counts = []
    for call in calls:
        count = 1
        _warm(call)
        while (spent := _sample(call, count) * count) < _SHORTEST:
            count = max(count + 1, int(count * min(10, 1.2 * _SHORTEST / max(spent, 1e-9))))
        counts.append(count)
    samples = [[_sample(call, count) for call, count in zip(calls, counts, strict=True)] for _ in range(rounds)]
    return [min(times) for times in zip(*samples, strict=True)]


@dataclass(frozen=True, slots=True)
class Row:
    """What was found of an expression.  times: least seconds by size and library.  difference: the largest over the sizes."""

    name: str
    expression: str
    times: list[list[float]]
    difference: float

    @property
    def ratios(self) -> list[float]:
        """Time over torch's, by size."""
        return [own / other for own, other in self.times]


def _rows(chosen: dict[str, str], libraries: Sequence[Any], sizes: Sequence[int], rounds: int, backward: bool) -> Iterator[Row]:
    """Every expression, or in a backward pass every one that all libraries have gradients of."""
    worlds = {n: [names(n, library, backward) for library in libraries] for n in sizes}
    for name, expression in chosen.items():
        times, difference = [], 0.0
        for n in sizes:
            for world in worlds[n]:  # what earlier rows have changed in place, the sides different numbers of times
                world["z"] = world["y"].detach().clone()
            found = [gradients(expression, w) if backward else eval(_source(expression), w) for w in worlds[n]]
            calls = [call for call in found if call is not None]
            if len(calls) < len(found):
                break
            if name not in UNCHECKED:
                difference = max(difference, differences(calls))
            times.append(measure(calls, rounds))
        else:
            yield Row(f"grad {name}" if backward else name, expression, times, difference)


def _cell(times: Sequence[float]) -> str:
    own = f"{times[0] * 1e6:,.1f}"
    return f"{own:>11}" if len(times) == 1 else f"{own:>11} {times[0] / times[1]:>6.1f}"


def summary(rows: Sequence[Row], sizes: Sequence[int]) -> list[str]:
    """Lines: for each size the median ratio, how many rows are above 2, and the worst ones."""
    columns = list(zip(*(row.ratios for row in rows), strict=True))
    lines = [
        f"{'median':<30}" + "".join(f"{statistics.median(column):>18.2f}" for column in columns),
        f"{f'above 2, of {len(rows)}':<30}" + "".join(f"{sum(r > 2 for r in column):>18}" for column in columns),
    ]
    for n, column in zip(sizes, columns, strict=True):
        worst = sorted(zip(column, (row.name for row in rows), strict=True), reverse=True)[:_WORST]
        lines.append(f"worst at {n:,}: " + ", ".join(f"{name} {ratio:.1f}" for ratio, name in worst))
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line for each operation, then a summary.  Returns 1 where results differ, or a ratio is above `--most`."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.eager", description="eager operations, against torch's; see docs/benchmarks.md"
    )
    parser.add_argument("names", nargs="*", help="functions and methods; all of them without")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="numbers of elements, separated by commas")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each side is timed")
    parser.add_argument("--pass", dest="passes", choices=("forward", "backward", "both"), default="both", help="which rows")
    parser.add_argument("--most", type=float, default=math.inf, help="the ratio above which an operation counts as slow")
    arguments = parser.parse_args(argv)
    sizes = [int(n) for n in arguments.sizes.split(",")]
    libraries: list[Any] = [tracejit]
    if importlib.util.find_spec("torch") is not None:
        torch = importlib.import_module("torch")
        torch.set_num_threads(1)
        libraries.append(torch)
    found, missing = expressions(libraries, arguments.names)
    print(
        f"{'':<30}"
        + "".join(f"{f'{n:,}':>{11 if len(libraries) == 1 else 18}}" for n in sizes)
        + "  least us"
        + ", / torch's" * (len(libraries) > 1)
    )
    rows: list[Row] = []
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for backward in (False, True):
            if arguments.passes == ("forward" if backward else "backward"):
                continue
            with threadpool_limits(1), tracejit.set_grad_enabled(backward), libraries[-1].set_grad_enabled(backward):
                for row in _rows(found, libraries, sizes, arguments.rounds, backward):
                    print(f"{row.name:<30}" + "".join(map(_cell, row.times)) + f"  {row.expression}", flush=True)
                    rows.append(row)
                    gc.collect()
    finally:
        if was_enabled:
            gc.enable()
    if len(libraries) > 1 and rows:
        print("\n".join(summary(rows, sizes)))
    if missing:
        print(f"not measured, for want of an expression or of a counterpart: {', '.join(missing)}")
    differing = [f"{row.name} {row.difference:.1g}" for row in rows if row.difference > _TOLERANCE]
    if differing:
        print(f"results differ: {', '.join(differing)}")
    slow = [row.name for row in rows if len(libraries) > 1 and max(row.ratios) > arguments.most]
    if slow:
        print(f"above {arguments.most:g}: {', '.join(slow)}")
    return int(bool(slow or differing))


if __name__ == "__main__":
    sys.exit(main())
