"""NumPy in a program: arrays of tensors, what NumPy computes of them, arrays of constants, and arrays of the world as inputs."""

from __future__ import annotations

import numpy as np

from tests.fuzz.expressions import number
from tests.fuzz.maker import Maker, Parameter

__all__ = ["array_statement", "furnish_arrays", "list_statement", "of_constants", "outside_array"]

TRIES = 6
LEAVING = (
    "{x}.detach().numpy()", "{x}.detach().cpu().numpy()", "np.asarray({x}.detach())", "np.array({x}.detach())",
    "{x}.numpy(force=True)", "({x} * 2).detach().numpy()", "{x}.detach().numpy().copy()", "{x}.detach().numpy()[0]",
    "{x}.detach().numpy().T",
)  # fmt: skip
OF_ONE = (
    "{q} * 2", "{q} + 1", "-{q}", "{q}.sum()", "{q}.mean()", "{q}.max()", "{q}.min(0)", "{q}[0]", "{q}[..., -1]", "{q}.T",
    "{q}.copy()", "{q}.reshape(-1)", "{q}.astype('float64')", "{q}.astype(int)", "np.abs({q})", "np.exp({q})", "np.tanh({q})",
    "np.sqrt(np.abs({q}))", "np.where({q} > 0, {q}, 0)", "np.clip({q}, -1, 1)", "np.sort({q}, axis=None)", "np.argmax({q})",
    "np.cumsum({q})", "np.mean({q})", "np.round({q}, 1)", "{q} > 0.5", "({q} > 0).sum()", "float({q}.sum())", "int({q}.argmax())",
    "{q}.tolist()", "{q}.item()", "np.linalg.norm({q})", "np.stack([{q}, {q}])", "np.concatenate([{q}, {q}])", "{q} @ {q}",
    "np.dot({q}, {q})", "np.std({q})", "np.percentile({q}, 50)", "np.isnan({q}).any()", "np.maximum({q}, 0)", "len({q})",
    "{q}.shape", "{q}.dtype", "f'{{q}}'", "f'{{q}.mean():.3f}'", "str({q}.max())", "np.allclose({q}, {q})", "{q}[::-1]",
    "{q}.ravel()", "{q}.squeeze()", "np.transpose({q})", "np.diff({q})", "np.unique({q})", "{q}[{q} > 0]", "np.nonzero({q})[0]",
    "np.argsort({q}.ravel())", "{q} ** 2", "{q} / 3", "{q} // 2", "{q} % 2", "np.power({q}, 2)", "np.log({q})", "1 / {q}",
    "{q}.var()", "np.float32({q}.sum())", "np.sum({q}, axis=0)", "{q}.flatten()", "{q}.all()", "np.zeros_like({q})",
    "np.full_like({q}, 2)", "np.array([{q}.max(), 1.0])", "np.expand_dims({q}, 0)", "np.median({q})", "np.histogram({q}, 3)[0]",
    "np.split({q}, 1)[0]", "np.array(list({q}))", "sum({q}.ravel())", "max({q}.ravel())", "list({q}.shape)",
    "{q}.astype('float32').view('int32')", "np.quantile({q}, [0.1, 0.9])", "np.outer({q}, {q})",
    "np.bincount({q}.astype(int).ravel())", "[v for v in {q}.ravel()]", "[float(v) for v in {q}.ravel()]", "{q}.item(0)",
    "round(float({q}.max()), 2)", "{q}.max() > 0.5", "abs({q})", "np.isfinite({q})", "np.add.reduce({q})",
    "np.einsum('...i->...', {q})", "T.from_numpy({q})", "T.tensor({q})", "T.as_tensor({q})", "T.tensor({q}.tolist())",
    "T.from_numpy({q}.copy())",
)  # fmt: skip
OF_TWO = (
    "{q} + {r}", "{q} * {r}", "{q} - {r}", "{q} / {r}", "{q} @ {r}", "np.maximum({q}, {r})", "np.dot({q}, {r})",
    "np.array_equal({q}, {r})", "np.concatenate([{q}.ravel(), {r}.ravel()])", "np.where({q} > {r}, {q}, {r})", "{q} == {r}",
    "np.hypot({q}, {r})", "({q} - {r}).max()", "np.arctan2({q}, {r})", "np.append({q}, {r})", "np.allclose({q}, {r})",
    "np.mean(({q} - {r}) ** 2)", "{q} ** {r}", "{q} < {r}", "np.corrcoef({q}, {r})", "np.interp({q}, [0, 1], [0, 2])",
    "{q} + {n}", "{n} * {q}", "{q} > {n}", "np.isclose({q}, {n})", "np.minimum({q}, {n})", "{q} @ {x}.detach().numpy()",
    "{q} * {x}.detach()", "{x}.detach() * {q}", "np.add({x}.detach(), 1)", "np.mean({x}.detach())", "np.exp({x}.detach())",
    "np.sum({x}.detach().numpy() * {q})",
)  # fmt: skip
WRITES = (
    "{q}[0] = 5", "{q} += 1", "{q} *= 2", "{q}[...] = {n}", "{q}.fill(2)", "{q}.sort()", "{q}[0] += 1", "np.add({q}, 1, out={q})",
    "np.copyto({q}, 3)", "{q}.ravel()[0] = 7", "{q}[{q} > 0] = 0",
)  # fmt: skip
CONSTANTS = (
    "T.tensor(np.linspace(0, 1, 3))", "T.from_numpy(np.linspace(-1, 1, 4, dtype='float32'))", "T.tensor(np.array([1.0, 2.5]))",
    "T.from_numpy(np.arange(6).reshape(2, 3))", "T.as_tensor(np.eye(3, dtype=np.float32))", "T.from_numpy(np.zeros(3))",
    "T.tensor(np.ones((2, 2)) * 3)", "T.tensor(np.float64(2.5))", "T.tensor([np.pi, np.e])", "T.tensor(np.array([{n}, 1.0]))",
    "T.from_numpy(np.full((2,), {n}, dtype='float64'))", "T.tensor(np.arange(len({x})))", "T.from_numpy(np.zeros({x}.shape))",
    "T.tensor(np.sqrt({n}))", "T.tensor(np.hanning(5))", "T.tensor(np.outer([1, 2], [3, 4]))", "{x} * np.float32(2)",
    "{x} + np.pi", "np.float64(2) * {x}", "{x} * np.array(2.0)", "{x} - np.sqrt(2)", "T.tensor(np.random.RandomState(0).rand(3))",
    "{x} * np.exp({n})", "{x} + np.zeros(1, dtype='float32')", "T.tensor(np.array([[{n}, 2], [3, {n}]]))",
    "T.tensor(np.linspace(0, {n}, 3))",
)  # fmt: skip
FILLED = (
    ("{q} = np.zeros(3)", "{q}[0] = {n}", "{q}[1:] = 2.5"),
    ("{q} = np.zeros((2, 2), dtype='float32')", "for {i} in range(2):", "    {q}[{i}, {i}] = {i} + 1"),
    ("{q} = np.arange(4.0)", "{q} *= 2", "{q}[{q} > 3] = 0"),
    ("{q} = np.empty(2)", "{q}.fill({n})"),
    ("{q} = np.ones(3)", "{q}[0] = {x}.max().item()"),
    ("{q} = np.zeros({x}.shape)", "{q}[...] = {x}.detach().numpy()"),
)  # fmt: skip
LISTS = (
    "{x}.tolist()", "{x}.reshape(-1).tolist()", "({x} > 0).tolist()", "{x}.reshape(-1)[:3].tolist()",
    "{x}.shape and {x}.tolist()[0]", "sum({x}.reshape(-1).tolist())", "max({x}.reshape(-1).tolist())",
    "min({x}.reshape(-1).tolist(), default=0)", "[v * 2 for v in {x}.reshape(-1).tolist()]",
    "[v for v in {x}.reshape(-1).tolist() if v > 0]", "len({x}.reshape(-1).tolist())", "{x}.reshape(-1).tolist()[0] > 0.5",
    "sorted({x}.reshape(-1).tolist())", "f'{{x}.tolist()}'", "str({x}.reshape(-1).tolist()[:2])",
    "[round(v, 2) for v in {x}.reshape(-1).tolist()]", "{x}.tolist() + [1.0]", "({x}.tolist(), {n})",
    "tuple({x}.reshape(-1).tolist())", "dict(zip('abc', {x}.reshape(-1).tolist()))", "{x}.reshape(-1).tolist()[-1] + {n}",
    "list(enumerate({x}.reshape(-1).tolist()))", "max(enumerate({x}.reshape(-1).tolist()), key=lambda p: p[1])[0]",
    "[[v + 1 for v in [r]] for r in {x}.reshape(-1).tolist()]", "sum(v * v for v in {x}.reshape(-1).tolist())",
    "{x}.tolist() == {x}.tolist()", "0.5 in {x}.reshape(-1).tolist()", "{x}.reshape(-1).tolist()[::-1]",
    "any(v > 1 for v in {x}.reshape(-1).tolist())", "T.tensor({x}.tolist())", "math.fsum({x}.reshape(-1).tolist())",
    "' '.join(f'{v:.2f}' for v in {x}.reshape(-1).tolist())", "[*{x}.reshape(-1).tolist(), {n}]",
    "list(map(abs, {x}.reshape(-1).tolist()))", "sum(map(float, {x}.reshape(-1).tolist()), 0.0) / 2",
)  # fmt: skip
OUTSIDE = (
    "T.from_numpy({w})", "T.as_tensor({w})", "T.tensor({w})", "T.from_numpy({w}) * 2", "{x} * T.from_numpy({w})",
    "T.as_tensor({w}[1:])", "T.from_numpy({w}).sum() + {x}", "T.tensor({w}[0])", "T.as_tensor({w}, dtype=T.float32)",
    "T.asarray({w})", "{x} * {w}", "{w} * 2", "{w}.sum()", "T.from_numpy({w})[0]", "{x} + {w}.shape[0]",
    "T.from_numpy({w}).numpy()", "float({w}[0])", "T.from_numpy({w}.copy())", "T.from_numpy({w}).reshape(-1)[:1]",
    "{w}.mean() + 1", "T.from_numpy({w} * 2)", "T.tensor({w}, requires_grad=True)", "np.asarray(T.from_numpy({w}))",
    "T.from_numpy({w}).detach() + 1", "T.from_numpy({w}).t()", "{w}[0] * {x}", "T.from_numpy(np.flip({w}).copy())",
    "T.from_numpy({w}[::-1].copy())",
)  # fmt: skip
OUTSIDE_WRITES = (
    "T.from_numpy({w}).add_(1)", "T.from_numpy({w})[0] = 2", "T.as_tensor({w}).mul_(0.5)", "{w}[0] = 3", "{w} += 1",
    "T.from_numpy({w}).copy_(T.from_numpy({w}) * 2)", "T.from_numpy({w}).fill_({n})", "{w}[...] = {x}.detach().numpy()",
    "{w}[0] = {x}.max().item()", "T.from_numpy({w}).reshape(-1)[:1].zero_()",
)  # fmt: skip


