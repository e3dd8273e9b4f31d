"""Every primitive of the registry, over its own samples: shape rules, gradients to second order, and agreement of all ways to run it.

The columns are the ways to run a graph; "eager" is the door itself.  What is expected is always the primitive's NumPy body.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit
from tracejit.autograd import gradcheck, gradgradcheck
from tracejit.core.aval import UNKNOWN, Aval, ScalarAval
from tracejit.core.dtypes import from_numpy_dtype
from tracejit.core.floating import quietly
from tracejit.core.op import REGISTRY, Effect, Kind, Op, Promotion
from tracejit.ir.builder import GraphBuilder
from tracejit.ir.graph import Graph, Literal
from tracejit.ir.interpreter import interpret
from tracejit.ir.verifier import verify
from tracejit.lowering.special import is_host
from tracejit.passes.expand import expand
from tracejit.passes.functionalise import functionalise
from tracejit.runtime.program import build

UNSAMPLED = {"guard", "while", "loop0_of_paths", "while_of_paths", "collective", "collective_awaited", "collective_begun"}
"""No value, a body, or other processes: see test_interpreter.py and test_program.py, test_control_flow.py, test_branching_loops.py,
test_distributed.py."""
REDEFINED = {"replace_data"}  # its vjp is by definition not its derivative
DIFFERENTIATED = [  # the others have none, or one that raises
    op
    for name, op in sorted(REGISTRY.items())
    if op.vjp_rule is not None and name not in {*UNSAMPLED, *REDEFINED} and "no derivative" not in op.traits
]
OPS = [op for name, op in sorted(REGISTRY.items()) if name not in UNSAMPLED]
Case = tuple[tuple[Any, ...], dict[str, Any]]


def samples(op: Op) -> list[Case]:
    """The samples; in float32 too where operands are promoted."""
    assert op.samples is not None, f"{op.name} has no samples"
    plain = list(op.samples())
    if op.promotion in (Promotion.COMMON, Promotion.FLOAT):
        narrow = [
            (tuple(x.astype(np.float32) if is_floating(x) else x for x in operands), attributes) for operands, attributes in plain
        ]
        plain += [case for case in narrow if any(is_floating(x) for x in case[0])]
    return plain


def is_floating(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind == "f"


def copied(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Operands with memory of their own and the same strides."""
    return tuple(x.copy(order="K") if isinstance(x, np.ndarray) else x for x in operands)


def expected(op: Op, case: Case) -> tuple[Any, ...]:
    operands, attributes = case
    result = quietly(op.evaluate, *copied(operands), **attributes)
    return tuple(np.array(r) for r in (result if op.multiple else (result,)))


