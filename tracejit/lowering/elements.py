"""One element of a value as an expression, written into the open loops of a nest under construction.

`Elements.value(v, at)` gives (Expr, depth): the element of value v at a position of the iteration space, and the number of the deepest
open loop that it varies with.  Every computed value gets a name in the loop of its depth, once, so that what does not vary with a
loop is computed outside it and nothing is computed twice.  Loads, parameters (buffers, sizes, scalars) and range checks of indices
appear as they are needed.

Stores, reductions and the order of loops belong to schedule.py; memory and addresses are not known here: a buffer is a root value
(or scratch) and an element offset.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

from tracejit.core import dtypes
from tracejit.core.aval import ScalarAval
from tracejit.core.dtypes import DType
from tracejit.core.op import Kind
from tracejit.core.symbolic import by_origin
from tracejit.core.symbolic import python_type as number_type
from tracejit.ir.graph import Literal, Node, Operand
from tracejit.ir.layouts import Position, Positions, Source, Strided, linear
from tracejit.loops.bounds import bounded
from tracejit.loops.expressions import Apply, AxisValue, Const, Expr, Load, ScalarParam, SizeValue, Var, builder
from tracejit.loops.language import SMALL_STRIDES, Axis, Buffer, Exit, Index, Let, Scalar, Size, Statement
from tracejit.lowering.costs import compute_dtype
from tracejit.lowering.values import Values, combination, operand_positions

__all__ = ["Dynamic", "Elements", "Parameters", "Scope", "Scratch", "python_dtype"]

Valued = tuple[Expr, int]
_ATOMS = (Const, ScalarParam)  # need no name
_DEEP: Final = 32  # members, each of which is computed for the one before
LONG_ROW: Final = 64  # elements from which on a row's quotients by its sum are products
_LEAST_NORMAL: Final = {dtypes.float32: 2.0**-126, dtypes.float64: 2.0**-1022}


@dataclass(frozen=True, slots=True, eq=False)
class Scratch:
    """Memory that a nest needs while it runs: `count` elements."""

    dtype: DType
    count: int


@dataclass(slots=True, eq=False)
class Dynamic:
    """An index known at run time: an int64 Expr that is in range (bounds.py), and its depth.  Compared by identity."""

    expr: Expr
    depth: int


@dataclass(slots=True)
class Scope:
    """An open loop (the outermost scope is the nest itself)."""

    statements: list[Statement] = field(default_factory=list)
    known: dict[Any, Valued] = field(default_factory=dict)


def python_dtype(python_type: type) -> DType:
    """The dtype of a frame slot that holds a Python number."""
    return dtypes.float64 if python_type is float else dtypes.int64


@dataclass(slots=True, eq=False)
class Parameters:
    """The parameters of a nest, named in order of appearance so that nests of one form have one text.

    Equal numbers have one parameter if they are the same for all sizes: those that are equal by chance have two (`by_origin`)."""

    buffers: dict[Buffer, tuple[int, int]] = field(default_factory=dict)  # the root and the offset of each
    scratch: dict[Scratch, Buffer] = field(default_factory=dict)
    sizes: dict[Size, int] = field(default_factory=dict)
    scalars: dict[tuple[int, DType], Scalar] = field(default_factory=dict)
    known_buffers: dict[Hashable, Buffer] = field(default_factory=dict)  # root and offset -> the buffer
    known_sizes: dict[Hashable, Size] = field(default_factory=dict)  # part and number -> the size
    part: int = 0

    def buffer(self, root: int, offset: int, dtype: DType) -> Buffer:
        key = (root, by_origin(offset))
        if key not in self.known_buffers:
            made = self.known_buffers[key] = Buffer(f"p{len(self.buffers)}", dtype)
            self.buffers[made] = root, offset
        return self.known_buffers[key]

    def temporary(self, scratch: Scratch) -> Buffer:
        if scratch not in self.scratch:
            self.scratch[scratch] = Buffer(f"t{len(self.scratch)}", scratch.dtype)
        return self.scratch[scratch]

    def size(self, n: int) -> int | Size:
        """0 and 1 are part of a nest's form, other sizes are parameters."""
        if n in (0, 1):
            return n
        key = self.part, by_origin(n)
        if key not in self.known_sizes:
            made = self.known_sizes[key] = Size(f"n{len(self.sizes)}")
            self.sizes[made] = n
        return self.known_sizes[key]

    def begin_part(self) -> None:
        """From here on equal sizes have other parameters: those of what is put into something are equal to its own by chance, if at all,
        and then this nest is still of the form that it has otherwise."""
        self.part += 1

    def stride(self, n: int) -> int | Size:
        """A stride of the innermost loop.  Backwards and small ones are part of a nest's form, for there are vectors of such."""
        return n if n == -1 or n in SMALL_STRIDES else self.size(n)

    def scalar(self, operand: Operand, dtype: DType) -> Expr:
        """A Python number operand in the dtype that the node computes in."""
        if isinstance(operand, Literal):
            return builder.const(operand.value, dtype)
        assert isinstance(operand, int)
        key = (operand, dtype)
        if key not in self.scalars:
            self.scalars[key] = Scalar(f"s{len(self.scalars)}", dtype)
        return ScalarParam(self.scalars[key])

    def number(self, n: int) -> Expr:
        """A size as an int64 value."""
        size = self.size(n)
        return builder.const(n, dtypes.int64) if isinstance(size, int) else SizeValue(size)