def _filled(m: Maker, template: str) -> str:
    arrays = [n for n in m.names if n.startswith("q") and isinstance(m.env.get(n), np.ndarray)] or ["np.ones(2)"]
    for key, make in (
        ("{q}", lambda: arrays[-1 - min(int(m.choose.expovariate(1)), len(arrays) - 1)]),
        ("{r}", lambda: m.pick(arrays)),
        ("{n}", lambda: f"({number(m)})"),
        ("{x}", lambda: m.tensor() or m.floating()),
        ("{i}", lambda: m.name("i")),
    ):
        if key in template:
            template = template.replace(key, make())
    return template


def array_statement(m: Maker) -> None:
    """An array of a tensor, what NumPy computes of arrays, or a change of one."""
    m.not_replayed("NumPy")
    m.for_torch = False
    arrays = [n for n in m.names if n.startswith("q") and isinstance(m.env.get(n), np.ndarray)]
    for _ in range(TRIES):
        if not arrays or m.chance(0.25):
            written = m.assign(_filled(m, m.pick(LEAVING)), "q")
        elif m.chance(0.12):
            written = m.emit(_filled(m, m.pick(WRITES)))
        elif m.chance(0.15):
            name = m.name("q")
            written = m.emit(*_filled(m, "\n".join(m.pick(FILLED)).replace("{q}", name)).split("\n"))
            if written:
                m.names.append(name)
        else:
            written = m.assign(_filled(m, m.pick(OF_ONE if m.chance(0.7) else OF_TWO)), "q")
        if written:
            return


