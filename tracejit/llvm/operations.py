"""LLVM emission of scalar operations: one Apply node as text, on single values or on vectors of lanes.

IR is written as text because a compiler's first cost is its own front end: appending a line is several times cheaper than
building instruction objects that are printed and parsed again.  `Code` holds the lines of one function, fresh names, and the external
symbols it needs; `apply` emits one operation.  Meaning: `loops/evaluate.py`, operation by operation.  No fast-math flag, no
nsw/nuw on data, no poison that could reach a result.

Truth values are i1 (i8 in memory, which nests.py converts).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.core.interrupts import is_foreign
from tracejit.llvm.reduced_dtypes import narrow, reduced_constant, widen
from tracejit.loops.expressions import Apply, Const, Expr, Var, topological
from tracejit.math import libm
from tracejit.math.functions import complete, expand
from tracejit.native.text import FunctionText

__all__ = ["Code", "apply", "constant", "evaluated", "lane_type", "splat_constant", "value_type"]

_SCALAR_TYPES: Final = {
    dtypes.bool_: "i1",
    dtypes.uint8: "i8",
    dtypes.int8: "i8",
    dtypes.int16: "i16",
    dtypes.int32: "i32",
    dtypes.int64: "i64",
    dtypes.float16: "i16",  # bits, see reduced_dtypes.py: computed with is float32
    dtypes.bfloat16: "i16",
    dtypes.float32: "float",
    dtypes.float64: "double",
}
_SUFFIXES: Final = {
    "i1": "i1",
    "i8": "i8",
    "i16": "i16",
    "i32": "i32",
    "i64": "i64",
    "float": "f32",
    "double": "f64",
    "ptr": "p0",
}


def lane_type(dtype: DType) -> str:
    """The type of one value in a register."""
    return _SCALAR_TYPES[dtype]


def vector(element: str, lanes: int) -> str:
    return element if lanes == 1 else f"<{lanes} x {element}>"


def value_type(dtype: DType, lanes: int) -> str:
    return vector(_SCALAR_TYPES[dtype], lanes)


def suffix(element: str, lanes: int) -> str:
    """How intrinsic names spell a type."""
    return _SUFFIXES[element] if lanes == 1 else f"v{lanes}{_SUFFIXES[element]}"


def constant(value: Any, dtype: DType) -> str:
    """A constant of one lane."""
    if dtype is dtypes.bool_:
        return "true" if value else "false"
    if dtype.is_reduced:
        return reduced_constant(value, dtype)
    if dtype.is_floating_point:
        number = float(value)
        if math.isnan(number):
            return "0x7FF8000000000000"
        return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"
    return str(int(value))


def splat_constant(text: str, element: str, lanes: int) -> str:
    return text if lanes == 1 else f"splat ({element} {text})"


@dataclass(slots=True)
class Code(FunctionText):
    """The text of one function that computes.

    `libm` holds (function, dtype, arity) of the C functions among its declarations.  `scales`: as `Target.scales`."""

    libm: set[tuple[str, DType, int]] = field(default_factory=set)
    scales: bool = False

    def intrinsic(self, name: str, element: str, lanes: int, *values: str) -> str:
        """An intrinsic whose operands and result have one type."""
        kind = vector(element, lanes)
        return self.call(f"llvm.{name}.{suffix(element, lanes)}", kind, *((kind, v) for v in values))

    def libm_call(self, name: str, dtype: DType, lanes: int, *values: str) -> str:
        """A C function, lane by lane."""
        element = _SCALAR_TYPES[dtype]
        symbol = libm_symbol(name, dtype)
        self.libm.add((name, dtype, len(values)))
        further = [("i32", str(n)) for n in libm.further_arguments(name)]
        if lanes == 1:
            return self.call(symbol, element, *((element, v) for v in values), *further)
        kind = vector(element, lanes)
        result = "poison"
        for lane in range(lanes):
            arguments = [(element, self.op(f"extractelement {kind} {v}, i32 {lane}")) for v in values]
            one = self.call(symbol, element, *arguments, *further)
            result = self.op(f"insertelement {kind} {result}, {element} {one}, i32 {lane}")
        return result


def libm_symbol(name: str, dtype: DType) -> str:
    """The symbol under which the driver makes a C function known to the linker."""
    return f"tracejit_libm_{name}{'f' if dtype is dtypes.float32 else ''}"


# --- tables

_FLOAT_BINARY: Final = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "fmod": "frem"}
_INTEGER_BINARY: Final = {"add": "add", "sub": "sub", "mul": "mul", "bit_and": "and", "bit_or": "or", "bit_xor": "xor"}
_BOOL_BINARY: Final = {
    "add": "or",
    "mul": "and",
    "bit_and": "and",
    "bit_or": "or",
    "bit_xor": "xor",
    "maximum": "or",
    "minimum": "and",
}
_FLOAT_COMPARE: Final = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_INTEGER_COMPARE: Final = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
_FLOAT_UNARY: Final = {"abs": "fabs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "rint"}


@dataclass(frozen=True, slots=True)
class _Site:
    """One emission: where to, the operands' dtype and type, the number of lanes."""

    code: Code
    dtype: DType
    lanes: int
    element: str
    kind: str

    def const(self, value: Any) -> str:
        return splat_constant(constant(value, self.dtype), self.element, self.lanes)

    def op(self, text: str) -> str:
        return self.code.op(text)

    def flag(self) -> str:
        return vector("i1", self.lanes)

    def select(self, condition: str, x: str, y: str) -> str:
        return self.op(f"select {self.flag()} {condition}, {self.kind} {x}, {self.kind} {y}")

    def compare(self, operation: str, x: str, y: str) -> str:
        if self.dtype.is_floating_point:
            return self.op(f"fcmp {_FLOAT_COMPARE[operation]} {self.kind} {x}, {y}")
        predicate = _INTEGER_COMPARE[operation]
        if operation not in ("eq", "ne"):
            predicate = ("s" if self.dtype.is_signed else "u") + predicate
        return self.op(f"icmp {predicate} {self.kind} {x}, {y}")

    def unordered(self, x: str) -> str:
        return self.op(f"fcmp uno {self.kind} {x}, {x}")

    def any(self, x: str, y: str) -> str:
        return self.op(f"or {self.flag()} {x}, {y}")

    def both(self, x: str, y: str) -> str:
        return self.op(f"and {self.flag()} {x}, {y}")


