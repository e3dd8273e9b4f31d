"""Graphs as Python text, and back.

    # cse: 3 -> 2 nodes, 0.1 ms
    from tracejit.ir.prelude import *


    def graph(v0: "float32[64, 784] grad", v1: "float"):
        v2 = mul(v0, v1)  # float32[64, 784] grad  model.py:12
        guard(v3, expected=Literal(True))  #   model.py:13
        commit((v0, v2))
        return (v2, None)

`to_text` prints one line per node; the text runs (on Tensors, through the door) and `parse(to_text(g)).equals(g)`.  Avals of inputs are
annotations; avals of nodes are comments for the reader and follow from the shape rules; sizes that depend on data, `grad` and `stale`
marks and the user's lines are read back from the comments.  This module knows no particular primitive.
"""

from __future__ import annotations

import ast
import math
import re
from typing import Any

import numpy as np

from tracejit.core.array_constant import ArrayConstant
from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.dtypes import ALL, DType, bool_, from_numpy_dtype
from tracejit.core.op import REGISTRY
from tracejit.ir.graph import Body, Graph, Literal, Node, Operand, operand_aval
from tracejit.ir.prelude import DTYPES, array_of, primitive_name

__all__ = ["node_text", "parse", "to_text"]

HEADER = "from tracejit.ir.prelude import *"
SHORT = 32  # constants up to this many elements are printed as numbers


def to_text(graph: Graph) -> str:
    """The graph as a runnable Python module.  Raises TypeError for an attribute that has no text."""
    lines = [f"# {line}" for line in graph.history]
    lines += [HEADER, "", ""]
    parameters = [f'v{v}: "{_aval_text(graph, v)}"' for v in graph.inputs]
    signature = f"def graph({', '.join(parameters)}):"
    if len(signature) > 120:
        lines += ["def graph(", *(f"    {p}," for p in parameters), "):"]
    else:
        lines.append(signature)
    for v, data in graph.constants.items():
        lines.append(f"    v{v} = {_array_text(data)}  # {_aval_text(graph, v)}")
    for node in graph.nodes:
        lines.append("    " + node_text(node, graph))
    if graph.writes:
        lines.append(f"    commit({', '.join(f'(v{target}, v{v})' for target, v in graph.writes)})")
    outputs = ", ".join(map(_operand_text, graph.outputs)) + ("," if len(graph.outputs) == 1 else "")
    lines.append(f"    return ({outputs})")
    return "\n".join(lines) + "\n"


def node_text(node: Node, graph: Graph) -> str:
    """One node of `graph` as one line of Python."""
    arguments = [*map(_operand_text, node.operands), *(f"{name}={_value_text(value)}" for name, value in node.attributes)]
    call = f"{primitive_name(node.op.name)}({', '.join(arguments)})"
    if node.outputs:
        targets = ", ".join(f"v{v}" for v in node.outputs) + ("," if node.op.multiple and len(node.outputs) == 1 else "")
        call = f"{targets} = {call}"
    shapes = ", ".join(_aval_text(graph, v) for v in node.outputs)
    comment = shapes + (f"  {node.line}" if node.line else "")
    return f"{call}  # {comment}" if comment else call


def _aval_text(graph: Graph, v: int) -> str:
    aval = graph.avals.get(v, "unknown")
    return f"{aval}{' grad' if v in graph.requires_grad else ''}{' stale' if v in graph.stale else ''}"


def _operand_text(operand: Operand) -> str:
    if operand is None:
        return "None"
    return _value_text(operand.value) if isinstance(operand, Literal) else f"v{operand}"


def _array_text(data: Any) -> str:
    dtype = from_numpy_dtype(data.dtype)
    exact = data.size <= SHORT and not (dtype.is_floating_point and not np.isfinite(data).all())
    values = repr(data.ravel().tolist()) if exact else repr(np.ascontiguousarray(data).tobytes().hex())
    return f"array({values}, {data.shape!r}, {_dtype_text(dtype)})"


def _dtype_text(dtype: DType) -> str:
    return "bool_" if dtype is bool_ else dtype.name


