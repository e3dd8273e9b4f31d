"""capture/handlers/texts.py, capture/handlers/printing.py: texts of numbers that each call computes, and what print() writes of them."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import tracejit as T

State = dict[str, Any]
Function = Callable[[T.Tensor, State], Any]
CALLS = 8


def advance(s: State) -> int:
    s["n"] += 1
    return int(s["n"])


class Told:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __str__(self) -> str:
        return f"<{self.value}>"

    def __repr__(self) -> str:
        return f"Told({self.value})"


class Row(NamedTuple):
    loss: float
    step: int = 0


COMPUTED: dict[str, Function] = {
    "f-string": lambda x, s: f"{x.sum().item():.3f}",
    "f-string of tensors": lambda x, s: f"loss {x.sum():.3f} and {x.max().item()!r:>10} {x.shape}",
    "counter": lambda x, s: f"step {advance(s)} {x.sum().item():8.2f}",
    "nested": lambda x, s: f"{f'{x.sum().item():.1f}':>8}|",
    "computed width": lambda x, s: f"{x.argmax().item():{x.shape[0]}d}",
    "percent": lambda x, s: "a %.3f b %d" % (x.sum().item(), x.argmax().item()),  # noqa: UP031
    "percent of one": lambda x, s: "%d" % x.sum().item(),  # noqa: UP031
    "percent with text": lambda x, s: "%s|%5s" % (x.sum().item(), "q"),  # noqa: UP031
    "format": lambda x, s: f"{x.sum().item():.2f} {3} {x.max().item()}",
    "built-in format": lambda x, s: format(x.sum().item(), ".2f"),
    "str": lambda x, s: str(x.sum().item()),
    "repr": lambda x, s: repr(x.sum().item()),
    "sum of texts": lambda x, s: "a" + str(x.sum().item()) + "b",
    "join": lambda x, s: ", ".join([str(v.item()) for v in x]),
    "join of a generator": lambda x, s: ", ".join(f"{v.item():.1f}" for v in x),
    "join of a map": lambda x, s: " ".join(map(str, x.tolist())),
    "join of a map of a method": lambda x, s: "|".join(map("{:.1f}".format, [v.item() for v in x])),
    "join of a reversed list": lambda x, s: ", ".join(reversed([str(v.item()) for v in x])),
    "join of a chain": lambda x, s: ", ".join(itertools.chain([str(x.sum().item())], ["end"])),
    "join of values": lambda x, s: " ".join({i: f"{v.item():.1f}" for i, v in enumerate(x)}.values()),
    "kept": lambda x, s: s["log"].append(f"{x.sum().item():.2f}"),
    "in a dictionary": lambda x, s: {"text": f"{x.sum().item():.2f}", "number": x.sum().item()},
    "print": lambda x, s: print(x.sum().item()),
    "print with keywords": lambda x, s: print("loss", x.sum().item(), x.shape, s["n"], sep="-", end="!\n", flush=True),
    "print of a counter": lambda x, s: print("n", advance(s)),
    "print of containers": lambda x, s: print(
        [x.sum().item(), 1, "a"], (x.max().item(),), {"loss": [x.min().item()]}, None, True
    ),
    "methods of texts": lambda x, s: (
        f" {x.sum().item():.2f} ".strip().rjust(9, "*").replace(".", ",", 1).upper().removeprefix("*") + "|"
    ),
    "methods with texts": lambda x, s: "a-b".replace("-", f"{x.sum().item():.1f}").center(20).title().zfill(30),
    "slices of texts": lambda x, s: f"{x.sum().item():.6f}"[:4] + f"{x.max().item()}"[-3:] + str(advance(s))[::-1],
    "repeated": lambda x, s: "=" * 3 + f"{advance(s)}" * 2 + 0 * f"{x.sum().item()}",
    "integers with digits": lambda x, s: f"{advance(s):.2f} {s['n']:e} {x.argmax().item():%}",
    "percent of an integer": lambda x, s: "%.1f %g" % (advance(s), x.argmax().item()),  # noqa: UP031
    "a path": lambda x, s: os.path.basename(os.path.join("models", f"model_{advance(s)}_{x.sum().item():.1f}.pt")),
    "substituted": lambda x, s: re.sub(r"\.\d+", "", f"a{x.sum().item():.3f}") + re.sub(re.compile("a"), "b", f"a{advance(s)}"),
    "a text that joins": lambda x, s: f"{advance(s)}".join(["a", f"{x.sum().item():.1f}", "c"]),
    "a text of the program": lambda x, s: f"{Told(x.sum().item())} {Told(advance(s))!r:>9}",
    "a named tuple": lambda x, s: f"{Row(x.sum().item(), advance(s))}",
    "an array of no dimensions": lambda x, s: (
        f"{x.sum().numpy()} {x.sum().numpy():9.3f} {x.sum().numpy()!s:>9} {x.max().numpy()!r}"
    ),
    "format of an array": lambda x, s: format(x.sum().numpy(), ".2f") + format(x.mean().numpy()) + f"{x.numpy()}",
    "an integer in an array": lambda x, s: f"{x.argmax().numpy():d} {x.sum().long().numpy()}",
    "prints in a loop": lambda x, s: [print(i, v.item()) for i, v in enumerate(x)],
    "print before an error that does not come": lambda x, s: (print("before"), 1 / (x.abs().sum().item() + 1), print("after")),
}
DECIDED: dict[str, Function] = {
    "key": lambda x, s: {f"{x.argmax().item()}": 1},
    "join of a filter": lambda x, s: " ".join(filter(None, [str(v.item()) for v in x])),
    "join in order": lambda x, s: " ".join(sorted(map(str, x.tolist()))),
    "join of numbers": lambda x, s: " ".join(map(abs, x.tolist())),
    "member": lambda x, s: {f"{x.argmax().item()}"},
    "method that answers": lambda x, s: f"{x.argmax().item()}a".startswith("2"),
    "method that makes a list": lambda x, s: f"{x.argmax().item()} a".split(),
    "method that may raise": lambda x, s: f"{x.argmax().item()}".center(5, f"{x.argmax().item()}"),
    "length": lambda x, s: len(str(x.argmax().item())),
    "comparison": lambda x, s: str(x.argmax().item()) == "2",
    "membership": lambda x, s: "2" in str(x.argmax().item()),
    "repeated by a number of the call": lambda x, s: str(x.argmax().item()) * x.argmax().item(),
    "format that an array does not know": lambda x, s: f"{x.numpy():.2f}",
    "representation of a tensor by percent": lambda x, s: "%r %a" % (x.sum(), x.argmax()),  # noqa: UP031
    "format that a shape does not know": lambda x, s: _refused(x.shape),
    "format that an object does not know": lambda x, s: _refused(Told(x.argmax().item())),
    "read as a number": lambda x, s: int(str(x.argmax().item())),
    "a format that may raise": lambda x, s: f"{x.argmax().item():c}",
    "message of an assertion": lambda x, s: _asserted(x),
}


def _refused(value: Any) -> str:
    try:
        return f"{value:>9}"
    except TypeError as error:
        return str(error)


def _asserted(x: T.Tensor) -> None:
    assert x.sum() > 0, f"sum {x.sum().item()}"


def outcomes(function: Callable[[T.Tensor], Any], state: State) -> list[Any]:
    found = []
    for i in range(CALLS):
        x = T.from_numpy(np.random.default_rng(i).integers(-4, 5, 6).astype(np.float32))
        written = io.StringIO()
        with contextlib.redirect_stdout(written):
            try:
                result: Any = function(x)
            except Exception as error:
                result = type(error), error.args, [type(a) for a in error.args]
        found.append((repr(result), type(result), written.getvalue(), repr(state)))
    return found


def compared(function: Function) -> Any:
    """The compiled function, whose calls did what eager ones do."""
    eager: State = {"n": 0, "log": []}
    state: State = {"n": 0, "log": []}
    compiled = T.compile(lambda x: function(x, state))
    assert outcomes(compiled, state) == outcomes(lambda x: function(x, eager), eager)
    return compiled


@pytest.mark.parametrize("name", COMPUTED)
def test_a_text_of_numbers_is_computed_by_each_call(name: str) -> None:
    compiled = compared(COMPUTED[name])
    assert compiled.stats.compiled_calls >= CALLS - 2, compiled.explain()


@pytest.mark.parametrize("name", DECIDED)
def test_what_asks_for_a_text_gets_the_text_of_the_call(name: str) -> None:
    compared(DECIDED[name])


def test_a_method_of_a_text_that_is_kept_is_one_of_the_text_of_the_call() -> None:
    def f(x: T.Tensor) -> Any:
        upper = f"a{x.sum().item()}".upper
        return [upper(), upper]

    compiled = T.compile(f)
    for n in range(4):
        text, upper = compiled(T.ones(2) * n)
        assert (text, upper()) == (f"A{n * 2.0}",) * 2 and type(upper) is type("".upper)


def test_the_text_that_an_object_shows_in_ascii_is_its_representation() -> None:
    told = Told("é")
    compiled = T.compile(lambda x: f"{told!a} {told!r} {told!s} {told} {told!a:>15}")
    assert {compiled(T.ones(1)) for _ in range(3)} == {f"{told!a} {told!r} {told!s} {told} {told!a:>15}"}


def test_prints_come_once_where_a_call_leaves_the_program() -> None:
    @T.compile
    def function(x: T.Tensor) -> int:
        print("sum", x.sum().item())
        return 1 if x.sum().item() > 0 else 2

    for values in ([1.0, 2.0], [3.0, 2.0], [-1.0, -2.0], [-3.0, 1.0], [2.0, 2.0]):
        written = io.StringIO()
        with contextlib.redirect_stdout(written):
            function(T.tensor(values))
        assert written.getvalue() == f"sum {sum(values)}\n"


SIZES: dict[str, Callable[..., Any]] = {
    "of a format string": lambda x, n: (f"{x.shape} {n} {x.sum().item():.1f}", x * 2),
    "of %": lambda x, n: ("shape %s %d" % (x.shape, n), "%s" % (x.shape,), "%r" % (x.size(),), x * 2),  # noqa: UP031
    "of % with a number that leaves": lambda x, n: ("%.3f %s" % (x.mean(), x.shape), "%s %s" % (x.sum().item(), [x.dtype]), x),  # noqa: UP031
    "of str.format": lambda x, n: (str.format("{} {!r}", x.shape, x.dtype), x * 2),
    "in containers": lambda x, n: ("%s %s" % (list(x.shape), {"a": x.shape}), str([x.shape]), x * 2),  # noqa: UP031
}


@pytest.mark.parametrize("name", SIZES)
def test_a_shape_has_the_text_that_it_has_in_each_call(name: str) -> None:
    fn = SIZES[name]
    compiled = T.compile(fn)
    for n in range(4):
        assert str(compiled(T.ones(2, 3) * n, n)) == str(fn(T.ones(2, 3) * n, n))
    assert (compiled.stats.traces, compiled.stats.compiled_calls) == (1, 3), compiled.explain()
    assert str(compiled(T.ones(3), 1)) == str(fn(T.ones(3), 1))


@pytest.mark.parametrize(
    "wrong", [lambda x, s: x * s, lambda x, s: s + x, lambda x, s: x.sum(s), lambda x, s: T.zeros(s), lambda x, s: x[s]]
)
def test_where_no_text_may_be_the_error_speaks_of_the_text_of_the_call(wrong: Callable[[T.Tensor, str], Any]) -> None:
    def function(x: T.Tensor, n: float) -> Any:
        return wrong(x, str(n)), wrong(x, f"{x.sum().item():.1f}")

    errors = []
    compiled = T.compile(function)
    for call, n in ((function, 2.5), (function, 3.5), (compiled, 2.5), (compiled, 3.5)):
        with pytest.raises(TypeError) as error:
            call(T.ones(2), n)
        errors.append(str(error.value))
    assert errors[:2] == errors[2:]