def aval_of(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return Aval(x.shape, from_numpy_dtype(x.dtype))
    return x if x is None else ScalarAval(type(x))


def seen_by(op: Op, case: Case) -> list[Aval] | None:
    """The avals of the outputs where no shape rule knows them."""
    return [aval_of(array) for array in expected(op, case)] if "dynamic shape" in op.traits else None


def graph_of(op: Op, cases: list[Case]) -> tuple[Graph, list[Any]]:
    """A verified graph with one node per case, and its inputs."""
    builder = GraphBuilder()
    arrays: list[Any] = []
    outputs: list[int] = []
    for operands, attributes in cases:
        arguments: list[Any] = []
        for x in operands:
            if isinstance(x, np.ndarray):
                arguments.append(builder.input(aval_of(x)))
                arrays.append(x)
            else:
                arguments.append(x if x is None else Literal(x))
        outputs += builder.add(op, tuple(arguments), attributes, "", seen_by(op, (operands, attributes)))
    return verify(builder.build(tuple(outputs))), arrays


def run_eagerly(op: Op, cases: list[Case]) -> list[Any]:
    results: list[Any] = []
    for operands, attributes in cases:
        out = op(*(tracejit.from_numpy(x) if isinstance(x, np.ndarray) else x for x in operands), **attributes)
        results += [np.array(t.numpy()) for t in (out if op.multiple else (out,))]
    return results


def run_interpreted(op: Op, cases: list[Case]) -> list[Any]:
    graph, arrays = graph_of(op, cases)
    return list(map(np.array, interpret(graph, arrays)))


def run_program(backend: str) -> Callable[[Op, list[Case]], list[Any]]:
    def run(op: Op, cases: list[Case]) -> list[Any]:
        graph, arrays = graph_of(op, cases)
        functional = expand(functionalise(graph))
        layouts = {v: tuple(s // a.itemsize for s in a.strides) for v, a in zip(functional.inputs, arrays, strict=True)}
        outputs = build(functional, layouts, backend=backend).run(tuple(arrays), ())
        assert isinstance(outputs, tuple), f"{op.name}: exit {outputs}"
        return list(map(np.array, outputs))

    return run


COLUMNS: dict[str, Callable[[Op, list[Case]], list[Any]]] = {
    "eager": run_eagerly,
    "interpreted": run_interpreted,
    "reference": run_program("reference"),
    "numba": run_program("numba"),
    "compiled": run_program("llvm"),
}


def close(op: Op, actual: Any, wanted: Any) -> None:
    assert actual.dtype == wanted.dtype, f"{op.name}: {actual.dtype}, the NumPy body gives {wanted.dtype}"
    assert actual.shape == wanted.shape, f"{op.name}: {actual.shape}, the NumPy body gives {wanted.shape}"
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(actual, wanted, err_msg=op.name)
        return
    tolerance = 8 * np.finfo(wanted.dtype).eps
    np.testing.assert_allclose(actual, wanted, rtol=tolerance, atol=tolerance, err_msg=op.name)


def names(op: Op) -> str:
    return op.name


@pytest.mark.parametrize("op", OPS, ids=names)
@pytest.mark.parametrize("column", COLUMNS)
def test_every_way_to_run_a_primitive_gives_what_its_body_gives(column: str, op: Op, pytestconfig: pytest.Config) -> None:
    cases = samples(op)
    if column == "numba" and not pytestconfig.getoption("--numba"):
        cases = cases[:1]  # it takes half a second to compile a nest
    given = [(copied(operands), attributes) for operands, attributes in cases]
    actual = COLUMNS[column](op, given)
    wanted = [w for case in cases for w in expected(op, case)]
    assert len(actual) == len(wanted)
    for a, w in zip(actual, wanted, strict=True):
        close(op, a, w)
    if op.effect is not Effect.IN_PLACE:
        for case, after in zip(cases, given, strict=True):
            for x, y in zip(case[0], after[0], strict=True):
                np.testing.assert_array_equal(y, x, err_msg=f"{op.name} changed an operand")


@pytest.mark.parametrize("op", OPS, ids=names)
def test_all_but_opaque_primitives_and_functions_without_a_lowering_run_in_nests(op: Op) -> None:
    """So the columns "reference" and "compiled" compare the renderings of all of them."""
    on_host = []
    for case in samples(op):
        graph = expand(functionalise(graph_of(op, [case])[0]))
        on_host += [is_host(graph.avals, node) for node in graph.nodes]
    if op.kind is Kind.ORDER:
        assert not all(on_host)
        return
    without_nest = op.kind is Kind.OPAQUE or (op.kind is Kind.ELEMENTWISE and op.lowering is None)
    assert all(on_host) == without_nest


HOST_FUNCTIONS = """
    airy_ai chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w exponent gcd
    hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l lcm legendre_polynomial_p nextafter polygamma
    shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v
    shifted_chebyshev_polynomial_w spherical_bessel_j0 zeta
"""


def test_the_elementwise_primitives_that_are_left_to_the_host_are_these() -> None:
    """One without its lowering is still right, by NumPy, and slow."""
    assert [op.name for op in OPS if op.kind is Kind.ELEMENTWISE and op.lowering is None] == HOST_FUNCTIONS.split()


class Element:
    """An array whose elements are read at coordinates; whatever they are along dimensions of one element, there they are 0."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        self.shape = array.shape

    def __getitem__(self, at: Any) -> Any:
        return self.array[tuple([0 if s == 1 else p for p, s in zip(at, self.shape, strict=True)])]


class Numbers:
    """What a rule for elements is given to compute them from NumPy's numbers, one at a time."""

    divmod, eq, kind = staticmethod(divmod), staticmethod(np.equal), staticmethod(type)

    def position(self, index: Any, size: int, wraps: bool = False) -> int:
        index = int(index)
        assert (-size if wraps else 0) <= index < size
        return index % size

    def bounded(self, p: int, size: int) -> tuple[bool, int]:
        return not 0 <= p < size, min(max(p, 0), size - 1)

    def coordinate(self, p: int) -> np.int64:
        return np.int64(p)

    def number(self, value: Any, dtype: Any) -> Any:
        return dtype.numpy.type(value)

    def cast(self, x: Any, dtype: Any) -> Any:
        return x.astype(dtype.numpy)

    def select(self, condition: Any, x: Any, y: Any) -> Any:
        return x if condition else y


@pytest.mark.parametrize("op", [op for op in OPS if op.element is not None], ids=names)
def test_each_element_is_the_one_that_the_rule_names(op: Op) -> None:
    assert op.element is not None
    checked = 0
    for case in samples(op):
        operands, attributes = case
        if op.where is not None and not op.where(*map(aval_of, operands), **attributes):
            continue
        given = [Element(x) if isinstance(x, np.ndarray) else x for x in operands]
        (wanted,) = expected(op, case)
        found = np.empty_like(wanted)
        for at in np.ndindex(wanted.shape):
            found[at] = op.element(Numbers(), at, *given, **attributes)
        np.testing.assert_array_equal(found, wanted)
        checked += 1
    assert checked


@pytest.mark.parametrize("op", [op for op in OPS if op.undone is not None], ids=names)
def test_a_view_that_is_all_of_its_operand_is_undone_by_the_same_view(op: Op) -> None:
    assert op.undone is not None
    for case in samples(op):
        operands, attributes = case
        back = op.undone(operands[0].shape, **attributes)
        if back is not None:
            np.testing.assert_array_equal(op.evaluate(*expected(op, case), **back), operands[0])


@pytest.mark.parametrize("op", [op for op in OPS if op.region is not None], ids=names)
def test_what_a_scatter_put_somewhere_is_what_its_region_reads(op: Op) -> None:
    region = op.region
    assert region is not None
    for operands, attributes in samples(op):
        others = [x for k, x in enumerate(operands) if k not in (0, op.source)]
        own = {key: value for key, value in attributes.items() if key != "accumulate"}
        zeros, position = np.zeros_like(operands[0]), np.zeros_like(operands[0])
        shape = region.evaluate(position, *others, **own).shape
        source = np.ones_like(operands[op.source])
        ordered: list[Any] = [zeros, *others]
        ordered.insert(op.source, source)
        put = op.evaluate(*ordered, **attributes)
        assert (region.evaluate(put, *others, **own) != 0).all()
        assert np.count_nonzero(put) <= np.prod(shape, dtype=int)


@pytest.mark.parametrize("op", [op for op in OPS if op.kind is Kind.OPAQUE], ids=names)
@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_an_opaque_primitive_that_raises_on_some_data_says_so(op: Op, value: float) -> None:
    """Else a program would drop it where nothing reads its result, and its error with it."""
    for operands, attributes in op.samples():  # type: ignore[misc]
        given = [np.full_like(x, value) if is_floating(x) else x for x in operands]
        try:
            quietly(op.evaluate, *given, **attributes)
        except Exception:
            assert op.may_exit


@pytest.mark.parametrize("op", OPS, ids=names)
def test_the_shape_rule_says_what_evaluation_gives(op: Op) -> None:
    for case in samples(op):
        operands, attributes = case
        avals = op.infer_tuple([aval_of(x) for x in operands], attributes)
        for aval, array in zip(avals, expected(op, case), strict=True):
            assert aval.allows(aval_of(array)), op.name
            assert UNKNOWN not in aval.shape or "dynamic shape" in op.traits


@pytest.mark.parametrize("op", OPS, ids=names)
def test_a_primitive_is_differentiable_or_says_that_it_is_not(op: Op) -> None:
    floating = any(array.dtype.kind == "f" for case in samples(op) for array in expected(op, case))
    if floating and op.vjp_rule is None:
        assert "not differentiable" in op.traits
    if "not differentiable" in op.traits:
        assert op.vjp_rule is None


def differentiable_function(op: Op, case: Case) -> tuple[Callable[..., Any], list[Any]]:
    """The primitive as a function of its floating-point tensors, made free of choices that differentiation cannot see."""
    operands, attributes = case
    tensors = [tracejit.from_numpy(x).requires_grad_() for x in copied(operands) if is_floating(x)]

    def function(*given: Any) -> Any:
        values = iter(given)
        arguments = [
            next(values) if is_floating(x) else tracejit.from_numpy(x) if isinstance(x, np.ndarray) else x for x in operands
        ]
        if "symmetric" in op.traits:
            arguments[0] = (arguments[0] + arguments[0].mT) * 0.5
        if op.effect is Effect.IN_PLACE:
            arguments[0] = arguments[0].clone()
        out = op(*arguments, **attributes)
        return tuple(y * y for y in out) if "gauge" in op.traits else out  # factors are unique up to signs

    return function, tensors


@pytest.mark.parametrize("op", DIFFERENTIATED, ids=names)
def test_first_and_second_derivatives_agree_with_differences(op: Op) -> None:
    checked = 0
    for case in op.samples():  # type: ignore[misc]
        function, tensors = differentiable_function(op, case)
        outputs = as_tuple(function(*tensors))
        if tensors and any(
            y.requires_grad and y.dtype is tracejit.float64 for y in outputs
        ):  # float32 is too coarse for differences
            assert gradcheck(function, tensors)
            assert gradgradcheck(function, tensors, atol=1e-4)
            checked += 1
    assert checked or op.kind is Kind.CREATION, f"no sample of {op.name} has a gradient"


@pytest.mark.parametrize("op", DIFFERENTIATED, ids=names)
def test_an_operand_gets_the_same_gradient_when_the_others_want_none(op: Op) -> None:
    """What the others would have saved is not there then."""
    for case in op.samples():  # type: ignore[misc]
        function, tensors = differentiable_function(op, case)

        def gradients(wanting: list[int], tensors: list[Any] = tensors, function: Any = function) -> list[Any]:
            given = [x.detach().clone().requires_grad_(i in wanting) for i, x in enumerate(tensors)]
            total = sum((y * (k + 0.5)).sum() for k, y in enumerate(as_tuple(function(*given))) if y.requires_grad)
            if isinstance(total, tracejit.Tensor):
                total.backward()
            return [x.grad for x in given]

        for i, expected in enumerate(gradients([*range(len(tensors))]) if len(tensors) > 1 else []):
            alone = gradients([i])[i]
            assert (alone is None) == (expected is None)
            if expected is not None:
                np.testing.assert_allclose(alone.numpy(), expected.numpy(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    "op",
    [
        op
        for op in DIFFERENTIATED
        if op.kind is Kind.ELEMENTWISE and op.promotion is not Promotion.NONE and sum(map(is_floating, samples(op)[0][0])) > 1
    ],
    ids=names,
)
@pytest.mark.parametrize("backend", ["interpret", "llvm"])
def test_gradients_beside_a_number_are_the_same_compiled(backend: str, op: Op) -> None:
    """A number has no dtype, so what a rule computes of numbers alone would have NumPy's."""
    operands, attributes = samples(op)[0]
    none = np.zeros(4 if "merges paths" in op.traits else 0)  # its rule gives zeros where backward graphs have no gradient
    arrays = [i for i, x in enumerate(operands) if is_floating(x)]
    for kept in arrays:
        written = [
            "x" if i == kept else repr(x.flat[0].item()) if i in arrays else f"given[{i}]" for i, x in enumerate(operands)
        ]  # literals: other numbers might be inputs of the program
        given = [tracejit.from_numpy(x) if isinstance(x, np.ndarray) else x for x in operands]
        text = f"def function(x):\n    return op.of({', '.join(written)}, **attributes)\n"
        names = {"op": op, "given": given, "attributes": attributes}
        exec(text, names)
        function = names["function"]
        compiled = tracejit.compile(function, source=text, backend=backend)
        for call in range(3):
            found = []
            for called in (function, compiled):
                x = tracejit.from_numpy(operands[kept].copy()).requires_grad_()
                y = called(x)
                if y.requires_grad:
                    y.sum().backward()
                found.append((y.detach().numpy(), x.grad.numpy() if x.grad is not None else none))
            for ours, wanted in zip(found[1], found[0], strict=True):
                assert ours.dtype == wanted.dtype
                np.testing.assert_allclose(
                    ours, wanted, rtol=1e-12, atol=1e-14, err_msg=f"{op.name}, operand {kept}, call {call}"
                )
        assert compiled.stats.compiled_calls == 2, compiled.explain()


def as_tuple(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


def test_a_wrong_gradient_is_noticed() -> None:
    x = tracejit.tensor([0.3, 0.7], dtype=tracejit.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match="differs from finite differences"):
        gradcheck(lambda t: t.detach() * t, (x,))
    assert not gradcheck(lambda t: t.detach() * t, (x,), raise_exception=False)
