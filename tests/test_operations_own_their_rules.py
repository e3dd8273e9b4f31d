"""What the compiler must know of a primitive is declared with it: no table of names elsewhere, and one block is enough for a new one."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tracejit
from tests.graph_programs import f32
from tracejit.core.op import REGISTRY
from tracejit.ir.tracer import trace
from tracejit.loops import evaluate
from tracejit.lowering.lower import lower
from tracejit.passes.pipeline import optimise

ROOT = Path(tracejit.__file__).parent
GRAPHS = ("ir/layouts.py", "ir/verifier.py", "passes", "lowering", "runtime")
LOOPS = ("loops", "math", "llvm")  # these see expressions, whose operations have names that graphs' operations have, too
SHARED_NAMES = {*evaluate.OPERATIONS, "sum", "prod", "any", "all", "argmax", "argmin"}


def sources(parts: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for part in parts:
        for path in sorted((ROOT / part).rglob("*.py")) or [ROOT / part]:
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def is_name_of_an_operation(node: ast.AST) -> bool:
    """`op.name`, `node.op.name` ..."""
    if not (isinstance(node, ast.Attribute) and node.attr == "name"):
        return False
    holder = node.value
    return getattr(holder, "attr", getattr(holder, "id", "")).lower().endswith("op")


FORMULAS = {"passes/attention_formula.py"}
"""What recognises a formula that users write in operations, which have names there."""


def decisions(tree: ast.AST) -> Iterator[ast.AST]:
    """Expressions on which it depends what is done, and those whose value may be kept until then."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare() | ast.Set() | ast.MatchValue():
                yield node
            case ast.Dict():
                yield from (key for key in node.keys if key is not None)
            case ast.Subscript(value=ast.Name(id="REGISTRY")):
                continue
            case ast.Subscript():
                yield node.slice
            case ast.Match():
                yield node.subject
            case ast.Call(func=ast.Attribute(attr="get" | "startswith" | "endswith" | "setdefault" | "pop")):
                yield from node.args
            case ast.Assign(value=value) | ast.AnnAssign(value=value) | ast.NamedExpr(value=value) if value is not None:
                yield from (part for part in ast.walk(value) if is_name_of_an_operation(part) and not in_text(tree, part))
            case ast.FunctionDef():
                yield from (a for d in node.decorator_list if isinstance(d, ast.Call) for a in d.args)


