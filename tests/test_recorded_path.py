"""compiled/recorded_path.py: the states of a path, and what a reader is told of each."""

from __future__ import annotations

from typing import Any

import pytest

import tracejit as T
from tracejit.compiled.recorded_path import PathState, RecordedPath
from tracejit.config import override
from tracejit.cpython import c_api
from tracejit.cpython.functions import Untranslatable

pytestmark = pytest.mark.skipif(not c_api.supported(), reason="nothing is translated to machine code here")
HOT = 3


@pytest.fixture(autouse=True)
def hot_soon() -> Any:
    with override(hot_calls=HOT, compile_wait=1e9):
        yield


def only_entry(function: Any) -> RecordedPath:
    (path,) = function._table.paths
    assert isinstance(path, RecordedPath)
    return path


def test_a_path_that_has_served_many_calls_becomes_machine_code() -> None:
    function = T.compile(lambda x: x * 2)
    function(T.ones(2))
    path = only_entry(function)
    assert path.state is PathState.RECORDED and path.machine is None and path.calls() == f"from Python, until {HOT} were served"
    for _ in range(HOT + 1):
        function(T.ones(2))
    assert path.state is PathState.MACHINE_CODE and path.machine is not None and path.calls().startswith("from machine code")


def test_a_path_that_cannot_be_translated_is_interpreted_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(path: RecordedPath) -> Any:
        asked.append(path)
        raise Untranslatable("an example")

    monkeypatch.setattr(RecordedPath, "translate", refuse)
    function = T.compile(lambda x: x * 2)
    for _ in range(5 * HOT):
        assert function(T.ones(2)).tolist() == [2.0, 2.0]
    path = only_entry(function)
    assert path.state is PathState.INTERPRETED and path.machine is None and asked == [path], "tried once"
    assert path.calls() == "from Python, since what cannot be translated is an example"


def test_a_defect_of_the_translation_leaves_a_path_that_serves_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: RecordedPath) -> Any:
        raise ArithmeticError("a defect")

    monkeypatch.setattr(RecordedPath, "translate", fail)
    function = T.compile(lambda x: x * 2)
    with override(verify=False), pytest.warns(RuntimeWarning, match="could not translate the Python around"):
        for _ in range(2 * HOT):
            assert function(T.ones(2)).tolist() == [2.0, 2.0]
    path = only_entry(function)
    assert path.state is PathState.INTERPRETED
    assert path.calls() == "from Python, since the translation failed: ArithmeticError: a defect"


def test_a_path_that_is_dropped_while_it_is_translated_stays_dropped() -> None:
    function = T.compile(lambda x: x * 2)
    function(T.ones(2))
    path = only_entry(function)
    assert path.begin_translation() and not path.begin_translation()
    assert "it is being translated in the background" in path.calls()
    made = path.translate()
    function.clear()
    assert not path.become(*made) and path.state is PathState.DROPPED and path.machine is None
    path.keep_interpreted("an example")
    assert path.state is PathState.DROPPED and not path.obstacle
