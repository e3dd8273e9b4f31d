"""Random small functions, and random things done with their gradients, in one text for tracejit's eager mode, compiled functions
and PyTorch.

`source(seed)` is a module with a function `f(T, x, y, z, n)` of three float64 tensors and an integer tensor, which returns a tuple
of tensors.
`Scenario(seed)` calls it and goes backward: through several outputs, one after the other or together, to everything or to chosen values,
with hooks, retained gradients, changes in place and second derivatives in between; it notes all that can be seen.

outside=True: the function writes to `y` and `z`, which are no leaves that require gradients, and is called some times in a row on the same
ones; what they then are, and views of them that were taken before, is gone backward through as well.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

UNARY = [
    "{a}.sin()",
    "{a}.exp() * 0.1",
    "{a}.tanh()",
    "{a} * {a}",
    "{a}.sigmoid()",
    "(1.0 + {a} * {a}).sqrt()",
    "-{a}",
    "{a} * 2.0",
    "{a} ** 3 * 0.1",
    "1.5 - {a}",
    "{a}.clone()",
    "{a} / 3.0",
    "({a} * {a} + 1.0).log()",
    "{a}.cumsum(0)",
    "{a}.flip(0)",
    "{a}.softmax(0)",
    "{a}.relu()",
    "{a}.abs()",
    "T.where({a} > 0.2, {a}, {a} * 0.5)",
    "{a}.clamp(-0.8, 0.9)",
    "{a}.sign() * {a}",
    "{a}.floor() + {a}",
]
BINARY = [
    "{a} + {b}",
    "{a} * {b}",
    "{a} - {b}",
    "{a} / ({b} * {b} + 1.0)",
    "{a} * {b}.sum()",
    "T.maximum({a}, {b})",
    "T.where({a} > {b}, {a}, {b})",
    "T.minimum({a}, {b})",
]
VIEWS = ["{a}.t()", "{a}.reshape(3, 3)", "{a}.view(9).view(3, 3)", "{a}[:]", "{a}.transpose(0, 1)", "{a}.unsqueeze(0).squeeze(0)"]
SMALLER = [
    "{a}[0].unsqueeze(0).expand(3, 3)",
    "{a}.sum(0).expand(3, 3)",
    "{a}.mean(1, keepdim=True).expand(3, 3)",
    "{a}[:, 1:2].expand(3, 3)",
    "{a}[n]",
    "{a}.index_select(1, n)",
    "T.cat([{a}[:1], {b}[1:]], 0)",
    "{a} @ {b} * 0.3",
    "{a}.gather(0, n.unsqueeze(0).expand(3, 3))",
    "T.stack([{a}[0], {b}[1], {a}[2]])",
    "{a}.diagonal().unsqueeze(1).expand(3, 3)",
]
OTHERS = [  # of other kinds: evaluated on the host, of sizes that depend on data, put together from positions
    "T.linalg.inv({a} @ {a}.t() + 2.0 * T.eye(3, dtype=T.float64)) * {b}",
    "T.linalg.solve({a} @ {a}.t() + 2.0 * T.eye(3, dtype=T.float64), {b})",
    "T.linalg.det({a}) * {b}",
    "{a}.sort(0)[0]",
    "{a} * {b}[{b} > 0.1].sum()",
    "{a}[{b} > -2.0].reshape(3, 3)",
    "{a} * {b}.nonzero().shape[0]",
    "{a}.masked_fill({b} > 0.3, 0.5)",
    "{a}.scatter_add(0, n.unsqueeze(0).expand(3, 3), {b})",
    "{a}.index_put((n,), {b}[0])",
    "{a}.index_add(1, n, {b})",
    "{a}.prod(0).expand(3, 3)",
    "{a}.cumprod(1)",
    "{a}.max(0)[0].expand(3, 3)",
    "{a}.amax(1, keepdim=True) + {b}",
    "{a}.roll(1, 0)",
    "{a}.tril() + {b}.triu(1)",
    "{a}.float().double()",
    "T.einsum('ij,kj->ik', {a}, {b})",
    "{a}.var(0).expand(3, 3)",
    "{a}.norm() * {b}",
    "{a}.repeat(2, 1)[1:4]",
    "{a}.unfold(0, 2, 1).sum(2).repeat(2, 1)[:3]",
    "{a}.logsumexp(1, keepdim=True) * {b}",
]
PLAIN = ["{a}.detach() * 0.5", "{a}.detach()"]
IN_PLACE = [
    "{a}.mul_({b})",
    "{a}.add_({b})",
    "{a}.mul_(0.5)",
    "{a}[0].mul_(2.0)",
    "{a}[1:].add_({b}[1:])",
    "{a}[0] = {b}[1]",
    "{a}.copy_({b})",
    "{a}.t().add_({b})",
    "{a}.sin_()",
    "{a}[:, 0].fill_(0.3)",
    "{a}.zero_()",
    "{a}.exp_().mul_(0.1)",
]


class Maker:
    """Writes one function."""

    def __init__(self, seed: int, smooth: bool, outside: bool) -> None:
        self.random, self.smooth = random.Random(seed), smooth
        even = [form for form in UNARY[:-6] if "softmax" not in form]
        self.unary, self.binary = (even, BINARY[:-3]) if smooth else (UNARY, BINARY)
        self.lines: list[str] = []
        self.values = ["x", "y", "z"]
        self.own: list[str] = ["y", "z"] if outside else []  # what may be written to
        self.writes = 0.3 if outside else 0.12

    def pick(self) -> str:
        return self.random.choice(self.values[-5:] if self.random.random() < 0.6 else self.values)

    def step(self) -> None:
        r, choose = self.random.random(), self.random.choice
        if r < self.writes and self.own:
            target = choose(self.own)
            line = choose([t for t in IN_PLACE if "t()" not in t] if self.smooth else IN_PLACE).format(a=target, b=self.pick())
            if self.random.random() < 0.25:
                self.lines += ["    with T.no_grad():", f"        {line}"]
            else:
                self.lines.append(f"    {line}")
            return
        name = f"v{len(self.values)}"
        kinds = [self.unary] * 5 + [self.binary] * 5 + [SMALLER] * 3 + [VIEWS] * 2 + ([PLAIN] if r < 0.3 else [])
        kinds += [] if self.smooth else [OTHERS] * 3
        kind = choose(kinds)
        form, first = choose(kind), self.pick()
        text = form.format(a=first, b=self.pick())
        if r > 0.95 and kind in (self.unary, self.binary):
            self.lines += ["    with T.no_grad():", f"        {name} = {text}"]
        elif r > 0.93:
            self.lines.append(f"    {name} = ({text}).detach().clone().requires_grad_()")
        else:
            self.lines.append(f"    {name} = {text}")
        self.values.append(name)
        if kind in (self.unary, self.binary) or (kind is VIEWS and first in self.own and not self.smooth):
            self.own.append(name)

    def text(self) -> str:
        for _ in range(self.random.randint(2, 11)):
            self.step()
        made = [v for v in self.values if v not in ("x", "y", "z")] or ["y"]
        count = min(len(made), self.random.choice([1, 1, 2, 2, 3]))
        outputs = self.random.sample(made[-6:], min(count, len(made[-6:])))
        ends = [v if self.random.random() < 0.6 else f"{v}.sum()" for v in outputs]
        return "def f(T, x, y, z, n):\n" + "\n".join(self.lines) + f"\n    return ({', '.join(ends)},)\n"


def source(seed: int, smooth: bool = False, outside: bool = False) -> str:
    """The text of function number `seed`.  smooth: without what PyTorch sees otherwise, which are operations with derivatives that are
    constant in places (their gradients require grad), softmax (whose derivative it computes from the result), views under no_grad, and
    writes to memory that is read."""
    return Maker(seed, smooth, outside).text()


class Scenario:
    """What is done with the function: decided by the seed, never by what happens.  plain: hooks stand on results only, and change and raise
    nothing (PyTorch calls those of leaves earlier, and does not show all of them to grad())."""

    def __init__(self, seed: int, plain: bool = False, outside: bool = False) -> None:
        self.seed, self.plain, self.outside = seed, plain, outside

    def run(self, library: Any, function: Any) -> list[Any]:
        """Everything seen, in order.  `function(x, y, z, n)` returns a tuple."""
        return _Run(self.seed, self.plain, self.outside, library, function).run()


class _Run:
    def __init__(self, seed: int, plain: bool, outside: bool, library: Any, function: Any) -> None:
        self.plain, self.outside = plain, outside
        self.random = random.Random(seed * 7919 + 1)
        self.T, self.function = library, function
        self.seen: list[Any] = []

    def tensor(self, array: Any, requires_grad: bool = False) -> Any:
        return self.T.tensor(array, requires_grad=requires_grad)

    def run(self) -> list[Any]:
        choose, T = self.random, self.T
        numbers = np.random.default_rng(self.random.randint(0, 10**6))
        wants = [choose.random() < p for p in (0.95, 0.7, 0.4)]
        leaves = [self.tensor(numbers.uniform(-1.0, 1.0, (3, 3)), w) for w in wants]
        inputs = list(leaves)
        if self.outside:
            inputs[1:] = [t * 1.5 if choose.random() < 0.5 else t.detach().clone() for t in leaves[1:]]
        elif choose.random() < 0.3:  # an input that is no leaf
            inputs[1] = leaves[1] * 1.5
        self.leaves, self.inputs = leaves, inputs
        hooks = choose.random() < 0.3
        if hooks:
            self.hook("input", choose.choice([t for t in inputs if t.requires_grad] or [None]))
        views = [inputs[1][1:], inputs[2].t()] if self.outside else []
        if self.outside and choose.random() < 0.3:
            inputs[1].retain_grad() if inputs[1].requires_grad else None
        outputs = self.attempt("call", lambda: self.function(*inputs, T.tensor([2, 0, 1])))
        if outputs is None:
            return self.seen
        for _ in range(choose.randint(0, 2) if self.outside else 0):
            more = self.attempt("call", lambda: self.function(*inputs, T.tensor([2, 0, 1])))
            outputs += more or ()
        outputs += (*inputs[1:], *views) if self.outside else ()
        self.outputs = outputs
        self.note("outputs", [self.value(o) for o in outputs], [o.requires_grad for o in outputs], [o.is_leaf for o in outputs])
        self.hooked = self.retained = None
        if choose.random() < 0.3:
            self.hooked = target = choose.choice(outputs)
            self.hook("output", target if target.requires_grad else None)
        if choose.random() < 0.25:
            self.retained = target = choose.choice(outputs)
            if target.requires_grad:
                target.retain_grad()
        self.later: list[Any] = []  # results that can be differentiated again
        for _ in range(choose.randint(1, 4)):
            self.action()
            self.note("grads", *[None if t.grad is None else self.value(t.grad) for t in leaves])
        for o in outputs:
            if o.requires_grad and not o.is_leaf:
                self.note("retained", None if o.grad is None else self.value(o.grad))
        return self.seen

    # -- what is noted
    def note(self, *what: Any) -> None:
        self.seen.append(what)

    def value(self, t: Any) -> Any:
        zero = getattr(t, "_is_zerotensor", bool)()  # which has no contents in PyTorch
        return np.zeros(tuple(t.shape)) if zero else np.array(t.detach().numpy())

    def attempt(self, what: str, action: Any) -> Any:
        try:
            result = action()
        except Exception as error:
            self.note(what, "raises", type(error).__name__, message_class(str(error)))
            return None
        self.note(what, "ok")
        return result

    def hook(self, where: str, tensor: Any) -> None:
        factor, raises = self.random.choice([None, 2.0, -0.5]), self.random.random() < 0.05
        if self.plain:
            factor, raises = None, False
        if tensor is None or (self.plain and tensor.is_leaf):
            return

        def hook(g: Any) -> Any:
            self.note("hook", where, self.value(g))
            if raises:
                raise KeyError("hook")
            return None if factor is None else g * factor

        tensor.register_hook(hook)

    # -- what is done
    def action(self) -> None:
        kind = self.random.choices(["backward", "grad", "second", "change"], [4, 4, 3, 2.5])[0]
        getattr(self, "do_" + kind)()

    def roots(self) -> tuple[list[Any], list[Any]]:
        """Some outputs and their cotangents."""
        chosen = [o for o in self.outputs if self.random.random() < 0.55] or [self.random.choice(self.outputs)]
        cotangents = [
            self.tensor(np.random.default_rng(self.random.randint(0, 99)).uniform(-1, 1, tuple(o.shape))) for o in chosen
        ]
        return chosen, cotangents

    def options(self) -> dict[str, Any]:
        retain, create = self.random.random() < 0.5, self.random.random() < 0.3
        return {**({"retain_graph": True} if retain else {}), **({"create_graph": True} if create else {})}

    def wanted(self) -> list[Any]:
        r = self.random.random()
        pool = [t for t in (*self.inputs, *self.leaves) if t.requires_grad]
        some = [t for t in pool if self.random.random() < 0.5] or pool[:1]
        extra = self.random.choice(self.outputs)
        return [*some, extra] if r < 0.25 and extra.requires_grad else some

    def do_backward(self) -> None:
        roots, cotangents = self.roots()
        options, wanted, chosen = self.options(), self.wanted(), self.random.random() < 0.3
        if chosen and wanted:
            options["inputs"] = wanted
        self.attempt("backward", lambda: (self.T.autograd.backward(roots, cotangents, **options), True)[1])

    def do_grad(self) -> None:
        roots, cotangents = self.roots()
        options, wanted, unused = self.options(), self.wanted(), self.random.random() < 0.8
        found = self.attempt("grad", lambda: self.T.autograd.grad(roots, wanted, cotangents, allow_unused=unused, **options))
        if found is not None:
            self.note(
                "found", [None if g is None else self.value(g) for g in found], [g is not None and g.requires_grad for g in found]
            )
            self.later += [g for g in found if g is not None and g.requires_grad]

    def do_second(self) -> None:
        """A derivative of gradients that were found before, or of one that is found now."""
        roots, cotangents = self.roots()
        wanted, again, retain, use = self.wanted(), self.wanted(), self.random.random() < 0.5, self.random.random() < 0.5
        fresh = not (use and self.later)
        if fresh:
            found = self.attempt(
                "first", lambda: self.T.autograd.grad(roots, wanted, cotangents, create_graph=True, allow_unused=True)
            )
            self.later += [g for g in found or () if g is not None and g.requires_grad]
        if not self.later:
            return
        total = sum([(g * g).sum() for g in self.later])
        second = self.attempt("second", lambda: self.T.autograd.grad(total, again, allow_unused=True, retain_graph=retain))
        if second is not None:
            self.note("second found", [None if g is None else self.value(g) for g in second])

    def do_change(self) -> None:
        """Someone writes to an input or a result in place."""
        # A result that is a view of another value gets a new position on eager's tape by this, without its hooks; a compiled one is no
        # view.
        target = self.random.choice([*self.leaves, *[o for o in self.outputs if o is not self.hooked and o is not self.retained]])
        graded = self.random.random() < 0.3 and not target.is_leaf

        def change() -> bool:
            if graded:
                target.mul_(1.5)
            else:
                with self.T.no_grad():
                    target.mul_(1.5)
            return True

        self.attempt("change", change)


def message_class(text: str) -> str:
    """What kind of error it is, in either library's words."""
    for words, name in (
        (("freed", "second time"), "freed"),
        (("inplace operation",), "changed"),
        (("not have been used", "was not used"), "unused"),
        (("not require grad",), "no grad"),
        (("empty",), "empty"),
        (("implicitly",), "not scalar"),
        (("view of a leaf", "leaf Variable"), "leaf"),
    ):
        if any(w in text for w in words):
            return name
    return "other"


def difference(expected: list[Any], actual: list[Any], tolerance: float) -> str | None:
    """The first thing that was not seen alike."""
    for i, (a, b) in enumerate(zip(expected, actual, strict=False)):
        if not _alike(a, b, tolerance):
            return f"at {i}: {a} against {b}"
    return None if len(expected) == len(actual) else f"{len(expected)} against {len(actual)} notes: {expected[-1]}, {actual[-1]}"


def _alike(a: Any, b: Any, tolerance: float) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return (
            isinstance(a, np.ndarray)
            and isinstance(b, np.ndarray)
            and a.shape == b.shape
            and a.dtype == b.dtype
            and bool(np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True))
        )
    if isinstance(a, tuple | list):
        return (
            isinstance(b, tuple | list) and len(a) == len(b) and all(_alike(p, q, tolerance) for p, q in zip(a, b, strict=True))
        )
    return bool(a == b)