def _site(code: Code, dtype: DType, lanes: int) -> _Site:
    element = _SCALAR_TYPES[dtype]
    return _Site(code, dtype, lanes, element, vector(element, lanes))


def _constant_operand(text: str) -> int | None:
    """The integer that an operand's text is, where it is a constant."""
    body = text[text.index(" ") + 1 :].split(" ", 1)[1][:-1] if text.startswith("splat (") else text
    try:
        return int(body)
    except ValueError as error:
        if is_foreign(error):
            raise
        return None


def _cast(code: Code, source: DType, target: DType, lanes: int, x: str) -> str:
    if source.is_reduced:
        x, source = widen(code, source, lanes, x), dtypes.float32
    if target.is_reduced:
        return narrow(code, target, lanes, _cast(code, source, dtypes.float32, lanes, x))
    if source is target:
        return x
    s = _site(code, source, lanes)
    to = value_type(target, lanes)
    if target is dtypes.bool_:
        return (
            s.op(f"fcmp une {s.kind} {x}, {s.const(0)}")
            if source.is_floating_point
            else s.op(f"icmp ne {s.kind} {x}, {s.const(0)}")
        )
    if source.is_floating_point and target.is_floating_point:
        return s.op(f"{'fpext' if target.itemsize > source.itemsize else 'fptrunc'} {s.kind} {x} to {to}")
    if target.is_floating_point:
        return s.op(f"{'sitofp' if source.is_signed else 'uitofp'} {s.kind} {x} to {to}")
    if source.is_floating_point:
        wide = dtypes.int64 if target is dtypes.int64 else dtypes.int32
        limit = 2.0 ** (8 * wide.itemsize - 1)
        # The least integer is exact in both formats; what truncates to it from below -limit is not, and gives the same integer.
        inside = s.both(s.compare("ge", x, s.const(-limit)), s.compare("lt", x, s.const(limit)))
        w = _site(code, wide, lanes)
        converted = w.select(inside, s.op(f"fptosi {s.kind} {x} to {w.kind}"), w.const(-int(limit)))
        return converted if target.itemsize == wide.itemsize else s.op(f"trunc {w.kind} {converted} to {to}")
    if target.itemsize == source.itemsize and source is not dtypes.bool_:
        return x
    if target.itemsize < source.itemsize:
        return s.op(f"trunc {s.kind} {x} to {to}")
    return s.op(f"{'sext' if source.is_signed else 'zext'} {s.kind} {x} to {to}")


