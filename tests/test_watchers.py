"""Words that move when dictionaries change (cpython/watchers.py), and programs that change what a compiled function reads."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from tests.object_changes import Tally, play
from tracejit.cpython import watchers, words
from tracejit.cpython.c_api import MAPPING, word

watched = pytest.mark.skipif(not watchers.supported(), reason="dictionaries of this Python cannot be watched")


class Thing:
    pass


def thing(**attributes: Any) -> Any:
    made = Thing()
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def script(text: str) -> str:
    """What a process prints that runs a text with this library."""
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(text)], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_dictionaries_are_watched_from_3_12_on() -> None:
    assert watchers.supported() == (sys.version_info[:2] in ((3, 12), (3, 13))), watchers.unsupported()


@watched
@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(a=2), lambda d: d.update(c=2), lambda d: d.pop("a"), lambda d: d.popitem(), lambda d: d.clear(),
        lambda d: d.setdefault("c", 1), lambda d: d.__delitem__("a"), lambda d: d.__ior__({"c": 1}), lambda d: d.__setitem__("a", 2),
    ],
)  # fmt: skip
def test_the_word_of_a_dictionary_moves_before_it_changes_and_not_else(change: Callable[[dict[str, int]], Any]) -> None:
    for dictionary in ({"a": 1, "b": 2}, vars(thing(a=1, b=2)), {"a": 1, "b": 2, 3: 4}):
        address = watchers.watch(id(dictionary))
        number = word(address)
        assert number > 0 and dictionary["a"] == 1 and list(dictionary) and word(address) == number
        assert watchers.watch(id(dictionary)) == address and word(address) == number
        change(dictionary)
        assert word(address) == 0
        again = watchers.watch(id(dictionary))
        assert word(again) > number


@watched
def test_a_watch_ends_with_the_first_change() -> None:
    dictionary, other = {"a": 1}, {"b": 1}
    address = watchers.watch(id(dictionary))
    dictionary["a"] = 2
    assert watchers.watch(id(other)) == address  # the slot is used again
    number = word(address)
    dictionary["a"] = 3
    assert word(address) == number


@watched
def test_watched_dictionaries_that_come_and_go_leave_nothing() -> None:
    addresses = set()
    for i in range(200_000):
        dictionary = {"a": i}
        addresses.add(watchers.watch(id(dictionary)))
    assert len(addresses) < 1000


@watched
def test_watching_keeps_nothing_alive_and_a_dictionary_at_the_same_address_is_another_one() -> None:
    dictionary = {"a": 1}
    address = watchers.watch(id(dictionary))
    number = word(address)
    del dictionary
    assert word(address) == 0
    others = [{"a": 1} for _ in range(100)]
    assert number not in [word(watchers.watch(id(other))) for other in others]


@watched
def test_an_instance_keeps_its_dictionary_and_the_order_of_its_attributes() -> None:
    made = thing(b=1, a=2, c=3)
    dictionary = vars(made)
    del made.a
    made.a = 4
    before = list(dictionary.items())
    address = watchers.watch(id(dictionary))
    assert address and vars(made) is dictionary and list(dictionary.items()) == before == [("b", 1), ("c", 3), ("a", 4)]
    for name, _ in before:
        address = watchers.watch(id(dictionary))
        setattr(made, name, 5)
        assert word(address) == 0 and getattr(made, name) == 5


@watched
def test_an_iteration_over_the_attributes_goes_on_while_their_dictionary_is_watched() -> None:
    made = thing(a=1, b=2, c=3)
    seen = []
    for name in vars(made):
        assert watchers.watch(id(vars(made)))
        seen.append(name)
    assert seen == ["a", "b", "c"]


@watched
def test_changes_of_a_class_and_of_a_module_move_their_words() -> None:
    proxy = Thing.__dict__
    for _ in range(3):
        address = watchers.watch(word(id(proxy) + MAPPING))
        Thing.mark = object()  # type: ignore[attr-defined]
        assert word(address) == 0
    address = watchers.watch(id(globals()))
    exec("global watched_number\nwatched_number = 1", globals())
    assert word(address) == 0


@watched
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_notices_its_own_changes() -> None:
    made = thing(a=1)
    address = watchers.watch(id(vars(made)))
    number = word(address)
    child = os.fork()
    if child == 0:
        made.a = 2
        os._exit(0 if word(address) == 0 else 1)
    assert os.waitpid(child, 0)[1] == 0 and word(address) == number


@watched
def test_where_no_watcher_is_left_objects_are_checked_one_by_one_and_explain_says_so() -> None:
    text = """
        import ctypes
        add = ctypes.pythonapi.PyDict_AddWatcher
        callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: 0)
        try:
            while True:
                add(callback)
        except RuntimeError:
            pass
        import os
        import tracejit as T
        layers = T.nn.Sequential(T.nn.Linear(3, 3), T.nn.Linear(3, 3))
        with T.config.override(hot_calls=2), T.no_grad():
            f = T.compile(lambda x: layers(x), wait=True)
            for _ in range(8):
                f(T.ones(3))
        print(f.stats.compiled_calls, f.explain(verbose=True))
        os._exit(0)
    """
    out = script(text.replace("lambda x: layers(x)", "layers.forward"))
    assert (
        out.startswith("7 ")
        and "which checks objects one by one, since no watcher of dictionaries: no more dict watcher IDs" in out
    )


@watched
def test_a_process_ends_while_dictionaries_are_watched() -> None:
    text = """
        from tracejit.cpython import watchers
        class Last:
            def __del__(self):
                vars(self).update(a=2)
                vars(self)["b"] = 3
        kept = [Last() for _ in range(10)]
        for one in kept:
            one.a = 1
            watchers.watch(id(vars(one)))
        kept.append(kept)
        watchers.watch(id(globals()))
        print("watched")
    """
    assert script(text) == "watched"


@pytest.mark.parametrize("hot", [False, True])
def test_what_a_program_changes_in_any_way_is_noticed_by_the_next_call(hot: bool) -> None:
    tally = Tally()
    for seed in range(8):
        play(seed, tally, hot)
    assert not tally.differences and tally.compiled > 0.7 * tally.calls


def test_words_are_compared_on_each_verified_python() -> None:
    assert words.supported(), words.unsupported()