class Elements:
    """Expressions over loops.

    loops: the loop axes, outermost first, and their `sizes`.  extents: sizes of the axes of the iteration space.  placing: axis of that
    space -> (loop number, 1 for the innermost axis of a loop, 0 for those collapsed into it).  members: node numbers that this nest
    computes; `inlined` ones as well, wherever they are used.  exit_code: node number -> exit number of its range check.
    """

    def __init__(
        self,
        values: Values,
        members: Mapping[int, Any],
        inlined: frozenset[int],
        placing: Mapping[int, tuple[int, int]],
        loops: tuple[Axis, ...],
        extents: tuple[int, ...],
        sizes: tuple[int, ...],
        exit_code: Callable[[int], int],
    ) -> None:
        self.values = values
        self.members = members
        self.inlined = inlined
        self.placing = placing
        self.loops = loops
        self.extents = extents
        self.sizes = sizes
        self.empty = tuple(k for k, size in enumerate(sizes) if size == 0)
        self.exit_code = exit_code
        self.parameters = Parameters()
        self.scopes: list[Scope] = [Scope()]
        self.reads: dict[int, list[Index]] = {}
        self._names = 0
        self._within = 0  # members that are being computed, each for the one before

    # --- statements

    def name(self, value: Expr, depth: int, label: str = "v") -> Expr:
        """`value` under a name in the loop at `depth`."""
        self._names += 1
        var = Var(f"{label}{self._names}", value.dtype)
        self.scopes[depth].statements.append(Let(var, value))
        return var

    def fresh(self, dtype: DType, label: str = "r") -> Var:
        self._names += 1
        return Var(f"{label}{self._names}", dtype)

    # --- memory

    def index(self, position: Position) -> tuple[Index, int]:
        """The index of a memory position without its constant offset, and its depth."""
        strides: dict[int, int] = {}
        for axis, c in position.terms:
            loop, multiplier = self.placing[axis]
            # Axes that were collapsed contribute through the innermost of them alone.
            if multiplier:
                strides[loop] = strides.get(loop, 0) + c
        depth = max((k + 1 for k in strides), default=0)
        terms = tuple((self.loops[k], self._stride(k, s)) for k, s in sorted(strides.items()) if s)
        if not position.dynamic:
            return Index(terms), depth
        # Where the dynamic part varies from lane to lane, it is one number per lane: the innermost loop's share joins it.
        varies = any(token.depth == len(self.loops) for _, token in position.dynamic)
        inner = strides.get(len(self.loops) - 1, 0) if varies else 0
        terms = tuple((axis, s) for axis, s in terms if not inner or axis is not self.loops[-1])
        depth = max(depth, *(token.depth for _, token in position.dynamic))
        if len(position.dynamic) == 1 and not inner:
            ((scale, token),) = position.dynamic
            return Index(terms, 0, token.expr, self.parameters.size(scale)), depth
        parts = [token.expr if scale == 1 else token.expr * self.parameters.number(scale) for scale, token in position.dynamic]
        if inner:
            here: Expr = AxisValue(self.loops[-1])
            parts.append(here if inner == 1 else here * self.parameters.number(inner))
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return Index(terms, 0, total, 1), depth

    def _stride(self, loop: int, n: int) -> int | Size:
        return self.parameters.stride(n) if loop == len(self.loops) - 1 else self.parameters.size(n)

    def location(self, layout: Strided, at: Positions, dtype: DType) -> tuple[Buffer, Index, int]:
        position = linear(at, layout.strides)
        index, depth = self.index(position)
        for loop in self.empty:  # what is read in a loop without iterations may not exist
            if loop < len(self.scopes) - 1:
                depth = max(depth, loop + 1)
        return self.parameters.buffer(layout.root, layout.offset + position.offset, dtype), index, depth

    def load(self, layout: Strided, at: Positions, dtype: DType) -> Valued:
        buffer, index, depth = self.location(layout, at, dtype)
        dynamic = None if index.dynamic is None else id(index.dynamic)
        key = (buffer.name, index.terms, dynamic, index.dynamic_stride)
        found = self._find(key)
        if found is None:
            self.reads.setdefault(layout.root, []).append(index)
            found = self.name(Load(buffer, index), depth, "x"), depth
            self.scopes[depth].known[key] = found
        return found

    def _find(self, key: Any) -> Valued | None:
        for scope in reversed(self.scopes):
            if key in scope.known:
                return scope.known[key]
        return None

    def coordinate(self, position: Position) -> Valued:
        """A position as an int64 number."""
        total: Expr | None = None
        depth = 0
        for axis, c in position.terms:
            loop, _ = self.placing[axis]
            part: Expr = AxisValue(self.loops[loop])
            part = part if c == 1 else part * c
            total = part if total is None else total + part
            depth = max(depth, loop + 1)
        for c, token in position.dynamic:
            part = token.expr if c == 1 else token.expr * c
            total = part if total is None else total + part
            depth = max(depth, token.depth)
        if total is None:
            return self.parameters.number(position.offset), 0
        return (total + self.parameters.number(position.offset) if position.offset else total), depth

    # --- values

    def value(self, v: int, at: Positions) -> Valued:
        """The element of v at `at`, and the depth of the deepest loop it varies with."""
        source = self._source(v, at)
        if source is None:
            return self.load(self.values.strided[v], at, self.values.aval(v).dtype)
        return self.member(*source)

    def _source(self, v: int, at: Positions) -> tuple[int, Positions] | None:
        """The member that computes the element of v at `at`, and where; None for one in memory."""
        values = self.values
        if (source := values.producer.get(values.root(v), -1)) not in self.members and source not in self.inlined:
            return None
        while values.is_view(v):
            if "uniform" in values.nodes[source].op.traits:
                return source, ()
            below = values.operand_position(v, at, self.extents)
            assert below is not None, f"a view of a value inside a nest has no affine positions: {values.nodes[source].op.name}"
            v, at = below
        return values.producer[v], at

    def member(self, number: int, at: Positions) -> Valued:
        """The element of a member's output; schedule.py extends this for members that have results or memory."""
        key = (number, at)
        found = self._find(key)
        if found is None:
            self._within += 1
            if self._within % _DEEP == 0:
                self._compute_below(number, at)
            found = self.compute(number, at)
            self._within -= 1
            self.scopes[found[1]].known[key] = found
        return found

    def _compute_below(self, number: int, at: Positions) -> None:
        """Compute what an element is made of, what comes first before what is made of it: else Python's stack would be as deep as a nest's
        chains of operations are long."""
        waiting = [(number, at)]
        below: dict[tuple[int, Positions], None] = {}
        while waiting:
            n, position = waiting.pop()
            node = self.values.nodes[n]
            if node.op.kind is not Kind.ELEMENTWISE:
                continue
            for k, positions in operand_positions(self.values, node, position, None)[0]:
                source = self._source(node.operands[k], positions)  # type: ignore[arg-type]
                if source is not None and source not in below and self._find(source) is None:
                    below[source] = None
                    waiting.append(source)
        for source in sorted(below, key=itemgetter(0)):
            self.member(*source)

    def compute(self, number: int, at: Positions) -> Valued:
        """Compute a member that is no reduction at `at`."""
        values, node = self.values, self.values.nodes[number]
        result, depth = self._expression(number, node, at)
        dtype = values.aval(node.outputs[0]).dtype
        assert result.dtype is dtype, f"{node.op.name}: the lowering gives {result.dtype.name}, the shape rule says {dtype.name}"
        return (
            (self.name(result, depth), depth) if not isinstance(result, Var) and type(result) not in _ATOMS else (result, depth)
        )

    def _expression(self, number: int, node: Node, at: Positions) -> Valued:
        if node.op.kind is Kind.ELEMENTWISE:
            return self._elementwise(node, at)
        rules = _Rules(self, number)
        operands = [rules.operand(o) if self.values.is_tensor(o) else o for o in node.operands]
        assert node.op.element is not None, node.op.name
        expr = node.op.element(rules, at, *operands, **node.attrs)
        return expr, rules.depth()

    def _elementwise(self, node: Node, at: Positions) -> Valued:
        dtype = compute_dtype(self.values, node)
        positions = dict(operand_positions(self.values, node, at, None)[0])
        operands: list[Expr | None] = []
        tensors: list[tuple[int, Expr, int]] = []
        depth = 0
        for k, o in enumerate(node.operands):
            if o is None:
                operands.append(None)
            elif k in positions:
                assert isinstance(o, int)
                expr, d = self.value(o, positions[k])
                tensors.append((o, expr, d))
                operands.append(expr)
                depth = max(depth, d)
            else:
                operands.append(self.parameters.scalar(o, dtype))
        assert node.op.lowering is not None
        result = node.op.lowering(builder, *operands, **node.attrs)
        if isinstance(result, Apply) and result.operation == "div" and depth == len(self.loops):
            x, total = result.operands
            for o, expr, d in tensors:
                if expr is total and d < depth and self._is_sum_of_long_row(o, expr):
                    return self._quotient_by_sum(x, total, d), depth
        return result, depth

    def _is_sum_of_long_row(self, v: int, expr: Expr) -> bool:
        """Whether `expr`, the value of v, is a sum of floats that this nest has made of many elements."""
        number = self.values.producer.get(self.values.root(v), -1)
        if number not in self.members or not isinstance(expr, Var) or not expr.dtype.is_floating_point:
            return False
        node = self.values.nodes[number]
        return node.op.kind is Kind.REDUCTION and combination(node).adds and self.sizes[-1] >= LONG_ROW

    def _quotient_by_sum(self, x: Expr, total: Expr, depth: int) -> Expr:
        """x / total within 2 units in the last place, as a product with a reciprocal that is computed once for the row; divided where
        that would be infinite or subnormal."""
        least, size = _LEAST_NORMAL[total.dtype], builder.abs(total)
        reciprocal = self._once("reciprocal", total, depth, lambda: 1.0 / total)
        unusual = self._once("unusual", total, depth, lambda: (size < least) | (size > 1 / least))
        return builder.div_where(unusual, x, total, x * reciprocal)

    def _once(self, what: str, of: Expr, depth: int, value: Callable[[], Expr]) -> Expr:
        """A value made of `of`, under a name in the loop at `depth`."""
        found = self._find((what, id(of)))
        if found is None:
            found = self.scopes[depth].known[what, id(of)] = self.name(value(), depth, "q"), depth
        return found[0]

    def checked(self, number: int, index: Expr, depth: int, size: int) -> Dynamic:
        """An index that is bounded, after an Exit for node `number` if it is out of range."""
        outside, position = bounded(index, self.parameters.number(size))
        self.scopes[depth].statements.append(Exit(outside, self.exit_code(number)))
        return Dynamic(self.name(position, depth, "i"), depth)

    def checked_element(self, number: int, index: Expr, depth: int, size: int, wraps: bool) -> Dynamic:
        """The same of an element of an index tensor, once.  wraps: negative ones count from the end."""
        key = ("index", number, id(index), size)
        found = self._find(key)
        if found is None:
            wide = index if index.dtype is dtypes.int64 else self.name(builder.cast(index, dtypes.int64), depth, "i")
            if wraps:
                wide = self.name(builder.select(builder.lt(wide, 0), wide + self.parameters.number(size), wide), depth, "i")
            token = self.checked(number, wide, depth, size)
            self.scopes[depth].known[key] = token, index  # type: ignore[assignment]  # the index lives as long as its id is a key
            return token
        return found[0]  # type: ignore[return-value]


