"""The hand that writes a program: choices by a seed, lines that are tried as they are written, and the values so far.

`env` is the program's namespace as it would be in the first call after what is written.  A statement is kept if it runs there; so whoever
writes one needs no rules of shapes and dtypes, only candidates.  What is tried on values must not stay small by luck: results beyond
`LARGEST` elements are given up.

A function's parameters and the world around it may be asked for at any time (`parameter`, `outside`): the texts of the calls and of the
world are put together last.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import tracejit
from tests.fuzz.values import environment
from tracejit import Tensor

__all__ = ["Maker", "Parameter", "TensorSpec", "indented"]

LARGEST = 1500
TELLING = 0.5  # of the programs: in the others nothing happens beside the program but what they return and change
FLOATS = ("float32",) * 5 + ("float64",) * 3
OTHERS = ("int64",) * 4 + ("int32", "int32", "uint8", "int8", "int16", "bool", "bool")
LAYOUTS = ("plain",) * 12 + ("transposed", "transposed", "strided", "offset", "expanded", "last_strided", "selected", "leaf_view")
ENVIRONMENT = environment(tracejit)


def indented(lines: Sequence[str], depth: int = 1) -> list[str]:
    """Lines, further to the right."""
    return ["    " * depth + line for line in lines]


@dataclass(frozen=True)
class TensorSpec:
    """A tensor that a call makes: what it is, and how it lies in memory."""

    dtype: str
    shape: tuple[int, ...]
    seed: int
    kind: str | int = "plain"
    layout: str = "plain"
    grad: bool = False

    def text(self) -> str:
        """An expression that makes it; a layout that does not suit the shape is left out."""
        shape, rank = self.shape, len(self.shape)
        grad = ".requires_grad_()" if self.grad and self.dtype.startswith("float") else ""
        layout = self.layout if rank else "plain"
        if layout == "transposed" and rank > 1:
            return f"{self._made((*shape[:-2], shape[-1], shape[-2]))}{grad}.transpose(-1, -2)"
        if layout == "strided":
            return f"{self._made((2 * shape[0], *shape[1:]))}{grad}[::2]"
        if layout == "last_strided":
            return f"{self._made((*shape[:-1], 2 * shape[-1]))}{grad}[..., ::2]"
        if layout == "offset":
            return f"{self._made((shape[0] + 1, *shape[1:]))}{grad}[1:]"
        if layout == "selected":
            return f"{self._made((2, *shape))}{grad}[1]"
        if layout == "expanded":
            return f"{self._made((1, *shape[1:]))}{grad}.expand{shape}"
        if layout == "leaf_view" and rank > 1:
            return f"{self._made((*shape[:-2], shape[-1], shape[-2]))}.transpose(-1, -2).detach(){grad}"
        return self._made(shape) + grad

    def _made(self, shape: tuple[int, ...]) -> str:
        kind = "" if self.kind == "plain" else f", {self.kind!r}"
        return f"made({self.dtype!r}, {shape}, {self.seed}{kind})"


@dataclass
class Parameter:
    """A parameter of the function under test.  `spec` of a tensor, else `text` of its value; `others`: texts of other values.
    is_fixed: its shape and dtype are those of every call, since it is an operand of a primitive that takes no others (public
    functions convert)."""

    name: str
    spec: TensorSpec | None = None
    text: str = ""
    others: tuple[str, ...] = ()
    default: str = ""
    is_named: bool = False  # whether a call gives its value a name first
    is_fixed: bool = False

    def value(self) -> str:
        """The text of its value."""
        return self.spec.text() if self.spec else self.text


@dataclass
class World:
    """What is around the function: lines of the module, what may be done to it between calls, and what is looked at."""

    lines: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)
    observed: list[str] = field(default_factory=list)


class Maker:
    """See the module.  `must_replay` is taken back by whoever writes what need not be replayed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.choose = random.Random(seed)
        self.env: dict[str, Any] = dict(ENVIRONMENT)
        self.names: list[str] = []  # of the program's own, tensors and others, in the order written
        self.numbers: list[str] = []  # expressions of numbers that no walk over objects finds: properties, descriptors
        self.lines: list[str] = []
        self.parameters: list[Parameter] = []
        self.world = World()
        self.declared: list[str] = []  # names of the module that may be assigned to
        self.cells: list[str] = []  # variables of the function around
        self.streams: list[str] = []  # of the world, which what is told is written to
        self.chances: list[tuple[str, str]] = []  # generators of Python and NumPy, and what makes them
        self.keepers: list[
            tuple[str, Sequence[str], Sequence[str]]
        ] = []  # what numbers are kept in, and how it is changed and read
        self.subclasses: list[tuple[str, Sequence[str], Sequence[str]]] = []  # the same of containers of classes of the world
        self.arrays: list[str] = []  # of NumPy, from outside
        self.conditional = self.looping = self.nested = 0
        self.can_return = True
        self.special = self.choose.random() < 0.12  # NaN, infinities, zeros of both signs
        self.wants_grad = self.choose.random() < 0.6
        self.must_replay = True
        self.for_torch = True
        self.why_not: set[str] = set()
        self.used: list[str] = []  # operations, for the coverage
        self.tells = random.Random(f"{seed} tells").random() < TELLING  # something happens beside its program
        self._count = 0
        self.sizes = [self.choose.choice([2, 3, 4, 5, 7]) for _ in range(3)]
        if self.choose.random() < 0.08:
            self.sizes[self.choose.randrange(3)] = 0
        if self.choose.random() < 0.1:
            self.sizes[self.choose.randrange(3)] = self.choose.choice([17, 33, 65])

    # -- choices
    def chance(self, probability: float) -> bool:
        """True with a probability."""
        return self.choose.random() < probability

    def pick(self, items: Sequence[Any]) -> Any:
        """One of some items."""
        return items[self.choose.randrange(len(items))]

    def weighted(self, table: Sequence[tuple[float, Any]]) -> Any:
        """One of a table of (weight, item)."""
        return self.choose.choices([item for _, item in table], [weight for weight, _ in table])[0]

    def name(self, prefix: str) -> str:
        """A name that is not used."""
        self._count += 1
        return f"{prefix}{self._count}"

    def not_replayed(self, why: str) -> None:
        """The program holds something that need not be replayed."""
        self.must_replay = False
        self.why_not.add(why)

    # -- values so far
    def value(self, text: str) -> Any:
        """The value of an expression.  Raises what it raises."""
        return eval(text, self.env)

    def fails(self, text: str) -> bool:
        """Whether an expression raises."""
        try:
            eval(text, self.env)
        except Exception:
            return True
        return False

    def reachable(self) -> Iterator[tuple[str, Any]]:
        """(expression, value) of what the program can name: variables, attributes, items; the latest last."""
        for name in self.names:
            if name in self.env:
                yield from _inside(name, self.env[name], 2)

    def tensors(self, fits: Callable[[Any], bool] = lambda t: True) -> list[str]:
        """Expressions of tensors, the latest last."""
        return [text for text, value in self.reachable() if isinstance(value, Tensor) and fits(value)]

    def tensor(self, fits: Callable[[Any], bool] = lambda t: True) -> str | None:
        """One of the tensors that fit, rather a late one; None if there is none."""
        found = self.tensors(fits)
        if not found:
            return None
        return found[-1 - min(int(self.choose.expovariate(0.5)), len(found) - 1)]

    def floating(self) -> str:
        """A floating-point tensor; a new parameter if there is none."""
        found = self.tensor(lambda t: t.dtype.is_floating_point)
        return found or self.parameter_of(self.shape(), self.pick(FLOATS))

    # -- writing
    def emit(self, *lines: str, run: bool = True) -> bool:
        """Write a statement if it runs; whether it was written."""
        if run and not self.runs("\n".join(lines)):
            return False
        self.lines += [part for line in lines for part in line.split("\n")]
        return True

    def runs(self, text: str) -> bool:
        """Run a statement on the values so far; whether it ran and everything stayed small.  If not, no name has changed."""
        before = dict(self.env)
        try:
            exec(compile(text, "<trial>", "exec"), self.env)
        except Exception:
            self.env.clear()
            self.env.update(before)
            return False
        for name in self.names:
            value = self.env.get(name)
            if isinstance(value, Tensor) and value.numel() > LARGEST:
                self.env.clear()
                self.env.update(before)
                return False
        return True

    def assign(self, text: str, prefix: str = "v") -> str | None:
        """Write `name = text`, to a new name or one that exists; the name, or None if that does not run."""
        name = self.target(prefix)
        return name if self.define(name, text) else None

    def define(self, name: str, text: str) -> bool:
        """Write `name = text`; whether that runs."""
        try:
            value = self.value(text)
        except Exception:
            return False
        if isinstance(value, Tensor) and value.numel() > LARGEST:
            return False
        if not self.emit(f"{name} = {text}"):
            return False
        if name in self.names:
            self.names.remove(name)
        self.names.append(name)
        return True

    def target(self, prefix: str = "v") -> str:
        """A name to assign to: under a condition rather one that exists, so that it does not depend on the path whether it does."""
        own = [n for n in self.names if n.startswith(prefix) and n[len(prefix) :].isdigit() and n not in self.outer_names]
        if own and self.chance(0.85 if self.conditional else 0.15):
            return str(self.pick(own))
        return self.name(prefix)

    @property
    def outer_names(self) -> set[str]:
        """Names of the world, which an assignment in the function would make local."""
        return {*self.world.observed, *self.cells, "self"}

    def block(self, write: Callable[[], None], *, conditional: bool = True, loop: bool = False) -> list[str]:
        """The lines that `write` writes, which run on copies of the names; `pass` if there are none."""
        env, names, lines = dict(self.env), list(self.names), self.lines
        self.lines = []
        self.conditional += conditional
        self.looping += loop
        try:
            write()
            return self.lines or ["pass"]
        finally:
            self.lines = lines
            self.conditional -= conditional
            self.looping -= loop
            self.env.clear()
            self.env.update(env)
            self.names = names

    # -- the world and the parameters
    def outside(self, *lines: str, name: str = "", observed: bool = True) -> bool:
        """Write lines of the module; they are run at once.  name: what they define."""
        if not self.runs("\n".join(lines)):
            return False
        self.world.lines += lines
        if name and observed:
            self.world.observed.append(name)
            self.names.insert(0, name)
        return True

    def parameter(self, parameter: Parameter) -> str:
        """A further parameter of the function; its name."""
        self.env[parameter.name] = self.value(parameter.value())
        self.parameters.append(parameter)
        self.names.insert(0, parameter.name)
        return parameter.name

    def spec(self, shape: tuple[int, ...], dtype: str, kind: str | int | None = None) -> TensorSpec:
        """A tensor to be made."""
        if kind is None:
            kind = (
                "special"
                if self.special and self.chance(0.5)
                else self.weighted([(8, "plain"), (2, "positive"), (2, "unit"), (1, "wide"), (1, "whole")])
            )
        grad = self.wants_grad and dtype.startswith("float") and self.chance(0.6)
        layout = self.pick(LAYOUTS)
        return TensorSpec(dtype, shape, self.choose.randrange(1, 90), kind, layout, grad)

    def parameter_of(self, shape: tuple[int, ...], dtype: str, kind: str | int | None = None) -> str:
        """A tensor of this shape and dtype from outside: a further parameter, or, where there are many, a tensor of the module."""
        spec = self.spec(shape, dtype, kind)
        if len(self.parameters) < 4 and not self.chance(0.2):
            return self.parameter(Parameter(self.name("a"), spec, is_named=True))
        name = self.name("w")
        self.outside(f"{name} = {spec.text()}", name=name)
        return name

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        """Sizes, which tend to be the same for different tensors."""
        if rank is None:
            rank = self.choose.choices(range(6), [1, 4, 6, 3, 1, 0.4])[0]
        sizes = self.sizes
        found = tuple([1 if self.chance(0.12) else sizes[(i + 3 - rank) % 3] for i in range(rank)])
        return found if math.prod(found) <= 300 else tuple(min(s, 3) for s in found)

    def compatible(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts with another."""
        found = tuple([1 if self.chance(0.25) else s for s in shape])
        return found[self.choose.randrange(len(found) + 1) :] if self.chance(0.3) else found

    def dtype(self) -> str:
        """The name of a dtype."""
        return str(self.pick(FLOATS if self.chance(0.75) else OTHERS))


def _inside(text: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """A value and what can be named from it."""
    if depth and isinstance(value, list | tuple) and not isinstance(value, tracejit.Size):
        fields = getattr(value, "_fields", None)
        for i, item in enumerate(value[:4]):
            yield from _inside(f"{text}.{fields[i]}" if fields else f"{text}[{i}]", item, depth - 1)
    elif depth and type(value) is dict:
        for key, item in list(value.items())[:4]:
            if isinstance(key, str | int):
                yield from _inside(f"{text}[{key!r}]", item, depth - 1)
    elif depth and isinstance(value, tracejit.nn.Module):
        yield f"{text}.training", value.training
        for name, parameter in list(value.named_parameters())[:3]:
            path = "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in name.split("."))
            yield text + path, parameter
    elif depth and hasattr(value, "__dict__") and not isinstance(value, Tensor | type) and not callable(value):
        for name, item in list(vars(value).items())[:6]:
            if not name.startswith("_"):
                yield from _inside(f"{text}.{name}", item, depth - 1)
    yield text, value
