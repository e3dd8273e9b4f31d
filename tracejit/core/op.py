"""`Op`: one primitive, declared once; the registry of all of them.

Everything another layer wants to know about a primitive is an attribute of its Op: how NumPy evaluates it, the shape rule,
how operands promote, what its vjp saves, the vjp, what machine code computes, what simplifies it, its effect, and sample inputs.
passes/ and lowering/ read the Op that a node carries; no layer keeps a table of op names (tests/test_operations_own_their_rules.py).

What machine code computes is said in one of five ways, each of them a rule over objects that a compiler hands it, so that a primitive
imports nothing of one:

- `lowering(b, *operands, **attributes)`, of an elementwise primitive: the scalar meaning over a builder of expressions.
- `element(b, at, *operands, **attributes)`, of one that moves elements: the output's element at the coordinates `at`, as an element
  `x[...]` of an operand, or made of some.  Coordinates are added and multiplied by sizes.  `b.position(i, n)` is the coordinate that a
  number, or an element of an operand, says: the program leaves where it is not in [0, n) (`wraps`: where it is not in [-n, n));
  `b.bounded(p, n)` is whether a coordinate is outside [0, n), and one inside, itself where it is not; `b.coordinate(p)` is a coordinate
  as an int64 value, `b.number(v)` an operand that is no tensor, `b.divmod` divides coordinates; what else `b` has are expressions.
  Of a view the same rule says where it lies in memory, where nests read through it and where its inverse
  puts it; `strides` is for a reshape, whose elements may lie evenly though their coordinates are no affine function.
- `region`, of one that changes a part of operand 0: the view or gather of that part, whose rule then says where.
- `nest`: the form of loops that the compiler has a builder for (`lowering/writer.builds`), which kinds REDUCTION (with its `reducer`),
  SCAN (likewise) and CONTRACTION imply.
- `routine`, of one of kind LAPACK: the function that calls LAPACK for one matrix (`llvm/lapack.py`); of a composite: what kernels of
  convolutions compute at once, where there are some (`core/convolutions.py`).

Without any of these NumPy evaluates it, on the host.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracejit.core.aval import Aval
from tracejit.core.dtypes import DType, float32, from_numpy_dtype
from tracejit.core.interpreter import Abstract, state
from tracejit.core.numbers import NUMBERS

__all__ = ["BEFORE_STEP", "REGISTRY", "Effect", "Kind", "Op", "Promotion", "VjpContext"]


class Kind(enum.Enum):
    """The family of a primitive; it implies how the compiler may treat a node."""

    ELEMENTWISE = "elementwise"  # operands broadcast; `lowering` gives the scalar meaning
    REDUCTION = "reduction"  # attributes: dims (sorted tuple), keepdim; `reducer` names the combination
    SCAN = "scan"  # cumulative along attribute `dim`
    ORDER = "order"  # positions in sorted order along attribute `dim`; of many elements evaluated by NumPy on the host
    VIEW = "view"  # the output shares the memory of operand 0
    MOVEMENT = "movement"  # copies elements to other positions: cat, flip, clone ...
    CONTRACTION = "contraction"  # matrix products
    GATHER = "gather"  # reads operand 0 at integer positions given by a tensor
    SCATTER = "scatter"  # writes or adds at positions given by a tensor, or by attributes (fold)
    CREATION = "creation"  # no tensor operands
    RANDOM = "random"  # draws from the generator, or moves it on
    WRITE = "write"  # copies operand 1 into the memory of operand 0
    GUARD = "guard"  # takes a Python value out of a tensor
    LAPACK = "lapack"  # solves or factorises matrices, in the last two dimensions of each operand; `routine` says how
    OPAQUE = "opaque"  # evaluated by NumPy or SciPy on the host
    LOOP = "loop"  # applies a graph so many times (ir/loop.py)
    COMPOSITE = "composite"  # one step of eager mode and of its tape; programs compute its `expansion` into other primitives


_COMPUTING = (
    Kind.ELEMENTWISE,
    Kind.REDUCTION,
    Kind.SCAN,
    Kind.ORDER,
    Kind.CONTRACTION,
    Kind.SCATTER,
    Kind.LAPACK,
    Kind.OPAQUE,
    Kind.COMPOSITE,
)


class Effect(enum.Enum):
    PURE = "pure"
    VIEW = "view"
    RANDOM = "random"
    IN_PLACE = "in place"


class Promotion(enum.Enum):
    """How operand dtypes are unified before an elementwise primitive sees them."""

    NONE = "none"  # operands are taken as they are
    COMMON = "common"  # PyTorch's result type
    FLOAT = "float"  # COMMON, and integers become the default floating-point dtype
    BOOL = "bool"  # each operand becomes bool


@dataclass(slots=True, eq=False)
class VjpContext:
    """What a vjp rule may look at.

    `inputs[i]` and `outputs[i]` are saved values (None when not saved), `needs[i]` whether operand i needs a cotangent,
    `avals[i]` the aval of tensor operand i (for a Python scalar operand the scalar itself stands in `inputs[i]`),
    `attributes` the primitive's attributes, `accumulated[i]`, of a primitive with the trait "accumulates", what the cotangent of operand i
    has come to so far, if anything has arrived.
    """

    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    needs: tuple[bool, ...]
    avals: tuple[Any, ...]
    attributes: Mapping[str, Any]
    accumulated: tuple[Any, ...] = ()


Rule = Callable[..., Any]
REGISTRY: dict[str, Op] = {}
_ARRAYS = (np.ndarray, np.generic)
_F32 = np.dtype(np.float32)
BEFORE_STEP = 32  # a step takes a millisecond to make
_MOST_TRUTHS = 1 << 12  # elements: more of them are faster converted to bools first


@dataclass(slots=True, eq=False, repr=False)
class Op:
    """One primitive.

    evaluate(*operands, **attributes) works on NumPy arrays (tensor operands) and Python scalars, and returns an array or a
    tuple of arrays.  infer(*avals, **attributes) returns the Aval or a tuple of them; with the trait "dynamic shape" sizes that
    depend on data are UNKNOWN in them.  The vjp rule is called as rule(context, *cotangents), cotangents of outputs that have none
    being None, and returns one cotangent per operand (a tuple; a bare value for a single operand); None where `context.needs` is false.
    expansion(*operands, **attributes), of a composite, gives the same outputs by other primitives.  node_name is the name of its nodes on
    the tape: a text, a function of the node, or None for one made of the op's own.

    where(*avals, **attributes): whether `element` holds for such operands, if not for all.  source: the operand that goes to the `region`.
    scatter, of a view: the primitive that puts a changed part back, the one whose region it is.  undone(shape, **attributes), of a view
    that is all of its operand: attributes under which the same primitive leads back to `shape`; None for elements that share memory.
    simpler(s, *operands, **attributes): what gives the same bits for every input, NaN, infinities, signed zeros and wrapping integers
    included: one of the operands, `s(op, *operands, **attributes)`, or None.  Operands are Python numbers, or values with `aval`, and `op`,
    `operands` and `attributes` of what made them (`op` None: nothing that is known); `s.aval` is the output's, `s.same(x)` whether x has
    it.  A value of another aval than the output's is as good as None.

    Traits: "checked" (eager runs the shape rule before NumPy, for its error), "raises" (on some data), "may not end" (an interrupt
    leaves it), "quiet" (NumPy gives no warnings in its evaluation), "dynamic shape", "condition first", "rounds numbers", "moves" and
    "casts" (computes no numbers, or converts them), "not differentiable", "no derivative", "straight through" (gradients flow to operand
    0 whatever the contents), "exact" (correctly rounded: the same bits now and at run time), "uniform" (all elements are operand 0),
    "arranges" (elements of operand 0, in some order; "copies": as they are; "reshapes", "permutes": as these words say; "one position":
    those at operand 1 of a dimension; "positions": those of a range of it), "position operand" (operand 1 tells where those are), "joins"
    (operands side by side), "adds at positions" (operands in zeros), "broadcasts" (operand 0 as elementwise primitives see it anyway),
    "adds" (the sum of its operands, or elements; of a scatter, adds to what is there), "no negative integers" (raises for one that is a
    number), "accumulates" (its vjp goes on from the cotangents that operands have had so far, and answers with what they come to: the order
    in which it adds is its own), "number" (eager mode has a number of Python in its place, which the tape does not save), "reads numbers
    alone" (its vjp reads nothing but such; no backward pass frees it), "merges paths" (operand 1 where operand 0, one bool, holds, else
    operand 2: the cotangent goes to that one alone, and the other has none), "symmetric" and "gauge" (for tests of derivatives).
    """

    name: str
    kind: Kind
    evaluate: Rule
    infer: Rule
    effect: Effect = Effect.PURE
    promotion: Promotion = Promotion.NONE
    traits: frozenset[str] = frozenset()
    samples: Callable[[], Iterable[Any]] | None = None
    multiple: bool = False
    doc: str | None = None
    ufunc: Rule | None = (
        None  # a function of C's that does the same on operands of float32, float64 or int64; of a reduction, the `reduce` of one
    )
    loops: Any = None  # a ufunc whose loops do the same, if it has some for the dtype (of SciPy: its name); or a Fused, or CHOICE
    most: int | None = None  # elements up to which `loops` does so
    rows: str | None = None  # of a reduction: the form of the kernel that evaluates it on rows of large arrays (core/kernels.py)
    expansion: Rule | None = None
    lowering: Rule | None = None
    reducer: str | None = None
    element: Rule | None = None
    where: Callable[..., bool] | None = None
    strides: Callable[..., tuple[int, ...] | None] | None = None
    undone: Callable[..., dict[str, Any] | None] | None = None
    region: Op | None = None
    source: int = 1
    nest: str | None = None
    routine: str | None = None
    simpler: Rule | None = None
    scatter: Op | None = field(default=None, init=False)
    node_name: str | Callable[[Any], str] | None = field(default=None, init=False)
    vjp_rule: Rule | None = field(default=None, init=False)
    saves: tuple[str, ...] = field(default=(), init=False)
    saved_plans: dict[tuple[bool, ...], tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict, init=False)
    step: Callable[..., Any] | None = field(default=None, init=False)  # what eager mode tries first: tensor/eager.py
    until_step: int = field(default=0, init=False)  # how many evaluations there are before it is made, 0 for never
    is_checked: bool = field(init=False)
    may_exit: bool = field(
        init=False
    )  # on other data it raises, or has another shape: a program leaves there, and never drops it
    is_quiet: bool = field(
        init=False
    )  # NumPy warns of nothing: it computes no numbers, or none by NumPy in the program's own context
    is_plain: bool = field(init=False)  # eager may take its fast path: floating-point operands of one dtype need no promotion
    is_ufunc: bool = field(init=False)  # `ufunc` evaluates it on int64 operands, too, which need no promotion
    is_view: bool = field(init=False)
    is_choice: bool = field(init=False)  # by a condition, its first operand, which promotion leaves as it is
    is_unary: bool = field(init=False)  # of one tensor there is nothing to do but to evaluate it
    writes: bool = field(init=False)
    reduces: bool = field(init=False)  # by `ufunc`
    multiplies: bool = field(init=False)  # small operands by `ufunc`
    computes: bool = field(init=False)  # of float16 and bfloat16 in float32, the result rounded; the others only move elements
    keeps_dtype: bool = field(init=False)  # operands have the dtype of a floating-point output (cast's do not)

    def __post_init__(self) -> None:
        if self.name in REGISTRY:
            raise ValueError(f"the primitive {self.name!r} is declared twice")
        kind, traits, promotion = self.kind, self.traits, self.promotion
        self.doc = self.doc or self.evaluate.__doc__
        self.is_checked = "checked" in traits
        self.may_exit = not traits.isdisjoint(("raises", "dynamic shape"))
        moves = kind in (Kind.VIEW, Kind.MOVEMENT, Kind.GATHER) or (
            kind in (Kind.COMPOSITE, Kind.OPAQUE, Kind.ORDER) and "moves" in traits
        )
        self.is_quiet = (moves and "casts" not in traits) or "quiet" in traits
        promoted = kind is Kind.ELEMENTWISE and promotion in (Promotion.COMMON, Promotion.FLOAT)
        self.is_plain = promoted and not self.multiple and "condition first" not in traits
        self.is_ufunc = self.is_plain and promotion is Promotion.COMMON and self.ufunc is not None
        if self.is_plain or promotion is Promotion.BOOL:
            self.loops = self.loops or self.ufunc
        if promotion is Promotion.BOOL:
            self.most = _MOST_TRUTHS
        self.until_step = BEFORE_STEP if isinstance(self.loops, np.ufunc | str) or (kind is Kind.COMPOSITE and self.loops) else 0
        self.is_view = self.effect is Effect.VIEW
        self.is_choice = "condition first" in traits
        self.is_unary = self.effect is Effect.PURE and promotion is Promotion.NONE and not self.is_checked and not self.multiple
        self.writes = self.effect is Effect.IN_PLACE
        self.reduces = kind is Kind.REDUCTION and self.ufunc is not None
        self.multiplies = kind in (Kind.CONTRACTION, Kind.COMPOSITE) and self.ufunc is not None
        self.computes = kind in _COMPUTING and "moves" not in traits
        self.keeps_dtype = promotion is not Promotion.NONE
        if self.region is not None and self.region.kind is Kind.VIEW:
            self.region.scatter = self
        REGISTRY[self.name] = self

    def step_dtypes(self) -> list[Any]:
        """The dtypes of NumPy's on whose elements `loops` does what the primitive means, without promotion, if it has a loop for them."""
        takes_all = self.promotion is Promotion.BOOL or (self.promotion is Promotion.COMMON and self.loops is not self.ufunc)
        names = ("float32", "float64", *(("int64",) if takes_all or self.is_ufunc else ()), *(("bool",) if takes_all else ()))
        return [np.dtype(name) for name in names]

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    @property
    def title(self) -> str:
        """What messages call it."""
        return self.name if self.kind is not Kind.LOOP else "a loop"

    def __reduce__(self) -> tuple[Any, ...]:
        return _lookup, (self.name,)

    def __call__(self, *operands: Any, **attributes: Any) -> Any:
        return state.top.bind(self, operands, attributes)

    def of(self, *operands: Any, **attributes: Any) -> Any:
        """The primitive of values of any kind, as rules apply it: evaluated on bare arrays, bound by the interpreter of abstract values,
        and by that of the thread on Tensors.  The first operand that is no number says which."""
        for x in operands:
            if isinstance(x, _ARRAYS):
                if x.dtype is not _F32 and self.computes and (reduced := self.reduced(operands)) is not None:
                    return self.in_float32(operands, attributes, reduced)
                return self.evaluate(*operands, **attributes)
            if type(x) not in NUMBERS and x is not None:
                return (x.interpreter if isinstance(x, Abstract) else state.top).bind(self, operands, attributes)
        raise TypeError(f"{self.name}: none of {operands} says of what kind the result is; use beside()")

    def beside(self, reference: Any, *operands: Any, **attributes: Any) -> Any:
        """The same where no operand is a tensor (zeros, masks): a value of the kind of `reference`."""
        if isinstance(reference, _ARRAYS):
            return self.evaluate(*operands, **attributes)
        return (reference.interpreter if isinstance(reference, Abstract) else state.top).bind(self, operands, attributes)

    def reduced(self, operands: Iterable[Any]) -> DType | None:
        """float16 or bfloat16 where that is the dtype of all floating-point operands, and the primitive computes with them."""
        found = None
        if self.computes:
            for x in operands:
                dtype = getattr(x, "dtype", None)
                if isinstance(dtype, np.dtype):
                    dtype = from_numpy_dtype(dtype)
                if dtype is not None and dtype.is_floating_point:
                    if not dtype.is_reduced or (found is not None and dtype is not found):
                        return None  # of two dtypes, which promotion has not made one: the primitive itself refuses
                    found = dtype
        return found

    def in_float32(self, operands: tuple[Any, ...], attributes: Mapping[str, Any], reduced: DType) -> Any:
        """The primitive of operands of the dtype `reduced`: of their values as float32, its results rounded.  All of it are operations
        like any other, on the tape and in graphs, so gradients are computed in float32 and rounded as well.

        Numbers are operands in float32, as in PyTorch's kernels; with the trait "rounds numbers" (comparisons, remainders) they are rounded
        like the tensors."""
        cast = REGISTRY["cast"]
        first = next(x for x in operands if hasattr(x, "dtype"))
        wide: list[Any] = []
        for x in operands:
            if isinstance(x, (bool, int, float)) and "rounds numbers" in self.traits:
                x = REGISTRY["full"].beside(first, x, shape=(), dtype=reduced)
            dtype = getattr(x, "dtype", None)
            floating = dtype is not None and (dtype is reduced or dtype == reduced.numpy)
            wide.append(cast.of(x, dtype=float32) if floating else x)
        result = self.of(*wide, **attributes)
        if self.multiple:
            return tuple([_rounded(cast, x, reduced) for x in result])
        return _rounded(cast, result, reduced)

    def vjp(self, saves: str | tuple[str, ...] = "") -> Callable[[Rule], Rule]:
        """Declare the vjp.  `saves` says per operand what its cotangent needs, as a string of input positions (`2:` for all from the
        third on) and `out` (`out0`, `out1` for several outputs): mul saves ("1", "0"), exp "out", sin "0", add "".  A single string
        speaks for all operands.

        The rule is `rule(context, *cotangents)`; it answers with a cotangent for each operand, None where it gets nothing.
        `context.inputs` and `context.outputs` hold only what was declared.  Cotangents have the shapes and dtypes of the outputs;
        broadcasting of elementwise primitives is undone by whoever calls the rule (core/unbroadcast.py).

        Rules are written with Python's operators, `of` and `beside`, and mean what their operands make of them: arrays are evaluated at
        once, tracers build a graph, Tensors pass the door, so the pass is on the tape or in a recording."""

        def declare(rule: Rule) -> Rule:
            self.saves = (saves,) if isinstance(saves, str) else saves
            self.vjp_rule = rule
            return rule

        return declare

    def simplified(self, rule: Rule) -> Rule:
        """Declare `simpler`."""
        self.simpler = rule
        return rule

    def named(self, name: str | Callable[[Any], str]) -> None:
        """Declare the name of its nodes on the tape (PyTorch's), where it is not the op's own: a text, or a function of the node."""
        self.node_name = name

    def saved_for(self, needs: tuple[bool, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(input positions, output positions) that the vjp reads when the operands in `needs` want a cotangent."""
        known = self.saved_plans.get(needs)
        if known is None:
            words: set[str] = set()
            for i, need in enumerate(needs):
                if need and self.saves:
                    words.update(self.saves[min(i, len(self.saves) - 1)].split())
            inputs = tuple(sorted({i for w in words for i in _positions(w, len(needs))}))
            outputs = tuple(sorted(int(w[3:] or 0) for w in words if w.startswith("out")))
            known = self.saved_plans[needs] = (inputs, outputs)
        return known

    @property
    def is_differentiable(self) -> bool:
        """Whether gradients flow through it, or ought to: it has a vjp, if only one that raises."""
        return "not differentiable" not in self.traits

    def undone_for(self, shape: tuple[int, ...], attributes: Mapping[str, Any]) -> dict[str, Any] | None:
        """`undone`; None of a view that has none, too."""
        return None if self.undone is None else self.undone(shape, **attributes)

    def infer_tuple(self, avals: Iterable[Any], attributes: Mapping[str, Any]) -> tuple[Aval, ...]:
        """The avals of all outputs, as the shape rule gives them."""
        result = self.infer(*avals, **attributes)
        return result if self.multiple else (result,)


def _rounded(cast: Op, x: Any, reduced: DType) -> Any:
    return cast.of(x, dtype=reduced) if x.dtype is float32 or x.dtype == _F32 else x


def _positions(word: str, count: int) -> Iterable[int]:
    """The positions of operands, of which there are `count`, that a word of `saves` names."""
    if word.endswith(":"):
        return range(int(word[:-1]), count)
    return (int(word),) if word.isdigit() else ()


def _lookup(name: str) -> Op:
    return REGISTRY[name]
