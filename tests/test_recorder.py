"""Recorded calls are eager calls, and replays of the raw recording are the same again, on programs that use Python's corners."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import traceback
import weakref
from collections import Counter
from pathlib import Path
from types import CodeType

import pytest
from capture_programs import PROGRAMS, run
from capture_replay import Replayed

import tracejit as T
from tracejit.capture import MISS, calling, is_recording, record
from tracejit.capture.session import Session
from tracejit.core.op import Kind
from tracejit.cpython import call_hook
from tracejit.ir.graph import Literal

pytestmark = pytest.mark.usefixtures("no_modules_are_left")


@pytest.mark.parametrize("name", PROGRAMS)
def test_recorded_and_replayed_calls_equal_eager_calls(name):
    maker, reason = PROGRAMS[name]
    if name == "random_numbers" and not hasattr(T, "rand"):
        pytest.skip("no random numbers")
    eager, _ = run(maker, lambda function: function, repr)
    replayed, compiled = run(maker, Replayed, repr)
    assert replayed == eager
    if reason is None:
        assert compiled.stats.compiled_calls > 0, compiled.reasons
    else:
        assert reason in {r.code for r in compiled.reasons}


def test_the_graph_is_in_program_order_with_the_users_lines():
    def fn(a):
        b = a * 2
        b.add_(1)
        return b[0]

    recording, _ = record(fn, (T.ones(3),), {})
    names = [node.op.name for node in recording.graph.nodes]
    assert names.index("mul") < names.index("write") < names.index("select")
    first = fn.__code__.co_firstlineno
    lines = {node.op.name: int(node.line.rsplit(":", 1)[1]) for node in recording.graph.nodes}
    assert (lines["mul"], lines["write"], lines["select"]) == (first + 1, first + 2, first + 3)
    assert all(node.line.rsplit(":", 1)[0] == __file__ for node in recording.graph.nodes)


def test_what_a_backward_pass_does_has_its_line_and_what_its_hooks_do_has_theirs():
    def hook(g):
        return g.floor()

    def fn(a):
        b = a.exp()
        b.register_hook(hook)
        (b * a.tanh()).sum().backward()
        return a.grad.sign()

    recording, _ = record(fn, (T.ones(3, requires_grad=True),), {})
    assert recording.reason is None
    first, lines = fn.__code__.co_firstlineno, {}
    for node in recording.graph.nodes:
        lines.setdefault(node.op.name, set()).add(int(node.line.rsplit(":", 1)[1]))
    backward = first + 3
    assert lines["floor"] == {hook.__code__.co_firstlineno + 1} and lines["sign"] == {first + 4}
    assert lines["exp"] == {first + 1} and lines["tanh"] == {backward}
    assert lines["acc"] == {backward}, "after the hook it is the pass that goes on"


def test_numbers_are_operands_and_literals():
    def fn(a, s):
        return a * s + 2

    recording, _ = record(fn, (T.ones(3), 1.5), {})
    (scalar,) = recording.scalar_inputs
    operands = [node.operands for node in recording.graph.nodes]
    assert operands[0][1] == scalar.value
    assert operands[1][1] == Literal(2)


def test_a_taken_value_is_a_guard_node_with_what_was_seen():
    def fn(a):
        return a * 2 if a.sum() > 1 else a

    recording, _ = record(fn, (T.ones(3),), {})
    (exit_point,) = recording.exits
    node = recording.graph.nodes[exit_point.node]
    assert node.op.kind is Kind.GUARD
    assert exit_point.expected == Literal(True)
    assert exit_point.line.endswith(f"test_recorder.py:{fn.__code__.co_firstlineno + 1}")


def test_facts_about_inputs_and_outputs():
    w = T.ones(2, 3).requires_grad_()

    def fn(a):
        y = a @ w
        return y, y[0], a.t()

    recording, result = record(fn, (T.ones(4, 2),), {})
    by_shape = {i.shape: i for i in recording.tensor_inputs}
    assert by_shape[2, 3].requires_grad and by_shape[2, 3].is_leaf and by_shape[2, 3].strides == (3, 1)
    assert not by_shape[4, 2].requires_grad
    whole, row, turned = recording.outputs
    assert whole.alias is None and whole.requires_grad and not whole.is_leaf
    assert (row.alias.kind, row.alias.index, [op.name for op, *_ in row.alias.views]) == ("output", 0, ["select"])
    assert (turned.alias.kind, recording.tensor_inputs[turned.alias.index].shape) == ("input", (4, 2))
    assert turned.strides == (1, 2) == result[2].stride()


def test_two_views_of_one_new_memory_share_it_again():
    def fn(a):
        hidden = a * 2
        return hidden[0], hidden[1:]

    recording, _ = record(fn, (T.ones(3),), {})
    assert len(recording.outputs) == 3  # the memory itself comes last
    assert [o.alias.index for o in recording.outputs[:2]] == [2, 2]
    assert recording.outputs[2].alias is None and recording.outputs[2].shape == (3,)


def test_written_inputs_are_named():
    def fn(a, b):
        a[0] = 5.0
        return a + b

    recording, _ = record(fn, (T.ones(3), T.ones(3)), {})
    (written,) = recording.written_inputs
    assert recording.tensor_inputs[written.index].expression.name == "v1"


def test_a_result_whose_graph_backward_has_freed_says_so():
    w = T.ones(3).requires_grad_()

    def fn(a):
        loss = (w * a * w).sum()
        loss.backward()
        return loss

    recording, _ = record(fn, (T.ones(3),), {})
    loss = next(o for o in recording.outputs if o.shape == ())
    assert loss.consumed
    with pytest.raises(RuntimeError, match="freed"):
        fn(T.ones(3)).backward()


def test_errors_come_without_the_frames_of_the_recorder():
    def inner(a):
        raise KeyError("mine")

    def fn(a):
        return inner(a * 2)

    with pytest.raises(KeyError) as caught:
        record(fn, (T.ones(2),), {})
    names = [f.name for f in traceback.extract_tb(caught.tb)]
    assert names[-2:] == ["fn", "inner"]
    assert not any("/capture/" in f.filename and f.name != "record" for f in traceback.extract_tb(caught.tb))


def test_no_recording_is_left_active_after_an_error():
    def fn(a):
        raise ValueError

    with pytest.raises(ValueError):
        record(fn, (T.ones(2),), {})
    assert not is_recording()
    assert sys.getprofile() is None and not call_hook.watched_threads()


def test_recording_in_one_thread_does_not_affect_another():
    inside, done = threading.Event(), threading.Event()
    seen = []

    def slow(a):
        b = a * 2
        inside.set()
        done.wait(5)
        return b

    def other():
        inside.wait(5)
        seen.append((is_recording(), (T.ones(2) + 1).tolist()))
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    recording, _ = record(slow, (T.ones(2),), {})
    thread.join()
    assert seen == [(False, [2.0, 2.0])]
    assert recording.reason is not None  # threading.Event is unknown C code
    assert not is_recording()


def test_entries_hold_no_tensor():
    class Model:
        pass

    model = Model()
    model.weight = T.ones(3)
    cell = T.ones(3)

    def fn(a):
        model.last = a * model.weight + cell
        return model.last

    argument = T.ones(3)
    recording, result = record(fn, (argument,), {})
    entry = recording.build_entry(calling(recording, lambda tensors, scalars: MISS))
    watched = [weakref.ref(t) for t in (argument, model.weight, result)]
    model.weight, model.last = T.zeros(3), None
    del argument, result
    gc.collect()
    assert [w() for w in watched] == [None, None, None]
    assert entry is not None


def test_numbers_of_a_finished_recording_are_plain():
    def fn(a, s):
        def scale(v):
            return v * s

        return scale, (s, [s * 2]), a

    _, (scale, (number, numbers), _) = record(fn, (T.ones(2), 2.0), {})
    assert type(number) is float and type(numbers[0]) is float
    assert type(scale.__closure__[0].cell_contents) is float


def test_the_tape_of_a_recorded_call_has_plain_numbers():
    def fn(a, s):
        return (a * s).sum()

    a = T.ones(2).requires_grad_()
    _, loss = record(fn, (a, 3.0), {})
    loss.backward()
    assert a.grad.tolist() == [3.0, 3.0]


def test_compiled_functions_are_inlined():
    double = Replayed(lambda a: a * 2)

    def fn(a):
        return double(a) + 1

    compiled = Replayed(fn)
    compiled(T.ones(2))
    assert compiled(T.ones(2)).tolist() == [3.0, 3.0]
    assert compiled.stats.compiled_calls == 1 and double.stats.traces == 0


def test_the_inlined_function_is_guarded_by_its_code():
    scale = Replayed(lambda a: a * 2)

    def fn(a):
        return scale(a)

    compiled = Replayed(fn)
    assert compiled(T.ones(1)).tolist() == compiled(T.ones(1)).tolist() == [2.0]
    scale.__wrapped__ = lambda a: a * 5
    assert compiled(T.ones(1)).tolist() == [5.0]


def test_garbage_collection_in_the_middle_of_a_recording_is_no_part_of_it():
    def function(x):
        for _ in range(20):
            node = [x]
            node.append(node)
            x = x + 1
        return x

    def callback(phase, info):
        len(phase)

    threshold = gc.get_threshold()
    gc.callbacks.append(callback)
    gc.set_threshold(1)
    try:
        recording, _ = record(function, (T.ones(2),), {})
        assert gc.isenabled()
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(callback)
    assert recording.reason is None


def test_what_helps_the_library_to_import_a_module_is_no_part_of_the_program(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\n"
        "class Finder:\n"
        "    @classmethod\n"
        "    def find_spec(cls, name, path=None, target=None):\n"
        "        return cls.look(name)\n"
        "    @staticmethod\n"
        "    def look(name):\n"
        "        return None\n"
        "sys.meta_path.insert(0, Finder)\n"
        "import tracejit\n"
        "call = tracejit.compile(lambda x: x.sigmoid() + x.erf())\n"
        "for _ in range(2):\n"
        "    call(tracejit.ones(2))\n"
        "assert call.stats.compiled_calls == 1, call.explain()\n"
    )
    root = str(Path(T.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": root}
    subprocess.run([sys.executable, str(program)], check=True, env=environment)


def test_methods_that_dataclasses_made_for_the_library_are_checked_once_in_a_recording(monkeypatch):
    asked: Counter[CodeType] = Counter()
    check = Session._check

    def counted(session, code, names):
        asked[code] += 1
        return check(session, code, names)

    def doubled_often(x):
        for _ in range(5):
            x = x + x
        return x

    monkeypatch.setattr(Session, "_check", counted)
    for _ in range(2):
        asked.clear()
        recording, _ = record(doubled_often, (T.ones(3),), {})
        assert len(recording.graph.nodes) == 5
        generated = [times for code, times in asked.items() if code.co_filename == "<string>"]
        assert generated and set(generated) == {1}