def asked(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of an expression, but not what functions are given that are called in it."""
    yield node
    if not isinstance(node, ast.Call) or ast.unparse(node.func) in ("frozenset", "set", "tuple", "dict.fromkeys"):
        for part in ast.iter_child_nodes(node):
            yield from asked(part)


def in_text(tree: ast.AST, part: ast.AST) -> bool:
    """Whether an expression is part of what people read."""
    for text in ast.walk(tree):
        joined = isinstance(text, ast.Call) and isinstance(text.func, ast.Attribute) and text.func.attr == "join"
        if (joined or isinstance(text, ast.JoinedStr)) and part in ast.walk(text):
            return True
    return False


def offences(name: str, source: str) -> list[str]:
    tree = ast.parse(source)
    looked_up = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and any(isinstance(x, ast.Name) and x.id == "REGISTRY" for x in ast.walk(node.value))
        for target in node.targets
        if isinstance(target, ast.Name)
    } | {"REGISTRY"}
    found = []
    for decision in decisions(tree):
        for part in asked(decision):
            known = isinstance(part, ast.Constant) and part.value in REGISTRY and part.value not in SHARED_NAMES
            primitive = isinstance(part, ast.Name) and part.id in looked_up and isinstance(decision, ast.Compare)
            if known or primitive or is_name_of_an_operation(part):
                found.append(f"{name}:{part.lineno}: decides by the name of an operation: {ast.unparse(decision)}")  # type: ignore[attr-defined]
    return found


def test_the_compiler_decides_nothing_by_the_name_of_an_operation() -> None:
    found = [offence for name, source in sources(GRAPHS) if name not in FORMULAS for offence in offences(name, source)]
    assert not found, "\n".join(found)


def test_the_recorder_asks_no_operation_for_its_name() -> None:
    """Names are words of Python and NumPy there, too; so only the question is looked for."""
    found = []
    for name, source in sources(("capture", "compiled")):
        tree = ast.parse(source)
        asking = {part for d in decisions(tree) for part in asked(d) if is_name_of_an_operation(part) and not in_text(tree, part)}
        found += [f"{name}:{ast.unparse(part)}" for part in asking]
    assert not found, "\n".join(found)


def test_the_loop_language_and_its_renderings_know_no_operations_of_graphs() -> None:
    found = [name for name, source in sources(LOOPS) if "tracejit.core.op" in source or "tracejit.ir" in source]
    assert not found


@pytest.mark.parametrize(
    "source",
    [
        "if node.op.name == 'matmul': pass",
        "x = TABLE[node.op.name]",
        "x = TABLE.get(op.name)",
        "name = node.op.name",
        "match op.name:\n    case 'cat': pass",
        "VIEWS = {'reshape': 1}",
        "VIEWS = frozenset({'reshape', 'permute'})",
        "if name in ('gather', 'index_select'): pass",
        "if node.op is REGISTRY['matmul']: pass",
        "MATMUL = REGISTRY['matmul']\nif node.op is MATMUL: pass",
        "@rule('index_select')\ndef f(): pass",
    ],
)
def test_a_decision_by_name_is_found(source: str) -> None:
    assert offences("a.py", source)


@pytest.mark.parametrize(
    "source",
    [
        "raise ValueError(f'{node.op.name} has no nest')",
        "text = f'{node.op.name}: {line}'",
        "Node(REGISTRY['clone'], (v,), (), (copy,))",
        "if node.op.kind is Kind.VIEW and 'adds' in node.op.traits: pass",
        "if operation == 'div': pass",
    ],
)
def test_what_is_no_decision_by_name_is_left_alone(source: str) -> None:
    assert not offences("a.py", source)


BLOCKS = '''
from typing import Any

import numpy as np

from tracejit.core.aval import Aval
from tracejit.ops.declare import FLOAT, elementwise, reduction, view
from tracejit.ops.elementwise.trigonometry import tanh
from tracejit.ops.movement.views import expand, reshape, scatter_of


@view(
    lambda x, dim: x,
    lambda b, at, x, dim: x[(*at[:dim], x.shape[dim] - 1 - at[dim], *at[dim + 1 :])],
    undone=lambda before, dim: {"dim": dim},
)
def own_reversed(x: Any, dim: int) -> Any:
    """The elements along `dim` from the last to the first."""
    return x[(slice(None),) * dim + (slice(None, None, -1),)]

@own_reversed.simplified
def _(s: Any, x: Any, dim: int) -> Any:
    return x.operands[0] if x.op is own_reversed and x.attributes["dim"] == dim else None

@view(
    lambda x, dim: Aval((*x.shape[:dim], x.shape[dim] // 2, *x.shape[dim + 1 :]), x.dtype),
    lambda b, at, x, dim: x[(*at[:dim], at[dim] * 2 + 1, *at[dim + 1 :])],
)
def own_odd(x: Any, dim: int) -> Any:
    """Every second element along `dim`."""
    return x[(slice(None),) * dim + (slice(1, x.shape[dim] // 2 * 2, 2),)]

own_odd_scatter = scatter_of(own_odd, None)


@reduction("sum", ufunc=np.add.reduce)
def own_total(x: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    """The sum along `dims`."""

@own_total.vjp()
def _(c: Any, g: Any) -> Any:
    shape, dims = c.avals[0].shape, c.attributes["dims"]
    kept = tuple(1 if d in dims else s for d, s in enumerate(shape))
    return expand.of(reshape.of(g, shape=kept), shape=shape)

@elementwise(lambda b, x, cap: cap * b.tanh(x / cap), promotion=FLOAT)
def own_softcap(x: Any, cap: Any) -> Any:
    """cap * tanh(x / cap)."""
    return cap * np.tanh(x / cap)

@own_softcap.vjp(saves="0 1")
def _(c: Any, g: Any) -> Any:
    x, cap = c.inputs
    bent = tanh.of(x / cap)
    return g * (1.0 - bent * bent) if c.needs[0] else None, None
'''


@pytest.fixture
def own() -> Iterator[SimpleNamespace]:
    """Primitives, a block each, of a module that would stand beside the others."""
    before, module = set(REGISTRY), {"__name__": "tracejit.ops.own"}
    exec(compile(BLOCKS, str(ROOT / "ops" / "own.py"), "exec"), module)
    yield SimpleNamespace(**{name.removeprefix("own_"): op for name, op in module.items() if name.startswith("own_")})
    for name in set(REGISTRY) - before:
        del REGISTRY[name]


PROGRAMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a view of an input": lambda own, x, y: own.reversed(x, dim=1) + y,
    "a view in a nest": lambda own, x, y: own.reversed(x * 2.0, dim=0) * y,
    "a view of a view": lambda own, x, y: own.odd(own.reversed(x + y, dim=0).t(), dim=1) * 3.0,
    "a part of an input": lambda own, x, y: own.odd(x, dim=0).exp() + own.odd(y, dim=0),
    "a part of what a nest makes": lambda own, x, y: own.odd(x * y, dim=1).sum(1),
    "a view in a product": lambda own, x, y: own.reversed(x, dim=1) @ own.odd(y, dim=1),
    "a view given back": lambda own, x, y: own.reversed(x, dim=0),
    "a view of a result given back": lambda own, x, y: (z := x * y, own.odd(z, dim=0))[1],
    "a reduction of rows": lambda own, x, y: x / own.total(x * x, dims=(1,), keepdim=True),
    "a reduction of columns": lambda own, x, y: own.total(x * y, dims=(0,), keepdim=False),
    "a reduction of a view": lambda own, x, y: own.total(own.reversed(x, dim=0) * y, dims=(0, 1), keepdim=False),
    "a function": lambda own, x, y: own.softcap(x * y, 0.5) + 1.0,
    "all of them": lambda own, x, y: own.total(
        own.softcap(own.odd(own.reversed(x, dim=1), dim=1), 2.0), dims=(1,), keepdim=False
    ),
}


def tensors(requires_grad: bool) -> list[Any]:
    generator = np.random.default_rng(5)
    return [tracejit.tensor(generator.standard_normal((6, 6)), requires_grad=requires_grad) for _ in range(2)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_new_primitive_is_compiled_from_its_block_alone(name: str, own: SimpleNamespace) -> None:
    def function(x: Any, y: Any) -> Any:
        return PROGRAMS[name](own, x, y)

    compiled = tracejit.compile(function)
    for _ in range(3):
        given, ours = tensors(False), tensors(False)
        np.testing.assert_allclose(compiled(*ours).numpy(), function(*given).numpy(), rtol=1e-14, atol=1e-14)
    assert compiled.stats.compiled_calls >= 1, compiled.explain()


@pytest.mark.parametrize("name", [name for name in PROGRAMS if "given back" not in name])
def test_gradients_of_a_new_primitive_are_compiled_as_well(name: str, own: SimpleNamespace) -> None:
    def function(x: Any, y: Any) -> Any:
        out = PROGRAMS[name](own, x, y)
        return (out * out).sum()

    compiled = tracejit.compile(function)
    for _ in range(3):
        given, ours = tensors(True), tensors(True)
        function(*given).backward()
        compiled(*ours).backward()
        for expected, found in zip(given, ours, strict=True):
            assert (expected.grad is None) == (found.grad is None)
            if expected.grad is not None:
                np.testing.assert_allclose(found.grad.numpy(), expected.grad.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("write", ["reversed", "odd"])
def test_writes_through_a_new_view_reach_what_it_looks_at(write: str, own: SimpleNamespace) -> None:
    def function(x: Any, y: Any) -> Any:
        part = getattr(own, write)(x, dim=0)
        part.mul_(2.0)
        part[0] = y[0]
        return x + y

    compiled = tracejit.compile(function)
    for _ in range(3):
        given, ours = tensors(False), tensors(False)
        np.testing.assert_array_equal(compiled(*ours).numpy(), function(*given).numpy())
        np.testing.assert_array_equal(ours[0].numpy(), given[0].numpy())
    assert compiled.stats.compiled_calls >= 1, compiled.explain()


def test_a_new_view_costs_no_copy_and_its_rule_simplifies(own: SimpleNamespace) -> None:
    graph = optimise(trace(lambda x: own.reversed(own.reversed(x, dim=0) * 2.0, dim=0), (f32(8, 8),)))
    assert len(lower(graph, {}).spec.steps) == 1
    graph = optimise(trace(lambda x: own.reversed(own.reversed(x, dim=0), dim=0) * 2.0, (f32(8, 8),)))
    assert [node.op.name for node in graph.nodes] == ["mul"]