@dataclass(slots=True)
class _Rules:
    """What `Op.element` is given to make the expression of an element of a node."""

    elements: Elements
    node: int
    depths: dict[int, tuple[int, Expr]] = field(default_factory=dict)  # by id() of the expressions that the element is made of

    def operand(self, value: Any) -> Source:
        elements = self.elements
        return Source(elements.values.shape(value), lambda at: self.seen(*elements.value(value, at)))

    def seen(self, expr: Expr, depth: int) -> Expr:
        self.depths[id(expr)] = depth, expr
        return expr

    def depth(self) -> int:
        return max((depth for depth, _ in self.depths.values()), default=0)

    def position(self, index: Any, size: int, wraps: bool = False) -> Position | int:
        if isinstance(index, Literal):
            return index.position
        if isinstance(index, int):
            token = self.elements.checked(self.node, self.elements.parameters.scalar(index, dtypes.int64), 0, size)
        else:
            depth, _ = self.depths.pop(id(index))
            token = self.elements.checked_element(self.node, index, depth, size, wraps)
        return Position(dynamic=((1, token),))

    def bounded(self, p: Position | int, size: int) -> tuple[Expr, Position]:
        elements = self.elements
        value, depth = elements.coordinate(Position((), p) if isinstance(p, int) else p)
        outside, position = bounded(elements.name(value, depth, "i"), elements.parameters.number(size))
        return self.seen(outside, depth), Position(dynamic=((1, Dynamic(elements.name(position, depth, "i"), depth)),))

    def coordinate(self, p: Position | int) -> Expr:
        return self.seen(*self.elements.coordinate(Position((), p) if isinstance(p, int) else p))

    def number(self, operand: Operand, dtype: DType) -> Expr:
        return self.elements.parameters.scalar(operand, dtype)

    def kind(self, operand: Operand) -> type:
        """The Python type of a number."""
        if isinstance(operand, Literal):
            return number_type(operand.value)
        aval = self.elements.values.avals[operand]  # type: ignore[index]
        assert isinstance(aval, ScalarAval)
        return aval.python_type

    def __getattr__(self, name: str) -> Any:
        return getattr(builder, name)
