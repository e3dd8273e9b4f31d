"""No kernel reads or writes outside its arrays, whatever an index holds and whoever writes to it meanwhile."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tests.graph_programs import f32, i64, op
from tracejit.config import override
from tracejit.core import dtypes
from tracejit.core.aval import Aval, ScalarAval
from tracejit.core.op import REGISTRY
from tracejit.ir.graph import Graph
from tracejit.ir.tracer import trace
from tracejit.loops.bounds import ReachError, bounded, check_reach, reaching_back
from tracejit.loops.evaluate import evaluate
from tracejit.loops.expressions import AxisValue, Expr, Load, SizeValue, Var, builder
from tracejit.loops.language import Axis, Buffer, Exit, For, Index, Let, Nest, Reduce, Size, Store
from tracejit.lowering import elements, special
from tracejit.runtime.program import BACKENDS, Program, build

ROWS, COLUMNS = 6, 4


def u8(*shape: int) -> Aval:
    return Aval(shape, dtypes.uint8)


def sum_of_columns(x: Any, i: Any) -> Any:
    return op("sum", op("index", x, i, dims=(1,)), dims=(1,), keepdim=False)


def in_two_phases(x: Any, i: Any) -> Any:
    y = op("index", x, i, dims=(0,))
    return op("exp", y - op("amax", y, dims=(0,), keepdim=True))


# Every way to read a position from memory: the function, the shapes of what it is given.
POSITIONS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "gather": (lambda x, i: op("gather", x, i, dim=0), [f32(ROWS), i64(40)]),
    "gather along rows": (lambda x, i: op("gather", x, i, dim=1), [f32(ROWS, COLUMNS), i64(ROWS, 7)]),
    "gather of narrow positions": (lambda x, i: op("gather", x, i, dim=0), [f32(ROWS), u8(40)]),
    "gather at positions that are computed": (lambda x, i: op("gather", x, i * 2 + 1, dim=0), [f32(ROWS), i64(40)]),
    "index_select": (lambda x, i: op("index_select", x, i, dim=0), [f32(ROWS, COLUMNS), i64(40)]),
    "index_select of columns": (lambda x, i: op("index_select", x, i, dim=1), [f32(ROWS, COLUMNS), i64(40)]),
    "index": (lambda x, i: op("index", x, i, dims=(0,)), [f32(ROWS, COLUMNS), i64(40)]),
    "index of two": (lambda x, i, j: op("index", x, i, j, dims=(0, 1)), [f32(ROWS, COLUMNS), i64(40), i64(1)]),
    "index with a reduction": (sum_of_columns, [f32(ROWS, COLUMNS), i64(40)]),
    "index read in two phases": (in_two_phases, [f32(ROWS), i64(40)]),
    "class picks": (lambda x, i: op("sum", op("gather", x, i, dim=1), dims=(0, 1), keepdim=False), [f32(ROWS, COLUMNS), i64(ROWS, 1)]),
    "one hot": (lambda x, i, g: op("scatter_add", x, i, g, dim=1), [f32(ROWS, COLUMNS), i64(ROWS, 1), f32(ROWS, 1)]),
    "scatter": (lambda x, i, s: op("scatter", x, i, s, dim=0), [f32(ROWS), i64(40), f32(40)]),
    "scatter_add": (lambda x, i, s: op("scatter_add", x, i, s, dim=1), [f32(ROWS, COLUMNS), i64(ROWS, 9), f32(ROWS, 9)]),
    "index_add": (lambda x, i, s: op("index_add", x, i, s, dim=0), [f32(ROWS, COLUMNS), i64(40), f32(40, COLUMNS)]),
    "index_put": (lambda x, i, s: op("index_put", x, s, i, dims=(0,), accumulate=False), [f32(ROWS, COLUMNS), i64(40), f32(COLUMNS)]),
    "index_put of two": (lambda x, i, s: op("index_put", x, s, i, i, dims=(0, 1), accumulate=True), [f32(ROWS, COLUMNS), i64(40), f32(40)]),
    "select at a number": (lambda x, k: op("select", x, k, dim=0) + 1.0, [f32(ROWS, COLUMNS), ScalarAval(int)]),
}  # fmt: skip


def graph_of(name: str) -> Graph:
    function, avals = POSITIONS[name]
    return trace(function, avals)


def test_the_table_has_every_primitive_that_takes_positions() -> None:
    taking = {op.name for op in REGISTRY.values() if op.kind.value in ("gather", "scatter") and "raises" in op.traits}
    used = {node.op.name for name in POSITIONS for node in graph_of(name).nodes}
    assert taking <= used


# --- the bound


def test_a_bounded_position_is_the_number_itself_or_the_last_position() -> None:
    index, size = Var("i", dtypes.int64), Var("n", dtypes.int64)
    outside, position = bounded(index, size)
    least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    for n in (1, 5, 2**40):
        for i in (0, n - 1, n, n + 1, -1, -n, -n - 1, least, most, 1 << 40):
            values = {index: np.int64(i), size: np.int64(n)}
            inside = 0 <= i < n
            assert bool(evaluate(outside, values)) != inside
            assert evaluate(position, values) == (i if inside else n - 1)


def test_no_number_is_a_position_of_nothing() -> None:
    outside, _ = bounded(Var("i", dtypes.int64), builder.const(0, dtypes.int64))
    assert evaluate(outside, {})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", [name for name in POSITIONS if "number" not in name])
def test_a_position_outside_is_an_exit(name: str, backend: str) -> None:
    graph = graph_of(name)
    program = build(graph, {}, backend=backend)
    arrays = [np.zeros(a.shape, a.dtype.numpy) for a in map(graph.avals.__getitem__, graph.inputs) if isinstance(a, Aval)]
    assert isinstance(program.run(tuple(arrays), ()), tuple)
    for bad in (-1, 255, 1 << 40, -(1 << 62)):
        if name == "gather at positions that are computed" and abs(bad) >= 1 << 62:
            continue  # twice that, and one, is 1
        given = [a.copy() for a in arrays]
        given[1].flat[-1] = bad if given[1].dtype == np.int64 else 255
        wraps = bad == -1 and name.startswith("index") and not name.startswith(("index_select", "index_add"))
        assert isinstance(program.run(tuple(given), ()), tuple) == wraps, bad


# --- what kernels may reach


@pytest.mark.parametrize("name", POSITIONS)
def test_a_nest_that_used_a_position_as_it_is_read_would_be_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(name)
    build(graph, {}, backend="reference")
    if name == "one hot":
        return  # compared with the column's number, not used to find memory

    def unbounded(index: Expr, size: Expr) -> tuple[Expr, Expr]:
        return bounded(index, size)[0], index

    monkeypatch.setattr(elements, "bounded", unbounded)
    monkeypatch.setattr(special, "bounded", unbounded)
    with override(verify=True), pytest.raises(ReachError, match=r"is at elements -inf to inf|is at elements .* to inf"):
        build(graph, {}, backend="reference")


def nest_over(extent: int | Size, *body: Any, axis: Axis, sizes: tuple[Size, ...] = (), buffers: tuple[Buffer, ...] = ()) -> Nest:
    return Nest("n", buffers, sizes, (), (For(axis, extent, body),))


def test_an_access_outside_a_buffer_is_found_and_one_inside_is_not() -> None:
    axis, n, x = Axis("i"), Size("n"), Buffer("x", dtypes.float32)
    zero = builder.const(0, dtypes.float32)
    for index, high, refused in (
        (Index(((axis, 1),)), 5, False),
        (Index(((axis, 1),)), 4, True),
        (Index(((axis, 2),), 1), 10, False),
        (Index(((axis, 2),), 1), 9, True),
        (Index(((axis, -1),), 4), 5, False),
        (Index(((axis, -1),), 3), 5, True),
        (Index(((axis, n),)), 21, False),
        (Index(((axis, n),)), 20, True),
        (Index((), 0, AxisValue(axis) * 3, 2), 25, False),
        (Index((), 0, AxisValue(axis) * 3 - 1, 2), 25, True),
    ):
        for statement in (Store(x, index, zero), Let(Var("v", dtypes.float32), Load(x, index))):
            nest = nest_over(n, statement, axis=axis, sizes=(n,), buffers=(x,))
            if refused:
                with pytest.raises(ReachError, match=r"nest n: a .* 'x' is at elements"):
                    check_reach(nest, {n: 5}, {x: (0, high)})
            else:
                check_reach(nest, {n: 5}, {x: (0, high)})
            check_reach(nest, {n: 0}, {x: (0, 0)})  # no iteration, no access


def test_buffers_are_told_of_which_a_nest_asks_for_negative_indices() -> None:
    axis, n, x, y = Axis("i"), Size("n"), Buffer("x", dtypes.float32), Buffer("y", dtypes.float32)
    forwards = Index(((axis, 1),))
    for index, size, back in (
        (Index(((axis, -1),), 4), 5, False),
        (Index(((axis, -1),), 3), 5, True),
        (Index(((axis, n),)), -2, True),
        (Index(((axis, 3),), n), -1, True),
        (Index((), 0, AxisValue(axis) * SizeValue(n)), -2, True),
        (Index((), 0, AxisValue(axis) * SizeValue(n)), 2, False),
        (Index(((axis, -1),), -1), 0, False),  # no iteration
    ):
        extent = 0 if size == 0 else 5
        nest = nest_over(extent, Store(x, forwards, Load(y, index)), axis=axis, sizes=(n,), buffers=(x, y))
        assert reaching_back(nest, {n: size}) == ({y} if back else set())


def test_nothing_is_known_of_what_is_read_but_where_the_extreme_was() -> None:
    axis, x, k = Axis("i"), Buffer("x", dtypes.float32), Buffer("k", dtypes.int64)
    found = Var("r", dtypes.int64)
    at = Index(((axis, 1),))
    reduction = Reduce(axis, 8, ((found, "argmax", Load(x, at)),))
    extents = {x: (0, 8), k: (0, 1)}
    check_reach(
        Nest("n", (x, k), (), (), (reduction, Store(x, Index((), 0, found), builder.const(0, dtypes.float32)))), {}, extents
    )
    read = Let(found, Load(k, Index()))
    with pytest.raises(ReachError, match="-inf to inf"):
        check_reach(Nest("n", (x, k), (), (), (read, Let(Var("v", x.dtype), Load(x, Index((), 0, found))))), {}, extents)


def test_what_stands_behind_an_exit_that_is_always_taken_reaches_nothing() -> None:
    axis, x = Axis("i"), Buffer("x", dtypes.float32)
    beyond = Store(x, Index((), 9), builder.const(0, dtypes.float32))
    check_reach(nest_over(3, Exit(builder.const(True, dtypes.bool_), 1), beyond, axis=axis), {}, {x: (0, 1)})
    with pytest.raises(ReachError):
        check_reach(nest_over(3, Exit(builder.const(False, dtypes.bool_), 1), beyond, axis=axis), {}, {x: (0, 1)})


# --- the text of kernels

_RESULT = re.compile(r"(%[\w.]+) = (.*)")
_NAME = re.compile(r"%[\w.]+")


def unbounded_addresses(text: str) -> list[str]:
    """The address computations in LLVM text whose index comes from memory and is not bounded."""
    found: list[str] = []
    for function in text.split("define ")[1:]:
        if not function.startswith("internal i64 @nest"):
            continue
        read: set[str] = set()
        for line in function.splitlines():
            match = _RESULT.match(line)
            if match is None:
                continue
            name, right = match.groups()
            operands = set(_NAME.findall(right))
            if right.startswith("getelementptr"):
                _, index = right.rsplit(",", 1)
                if read & set(_NAME.findall(index)):
                    found.append(line)
            loads = right.startswith("load") or "masked.load" in right or "masked.gather" in right
            if loads or (read & operands and "llvm.umin" not in right and "getelementptr" not in right):
                read.add(name)
    return found


@pytest.mark.parametrize("name", POSITIONS)
def test_every_address_that_depends_on_data_is_bounded_in_the_text_of_the_kernel(name: str) -> None:
    program = build(graph_of(name), {})
    assert isinstance(program, Program)
    assert "llvm.umin.i64" in program.llvm() or re.search(r"llvm\.umin\.v\d+i64", program.llvm())
    assert "unsigned_minimum(" in program.source()
    assert unbounded_addresses(program.llvm()) == []


def test_an_address_that_is_not_bounded_is_seen_in_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elements, "bounded", lambda index, size: (bounded(index, size)[0], index))
    with override(verify=False):
        program = build(graph_of("gather"), {})
    assert isinstance(program, Program)
    assert unbounded_addresses(program.llvm())


# --- another thread

RACE = """
    import faulthandler, sys, threading
    faulthandler.enable()
    import numpy as np
    import tracejit as T

    n = 30_000
    x, column, ones = T.randn(500, 4), T.zeros(500), T.ones(n)
    memory = np.zeros(n, np.int64)
    i = T.from_numpy(memory)
    functions = [
        lambda: T.index_select(x, 0, i) * 2,
        lambda: (x[i] * 1.5).softmax(1),
        lambda: T.gather(x[:, 0], 0, i).exp(),
        lambda: x[i, i % 4].sum(),
        lambda: x[i].sum(1),
        lambda: T.nn.functional.embedding(i, x),
        lambda: T.nn.functional.cross_entropy(x[:1].expand(n, 4), i),
        lambda: column.index_add(0, i, ones),
        lambda: column.scatter_add(0, i, ones),
        lambda: column.scatter(0, i, ones),
        lambda: column.index_put((i,), ones),
        lambda: column.index_put((i,), ones, True),
    ]
    running = True

    def write():
        while running:
            memory[:] = 1 << 40
            memory[:] = -(1 << 40)
            memory[:] = 3

    seen = set()
    for function in functions:
        compiled = T.compile(function)
        memory[:] = 3
        for _ in range(2):
            compiled()
        assert compiled.stats.compiled_calls == 1, compiled.explain()
        running = True
        writer = threading.Thread(target=write)
        writer.start()
        for call in [compiled] * 60 + [function] * 30:
            try:
                call()
                seen.add("served")
            except IndexError:
                seen.add("refused")
        running = False
        writer.join()
    print(sorted(seen))
"""


def test_a_thread_that_writes_to_an_index_during_calls_makes_no_call_leave_its_arrays(tmp_path: Path) -> None:
    script = tmp_path / "race.py"
    script.write_text(textwrap.dedent(RACE))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "['refused', 'served']"


def test_negative_positions_count_from_the_end_in_all_backends() -> None:
    x, i = T.arange(6.0), T.tensor([-1, 0, -6, 5])
    for backend in BACKENDS:
        with override(backend=backend):
            compiled = T.compile(lambda x, i: x[i])
            assert [compiled(x, i).tolist() for _ in range(3)] == [[5, 0, 0, 5]] * 3
            with pytest.raises(IndexError):
                compiled(x, T.tensor([-7, 0, 0, 0]))