def _shift(s: _Site, operation: str, x: str, y: str) -> str:
    instruction = "shl" if operation == "shl" else "ashr" if s.dtype.is_signed else "lshr"
    width = 8 * s.dtype.itemsize
    amount = _constant_operand(y)
    if amount is not None and 0 <= amount < width:
        return s.op(f"{instruction} {s.kind} {x}, {y}")
    inside = s.op(f"icmp ult {s.kind} {y}, {s.const(width)}")
    safe = s.select(inside, y, s.const(0))
    outside = s.op(f"ashr {s.kind} {x}, {s.const(width - 1)}") if instruction == "ashr" else s.const(0)
    return s.select(inside, s.op(f"{instruction} {s.kind} {x}, {safe}"), outside)


def _integer_division(s: _Site, operation: str, x: str, y: str) -> str:
    """floor_divide, remainder, fmod; the divisors that trap are replaced by 1 and their results selected."""
    divisor = _constant_operand(y)
    safe, zero = y, None
    if divisor is None or divisor in (0, -1):
        zero = s.compare("eq", y, s.const(0))
        trap = zero
        if s.dtype.is_signed:
            least = -(1 << (8 * s.dtype.itemsize - 1))
            trap = s.any(zero, s.both(s.compare("eq", x, s.const(least)), s.compare("eq", y, s.const(-1))))
        safe = s.select(trap, s.const(1), y)
    prefix = "s" if s.dtype.is_signed else "u"
    rest = s.op(f"{prefix}rem {s.kind} {x}, {safe}")
    result = rest
    if s.dtype.is_signed and operation != "fmod":
        differs = s.compare("lt", s.op(f"xor {s.kind} {rest}, {safe}"), s.const(0))
        adjust = s.both(s.compare("ne", rest, s.const(0)), differs)
        if operation == "remainder":
            result = s.op(f"add {s.kind} {rest}, {s.select(adjust, safe, s.const(0))}")
        else:
            quotient = s.op(f"sdiv {s.kind} {x}, {safe}")
            result = s.op(f"sub {s.kind} {quotient}, {s.select(adjust, s.const(1), s.const(0))}")
    elif operation == "floor_divide":
        result = s.op(f"udiv {s.kind} {x}, {safe}")
    return result if zero is None else s.select(zero, s.const(0), result)


def _float_division(s: _Site, operation: str, x: str, y: str) -> str:
    """floor_divide and remainder as NumPy's npy_divmod computes them (numpy/_core/src/npymath/npy_math_internal.h.src)."""

    def copysign(a: str, b: str) -> str:
        return s.code.intrinsic("copysign", s.element, s.lanes, a, b)

    zero = s.const(0.0)
    rest = s.op(f"frem {s.kind} {x}, {y}")
    by_zero = s.compare("eq", y, zero)
    exact = s.compare("eq", rest, zero)
    signs_differ = s.op(f"xor {s.flag()} {s.compare('lt', y, zero)}, {s.compare('lt', rest, zero)}")
    # fcmp une: NaN counts as a remainder
    adjust = s.both(s.op(f"fcmp une {s.kind} {rest}, {zero}"), signs_differ)
    if operation == "remainder":
        moved = s.select(adjust, s.op(f"fadd {s.kind} {rest}, {y}"), rest)
        return s.select(by_zero, rest, s.select(exact, copysign(zero, y), moved))
    plain = s.op(f"fdiv {s.kind} {x}, {y}")
    quotient = s.op(f"fdiv {s.kind} {s.op(f'fsub {s.kind} {x}, {rest}')}, {y}")
    quotient = s.select(adjust, s.op(f"fsub {s.kind} {quotient}, {s.const(1.0)}"), quotient)
    floor = s.code.intrinsic("floor", s.element, s.lanes, quotient)
    behind = s.compare("gt", s.op(f"fsub {s.kind} {quotient}, {floor}"), s.const(0.5))
    floor = s.select(behind, s.op(f"fadd {s.kind} {floor}, {s.const(1.0)}"), floor)
    floor = s.select(s.compare("eq", quotient, zero), copysign(zero, plain), floor)
    return s.select(by_zero, plain, floor)


def _extremum(s: _Site, operation: str, x: str, y: str) -> str:
    chosen = s.select(s.compare("gt" if operation == "maximum" else "lt", x, y), x, y)
    return s.select(s.unordered(x), x, chosen) if s.dtype.is_floating_point else chosen