def _value_text(value: Any) -> str:
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f'float("{value}")'
    if value is None or isinstance(value, bool | int | str):
        return repr(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(_value_text, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, DType):
        return _dtype_text(value)
    if isinstance(value, Literal):
        return f"Literal({_value_text(value.value)})"
    if isinstance(value, Body):
        return f"Body({to_text(value.graph)!r})"
    if isinstance(value, ArrayConstant):
        return f"ArrayConstant({_array_text(value.array).replace('array(', 'array_of(', 1)})"
    raise TypeError(
        f"an attribute of type {type(value).__name__} cannot be printed; attributes are numbers, strings, dtypes and tuples"
    )


_AVAL = re.compile(r"(\w+)(?:\[([\d, ]*)\])?( grad)?( stale)?")
_DTYPES_BY_NAME = {d.name: d for d in ALL}
_SCALARS = {"bool": bool, "int": int, "float": float}


def parse(text: str) -> Graph:
    """The graph printed as `text`.  Raises SyntaxError naming the line for anything that `to_text` does not print."""
    return _Parser(text).graph()


class _Parser:
    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.body = ast.parse(text).body
        self.avals: dict[int, Aval | ScalarAval] = {}
        self.requires_grad: set[int] = set()
        self.stale: set[int] = set()
        self.constants: dict[int, Any] = {}
        self.nodes: list[Node] = []
        self.writes: tuple[tuple[int, int], ...] = ()

    def graph(self) -> Graph:
        functions = [s for s in self.body if isinstance(s, ast.FunctionDef)]
        if len(functions) != 1:
            raise SyntaxError(f"a printed graph is one function, found {len(functions)}")
        (function,) = functions
        history = tuple(line[2:] for line in self.lines[: function.lineno - 1] if line.startswith("# "))
        inputs = tuple(self._parameter(a) for a in function.args.args)
        *statements, last = function.body
        for statement in statements:
            self._statement(statement)
        if not isinstance(last, ast.Return) or not isinstance(last.value, ast.Tuple):
            raise self._error(last, "expected `return (...)` at the end")
        outputs = tuple(map(self._operand, last.value.elts))
        return Graph(
            inputs,
            self.avals,
            tuple(self.nodes),
            outputs,
            self.constants,
            self.writes,
            frozenset(self.requires_grad),
            frozenset(self.stale),
            history,
        )

    def _error(self, node: ast.AST, message: str) -> SyntaxError:
        line = getattr(node, "lineno", 0)
        return SyntaxError(f"line {line}: {message}: {self.lines[line - 1].strip()}")

    def _parameter(self, argument: ast.arg) -> int:
        if not isinstance(argument.annotation, ast.Constant):
            raise self._error(argument, 'expected a parameter such as v0: "float32[2]"')
        v = self._id(argument, argument.arg)
        match = _AVAL.fullmatch(str(argument.annotation.value))
        if match is None:
            raise self._error(argument, f"{argument.annotation.value!r} is no aval")
        name, shape = match.group(1, 2)
        self.avals[v] = ScalarAval(_SCALARS[name]) if shape is None else _aval(name, shape)
        self._marks((v,), match.group())
        return v

    def _id(self, node: ast.AST, name: str) -> int:
        if not re.fullmatch(r"v\d+", name):
            raise self._error(node, f"{name!r} is no value; values are named v0, v1 ...")
        return int(name[1:])

    def _statement(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Assign):
            (target,) = statement.targets
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            outputs = tuple(self._id(n, n.id) for n in names if isinstance(n, ast.Name))
        elif isinstance(statement, ast.Expr):
            outputs = ()
        else:
            raise self._error(statement, "expected one application of a primitive")
        call = statement.value
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise self._error(statement, "expected one application of a primitive")
        name = call.func.id
        if name == "commit":
            self.writes = tuple(map(self._write, call.args))
            return
        shapes, line = self._comment(statement)
        self._marks(outputs, shapes)
        if name == "array":
            (v,) = outputs
            self.constants[v] = data = array_of(*(self._value(a) for a in call.args))
            self.avals[v] = Aval(data.shape, from_numpy_dtype(data.dtype))
            return
        op = REGISTRY.get(name) or REGISTRY.get(name.removesuffix("_"))
        if op is None:
            raise self._error(statement, f"{name!r} is no primitive")
        operands = tuple(map(self._operand, call.args))
        attributes = {k.arg: self._value(k.value) for k in call.keywords if k.arg is not None}
        inferred = op.infer_tuple([operand_aval(x, self.avals) for x in operands], attributes)
        if "dynamic shape" in op.traits:
            inferred = tuple(_aval(name, shape) for name, shape, _, _ in _AVAL.findall(shapes))
        self.avals.update(zip(outputs, inferred, strict=True))
        self.nodes.append(Node(op, operands, tuple(sorted(attributes.items())), outputs, line))

    def _marks(self, values: tuple[int, ...], text: str) -> None:
        """Take the marks behind the avals in `text`."""
        for v, (_, _, grad, stale) in zip(values, _AVAL.findall(text), strict=False):
            if grad:
                self.requires_grad.add(v)
            if stale:
                self.stale.add(v)

    def _comment(self, statement: ast.stmt) -> tuple[str, str]:
        """Avals and the user's line from the comment behind a statement."""
        assert statement.end_lineno is not None
        source = self.lines[statement.end_lineno - 1].encode()
        comment = source[statement.end_col_offset :].decode()
        shapes, _, line = comment.removeprefix("  # ").partition("  ")
        return shapes, line

    def _write(self, pair: ast.expr) -> tuple[int, int]:
        match pair:
            case ast.Tuple(elts=[ast.Name(id=target), ast.Name(id=value)]):
                return self._id(pair, target), self._id(pair, value)
        raise self._error(pair, "expected a pair (input, value)")

    def _operand(self, node: ast.expr) -> Operand:
        if isinstance(node, ast.Name):
            return self._id(node, node.id)
        value = self._value(node)
        return None if value is None else Literal(value)

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Tuple):
            return tuple(map(self._value, node.elts))
        if isinstance(node, ast.List):
            return list(map(self._value, node.elts))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._value(node.operand)
        if isinstance(node, ast.Name) and node.id in DTYPES:
            return DTYPES[node.id]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CONSTRUCTORS:
            return _CONSTRUCTORS[node.func.id](*map(self._value, node.args))
        raise self._error(node, "expected a constant")


_CONSTRUCTORS: dict[str, Any] = {
    "float": float,
    "Literal": Literal,
    "ArrayConstant": ArrayConstant,
    "array_of": array_of,
    "Body": lambda text: Body(parse(text)),
}


def _aval(name: str, shape: str) -> Aval:
    return Aval(_shape(shape), _DTYPES_BY_NAME[name])


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(s) for s in text.split(",") if s.strip())