def of_constants(m: Maker) -> None:
    """A tensor of an array of constants."""
    m.for_torch = False
    m.not_replayed("NumPy")
    for _ in range(TRIES):
        if m.assign(_filled(m, m.pick(CONSTANTS))):
            return


def list_statement(m: Maker) -> None:
    """A list of the numbers of a tensor."""
    m.not_replayed("numbers that leave may be guarded by value")
    x = m.tensor(lambda t: t.numel() < 12) or m.floating()
    for _ in range(TRIES):
        text = _filled(m, m.pick(LISTS).replace("{x}", x))
        value = None if m.fails(text) else m.value(text)
        if value is not None:
            m.assign(text, "n" if isinstance(value, int | float) else "s" if isinstance(value, str) else "c")
            return


def furnish_arrays(m: Maker) -> None:
    """An array of the world, or one that is passed."""
    dtype = m.pick(["float32", "float32", "float64", "int64", "int32", "bool", "uint8"])
    shape, seed = m.shape() or (3,), m.choose.randrange(1, 90)
    made = f"made({dtype!r}, {shape}, {seed}).numpy()"
    other = f"made({dtype!r}, {shape}, {seed + 1}).numpy()"
    if m.chance(0.4) and len(m.parameters) < 4:
        others = (made, other, f"made('float64', {shape}, 7).numpy()", f"made({dtype!r}, {(*shape, 2)}, 7).numpy()[..., 0]")
        name = m.parameter(Parameter(m.name("p"), None, made, others))
    else:
        name = m.name("arr")
        if not m.outside(f"{name} = {made}", name=name):
            return
        m.declared.append(name)
        m.world.changes += [
            f"{name}[0] = 1", f"{name}[...] = {other}", f"{name} = {other}", f"{name} = {name}[::-1]",
            f"{name} = made('float64', (2, 3), 4).numpy()", f"{name}.setflags(write=False)",
            f"{name}.fill(1)", f"{name} = {name}.T", f"{name} = {name}.copy()",
        ]  # fmt: skip
    m.arrays.append(name)
    m.for_torch = False


def outside_array(m: Maker) -> None:
    """A tensor over an array of the world, what is computed of it, and writes to it."""
    if not m.arrays:
        furnish_arrays(m)
    if not m.arrays:
        return
    m.not_replayed("NumPy")
    for _ in range(TRIES):
        w = m.pick(m.arrays)
        if m.chance(0.25):
            written = m.emit(_filled(m, m.pick(OUTSIDE_WRITES).replace("{w}", w)))
        else:
            text = _filled(m, m.pick(OUTSIDE).replace("{w}", w))
            value = None if m.fails(text) else m.value(text)
            if value is None:
                continue
            written = m.assign(
                text, "q" if isinstance(value, np.ndarray | np.generic) else "n" if isinstance(value, int | float) else "v"
            )
        if written:
            return