def _integer_power(s: _Site, x: str, y: str) -> str:
    """Square and multiply over all bits of the exponent, without branches."""
    one, zero = s.const(1), s.const(0)
    result, base, exponent = one, x, y
    width = 8 * s.dtype.itemsize
    for bit in range(width):
        odd = s.compare("ne", s.op(f"and {s.kind} {exponent}, {one}"), zero)
        result = s.select(odd, s.op(f"mul {s.kind} {result}, {base}"), result)
        if bit + 1 < width:
            base = s.op(f"mul {s.kind} {base}, {base}")
            exponent = s.op(f"lshr {s.kind} {exponent}, {one}")
    if not s.dtype.is_signed:
        return result
    unit = s.any(s.compare("eq", x, one), s.compare("eq", x, s.const(-1)))
    odd = s.compare("ne", s.op(f"and {s.kind} {y}, {one}"), zero)
    of_unit = s.select(odd, x, s.op(f"mul {s.kind} {x}, {x}"))
    return s.select(s.compare("lt", y, zero), s.select(unit, of_unit, zero), result)


def _where(s: _Site, condition: str, usual: str, rare: Callable[[], str]) -> str:
    """What `rare` emits where the condition holds, in a block of its own that is entered only if it does in some lane."""
    code = s.code
    some = condition
    if s.lanes > 1:
        some = code.call(f"llvm.vector.reduce.or.v{s.lanes}i1", "i1", (s.flag(), condition))
    slow, join = code.label("slow"), code.label("join")
    before = code.block
    code.lines.append(f"br i1 {some}, label %{slow}, label %{join}")
    code.begin(slow)
    exact = s.select(condition, rare(), usual)
    code.lines.append(f"br label %{join}")
    code.begin(join)
    return code.op(f"phi {s.kind} [ {usual}, %{before} ], [ {exact}, %{slow} ]")


def _complete(code: Code, name: str, dtype: DType, lanes: int, *x: str) -> str:
    """The complete definition of an elementary function."""
    parameters = tuple(Var("", dtype) for _ in x)
    return evaluated(code, complete(name, *parameters), lanes, dict(zip(parameters, x, strict=True)))


def evaluated(code: Code, root: Expr, lanes: int, leaves: Mapping[Var, str]) -> str:
    """Emit an expression of values that all have `lanes` lanes and are emitted already; what it computes stays where it stands."""
    texts = {id(leaf): text for leaf, text in leaves.items()}
    for e in topological([root]):
        if isinstance(e, Const):
            texts[id(e)] = splat_constant(constant(e.value, e.dtype), lane_type(e.dtype), lanes)
        elif isinstance(e, Apply):
            operands = [texts[id(o)] for o in e.operands]
            parameters = tuple(Var("", o.dtype) for o in e.operands)
            elementary = expand(replace(e, operands=parameters))
            if elementary is None:
                texts[id(e)] = apply(code, e.operation, e.attribute, e.operands[-1].dtype, e.dtype, lanes, *operands)
            else:
                texts[id(e)] = evaluated(code, elementary, lanes, dict(zip(parameters, operands, strict=True)))
    return texts[id(root)]


def _ldexp(s: _Site, x: str, k: str) -> str:
    """x * 2**k: an instruction, or two products.  The first of these is exact because x is near 1 and half of k is a normal exponent."""
    width = 8 * s.dtype.itemsize
    if s.code.scales and s.lanes > 1:
        name = f"llvm.ldexp.{suffix(s.element, s.lanes)}.{suffix(f'i{width}', s.lanes)}"
        return s.code.call(name, s.kind, (s.kind, x), (vector(f"i{width}", s.lanes), k))
    whole = _site(s.code, {4: dtypes.int32, 8: dtypes.int64}[s.dtype.itemsize], s.lanes)
    mantissa, bias = (23, 127) if width == 32 else (52, 1023)
    half = s.op(f"ashr {whole.kind} {k}, {whole.const(1)}")
    for part in (half, s.op(f"sub {whole.kind} {k}, {half}")):
        exponent = s.op(f"add {whole.kind} {part}, {whole.const(bias)}")
        bits = s.op(f"shl {whole.kind} {exponent}, {whole.const(mantissa)}")
        x = s.op(f"fmul {s.kind} {x}, {s.op(f'bitcast {whole.kind} {bits} to {s.kind}')}")
    return x


