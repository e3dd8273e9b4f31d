"""capture/tracebacks.py, and the dispatcher: tracebacks and frames are those of eager calls."""

from __future__ import annotations

import contextlib
import gc
import inspect
import sys
import traceback
import warnings

import pytest

import tracejit as T
from tracejit.capture.tracebacks import COMPILER
from tracejit.config import override
from tracejit.cpython import call_hook


def lines(error):
    """Where an error was, from the caller on, and what stands between: library code that an eager call runs as well."""
    return [(frame.f_code.co_filename, frame.f_code.co_name, line) for frame, line in traceback.walk_tb(error.__traceback__)]


class Model:
    def __init__(self):
        self.fail, self.inner = "", T.compile(self.deeper)

    def deeper(self, x):
        y = x * 2
        if self.fail == "deeper":
            raise LookupError("deeper")
        return y

    def forward(self, x, k=1):
        y = self.inner(x).sum() * k
        if self.fail == "forward":
            raise LookupError("forward")
        if self.fail == "index":
            return x[7]
        if self.fail == "shape":
            return x + T.ones(5)
        if self.fail == "item":
            return 1 / int(x.sum() * 0)
        return y


@pytest.mark.parametrize("hot_calls", [0, 2])
@pytest.mark.parametrize("served", [0, 1, 6])
@pytest.mark.parametrize("fail", ["deeper", "forward", "index", "shape", "item", "missing argument", "bad keyword", "bad number"])
def test_the_traceback_of_a_compiled_call_is_the_eager_one(fail, served, hot_calls):
    class Compiled(Model):
        forward = T.compile(Model.forward)

    with override(hot_calls=hot_calls):
        found = []
        for model in (Model(), Compiled()):
            for _ in range(served):
                model.forward(T.ones(3)), model.forward(T.ones(3), k=2)
            model.fail = fail
            arguments, keywords = [T.ones(3)], {}
            if fail == "missing argument":
                arguments = []
            if fail == "bad keyword":
                keywords = {"q": 1}
            if fail == "bad number":
                keywords = {"k": "one"}
            for _ in range(3):
                with pytest.raises(Exception) as caught:
                    model.forward(*arguments, **keywords)
                error = caught.value
                program = [where for where in lines(error) if where[0] == __file__]
                assert lines(error)[: len(program)] == program and not [p for p in lines(error) if p[0].startswith(COMPILER)]
                found.append((type(error), str(error).replace("Compiled.", ""), program))
    assert found[:3] == found[3:] and found[0] == found[1] == found[2]


def test_what_runs_eagerly_has_the_frames_of_an_eager_call():
    seen = []

    @T.compile
    def function(x, k=1):
        warnings.warn("mind", stacklevel=2)
        frame = sys._getframe(1)
        seen.append((frame.f_code.co_name, frame.f_lineno))
        return x * k

    def caller():
        return function(T.ones(2)), function(T.ones(2), k=3)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(12):
            caller()
    seen.clear()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        caller()
    line = caller.__code__.co_firstlineno + 1
    assert seen == [("caller", line)] * 2
    assert [(w.filename, w.lineno) for w in warned] == [(__file__, line)] * 2


def test_what_cannot_be_recorded_for_a_reason_known_beforehand_has_the_frames_of_an_eager_call(monkeypatch):
    @T.compile
    def looks(x):
        return sys._getframe(1).f_code.co_name, inspect.stack()[1].function, x * 2

    @T.compile
    def profiled(x):
        return stacks(x)

    def stacks(x):
        frame = inspect.currentframe()
        return [frame.f_back.f_code.co_name, frame.f_back.f_back.f_code.co_name]

    own = inspect.currentframe().f_code.co_name
    for _ in range(3):
        assert looks(T.ones(2))[:2] == (own, own)
    assert {reason.code for reason in looks.reasons} == {"frame_access"}
    monkeypatch.setattr(call_hook, "_TOOL_OFFSET", None)  # where profilers stand in the way of recordings
    sys.setprofile(lambda *_: None)
    try:
        found = profiled(T.ones(2))
    finally:
        sys.setprofile(None)
    assert found == ["profiled", own]
    assert {reason.code for reason in profiled.reasons} == {"profiler_active"}


def test_an_interrupt_while_a_traceback_is_made_right_has_the_error_as_its_context(monkeypatch):
    class Stop(KeyboardInterrupt):
        pass

    def interrupted(error):
        raise Stop

    monkeypatch.setattr(sys.modules["tracejit.compiled.compile"], "without_dispatch", interrupted)

    @T.compile
    def function(x):
        raise LookupError("mine")

    for _ in range(2):
        with pytest.raises(Stop) as caught:
            function(T.ones(2))
        assert type(caught.value.__context__) is LookupError and lines(caught.value.__context__)[-1][1] == "function"


def test_errors_that_come_and_go_leave_nothing_behind():
    @T.compile
    def function(x, fail):
        if fail:
            raise LookupError
        return x + 1

    function(T.ones(2), False)
    gc.collect()
    before = sys.getallocatedblocks(), sys.getrefcount(LookupError)
    for _ in range(300):
        with contextlib.suppress(LookupError):
            function(T.ones(2), True)
        function(T.ones(2), False)
    gc.collect()
    assert sys.getrefcount(LookupError) - before[1] < 50 and sys.getallocatedblocks() - before[0] < 250