def _abs(s: _Site, x: str) -> str:
    if s.dtype.is_floating_point:
        return s.code.intrinsic("fabs", s.element, s.lanes, x)
    return s.code.call(f"llvm.abs.{suffix(s.element, s.lanes)}", s.kind, (s.kind, x), ("i1", "false"))


def _neg(s: _Site, x: str) -> str:
    return s.op(f"fneg {s.kind} {x}") if s.dtype.is_floating_point else s.op(f"sub {s.kind} {s.const(0)}, {x}")


def _isinf(s: _Site, x: str) -> str:
    return s.compare("eq", _abs(s, x), s.const(float("inf")))


def _signbit(s: _Site, x: str) -> str:
    bits = vector(f"i{8 * s.dtype.itemsize}", s.lanes)
    return s.op(
        f"icmp slt {bits} {s.op(f'bitcast {s.kind} {x} to {bits}')}, {splat_constant('0', f'i{8 * s.dtype.itemsize}', s.lanes)}"
    )


def _bit_not(s: _Site, x: str) -> str:
    return s.op(f"xor {s.kind} {x}, {splat_constant('true' if s.element == 'i1' else '-1', s.element, s.lanes)}")


_SPECIAL: Final[dict[str, Callable[..., str]]] = {
    "abs": _abs,
    "neg": _neg,
    "isnan": lambda s, x: s.unordered(x),
    "isinf": _isinf,
    "signbit": _signbit,
    "bit_not": _bit_not,
    "fma": lambda s, x, y, z: s.code.intrinsic("fma", s.element, s.lanes, x, y, z),
    "copysign": lambda s, x, y: s.code.intrinsic("copysign", s.element, s.lanes, x, y),
}


def apply(code: Code, operation: str, attribute: str | None, operand_dtype: DType, result: DType, lanes: int, *x: str) -> str:
    """Emit one operation on operands that all have `lanes` lanes; returns the name of the result.

    `operand_dtype` is the dtype of the last operand (select and the like have a condition before, ldexp an exponent).  Elementary
    functions of floats must have been expanded."""
    s = _site(code, operand_dtype, lanes)
    floating = operand_dtype.is_floating_point
    if operation in _SPECIAL:
        return _SPECIAL[operation](s, *x)
    if operation == "cast":
        return _cast(code, operand_dtype, result, lanes, x[0])
    if operation == "bitcast":
        target = value_type(result, lanes)
        return x[0] if target == s.kind else s.op(f"bitcast {s.kind} {x[0]} to {target}")
    if operation == "select":
        return s.select(*x)
    if operation == "ldexp":
        return _ldexp(_site(code, result, lanes), *x)
    if operation == "libm":
        return code.libm_call(attribute or "", operand_dtype, lanes, *x)
    if operation == "libm_where":
        condition, argument, usual = x
        return _where(s, condition, usual, lambda: code.libm_call(attribute or "", operand_dtype, lanes, argument))
    if operation == "elementary_where":
        condition, *arguments, usual = x
        return _where(s, condition, usual, lambda: _complete(code, attribute or "", operand_dtype, lanes, *arguments))
    if operation == "div_where":
        condition, dividend, divisor, usual = x
        return _where(s, condition, usual, lambda: s.op(f"fdiv {s.kind} {dividend}, {divisor}"))
    if operation in _FLOAT_COMPARE:
        return s.compare(operation, *x)
    if operand_dtype is dtypes.bool_:
        return s.op(f"{_BOOL_BINARY[operation]} {s.kind} {x[0]}, {x[1]}")
    if floating and operation in _FLOAT_UNARY:
        return code.intrinsic(_FLOAT_UNARY[operation], s.element, lanes, *x)
    if operation in ("maximum", "minimum"):
        return _extremum(s, operation, *x)
    if operation == "unsigned_minimum":
        return code.intrinsic("umin", s.element, lanes, *x)
    if operation in ("floor_divide", "remainder") or (operation == "fmod" and not floating):
        return _float_division(s, operation, *x) if floating else _integer_division(s, operation, *x)
    if operation in ("shl", "shr"):
        return _shift(s, operation, *x)
    if operation == "pow":
        return _integer_power(s, *x)
    return s.op(f"{(_FLOAT_BINARY if floating else _INTEGER_BINARY)[operation]} {s.kind} {x[0]}, {x[1]}")
