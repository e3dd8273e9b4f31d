"""Random programs that change objects between the calls of a compiled function that reads them, in every way that Python has.

    python -m tests.object_changes 500          # exit status 1 and the seeds if any call differs from eager

A program is a function over a few objects (instances with few and many attributes, slots, a class with a metaclass, a subclass of dict, an
object that is its own dictionary, lists, dictionaries, tensors, globals of a module), and a series of changes, each by a random way:
the attribute, `setattr`, the dictionary of attributes, `vars()`, `object.__setattr__`, C code, another thread, a new dictionary, another
class, the class, its base or its metaclass.  After each the compiled function must give what the function gives.
"""

from __future__ import annotations

import ctypes
import linecache
import random
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import tracejit as T
from tracejit.config import override

__all__ = ["Tally", "play"]

_TEXT = """
SCALE, LIMIT = 1.0, 3

class Meta(type):
    rank = 1.0

class Base(metaclass=Meta):
    bias = 0.5

class Leaf(Base):
    pass

class Other(Leaf):
    bias = -2.0

class Plain:
    pass

class Slots:
    __slots__ = ("a", "b")

class Table(dict):
    pass

class Own(dict):
    def __init__(self, **given):
        super().__init__(given)
        self.__dict__ = self

def read(x, leaf, plain, slots, table, own, items, mapping):
    y = x * SCALE + leaf.bias * leaf.a
    if plain.flag:
        y = y - plain.a
    y = y + plain.inner.a * plain.inner.w
    y = y * slots.a + slots.b
    y = y + type(leaf).rank + getattr(leaf, "extra", 0.25)
    if len(items) > LIMIT:
        y = y * 2
    y = y + items[0] + mapping["a"] + table["a"] + table.k + own.a
    if "b" in mapping:
        y = y * mapping["b"]
    return y * plain.w
"""


_FILE = "<changing objects>"
linecache.cache[_FILE] = (len(_TEXT), None, _TEXT.splitlines(keepends=True), _FILE)


def _through_c(owner: Any, name: str, value: Any) -> None:
    set_attribute = ctypes.pythonapi.PyObject_SetAttr
    set_attribute.argtypes = [ctypes.py_object] * 3
    set_attribute(owner, name, value)


def _in_a_thread(owner: Any, name: str, value: Any) -> None:
    thread = threading.Thread(target=setattr, args=(owner, name, value))
    thread.start()
    thread.join()


def _specialised(owner: Any, name: str, value: Any) -> None:
    """By an instruction that has been specialised on other objects of the class."""
    own: dict[str, Any] = {}
    exec(f"def store(x, value):\n    x.{name} = value", own)
    try:
        others = [type(owner)() for _ in range(3)]
    except TypeError:
        others = []
    for other in others * 20:
        own["store"](other, 0.0)
    own["store"](owner, value)


def _again(owner: Any, name: str, value: Any) -> None:
    delattr(owner, name)
    setattr(owner, name, value)


def _past_the_class(owner: Any, name: str, value: Any) -> None:
    object.__setattr__(owner, name, value)


ATTRIBUTE: list[Callable[[Any, str, Any], Any]] = [setattr, _past_the_class, _through_c, _in_a_thread, _specialised, _again]
"""How any object's attribute is set."""


def _updated(owner: Any, name: str, value: Any) -> None:
    vars(owner).update({name: value})


def _as_item(owner: Any, name: str, value: Any) -> None:
    owner.__dict__[name] = value


def _merged(owner: Any, name: str, value: Any) -> None:
    owner.__dict__.__ior__({name: value})


def _out_and_in(owner: Any, name: str, value: Any) -> None:
    vars(owner).pop(name)
    setattr(owner, name, value)


def _new_dictionary(owner: Any, name: str, value: Any) -> None:
    owner.__dict__ = {**vars(owner), name: value}


def _refilled(owner: Any, name: str, value: Any) -> None:
    contents = {**vars(owner), name: value}
    vars(owner).clear()
    vars(owner).update(contents)


IN_DICTIONARY = [*ATTRIBUTE, _updated, _as_item, _merged, _out_and_in, _new_dictionary, _refilled]
"""And that of an object with a dictionary of attributes."""


class _World:
    """The objects of a program, and what may become of them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        module = types.ModuleType("changing")
        exec(compile(_TEXT, _FILE, "exec"), vars(module))
        self.module = module
        self.leaf = self._filled(module.Leaf(), {"a": 1.5})
        inner = self._filled(module.Plain(), {"a": 2.0, "w": T.tensor([1.0, 2.0])})
        self.plain = self._filled(module.Plain(), {"a": 0.5, "flag": True, "inner": inner, "w": T.tensor([3.0, 1.0])})
        self.slots = module.Slots()
        self.slots.a, self.slots.b = 1.0, 2.0
        self.table = module.Table(a=1.0)
        self.table.k = 2.0
        self.own = module.Own(a=3.0)
        self.items: list[Any] = [1.0, 2.0]
        self.mapping: dict[str, Any] = {"a": 1.0}
        if rng.random() < 0.5:
            self.mapping["b"] = 2.0

    def _filled(self, made: Any, attributes: dict[str, Any]) -> Any:
        """An object with these attributes, and up to forty others, in any order; its dictionary may have been asked for before."""
        names = [*attributes, *[f"other{i}" for i in range(self.rng.choice((0, 2, 12, 40)))]]
        self.rng.shuffle(names)
        for i, name in enumerate(names):
            if i == self.rng.randrange(60):
                vars(made)
            setattr(made, name, attributes.get(name, float(i)))
        return made

    @property
    def arguments(self) -> tuple[Any, ...]:
        return self.leaf, self.plain, self.slots, self.table, self.own, self.items, self.mapping

    def change(self) -> str:
        """One change; what it was."""
        rng, module = self.rng, self.module
        value = rng.choice((1.0, 2.0, -0.5, 3, 1000.25, rng.random(), 1.0 + rng.randrange(5)))
        tensor, flag, way = T.tensor([rng.random(), rng.random()]), rng.random() < 0.5, rng.choice(IN_DICTIONARY)
        plain = self.plain

        def replace_object() -> None:
            self.plain = self._filled(module.Plain(), {**vars(plain), "a": value})

        changes: list[list[Callable[[], Any]]] = [
            [lambda: way(self.leaf, "a", value)],
            [lambda: way(plain, "other1" if flag and "other1" in vars(plain) else "a", value)],
            [lambda: way(plain, "flag", flag)],
            [lambda: way(plain.inner, "a", value), lambda: way(plain.inner, "w", tensor)],
            [lambda: rng.choice(ATTRIBUTE[:4])(self.slots, rng.choice("ab"), value)],
            [lambda: setattr(self.leaf, "__class__", rng.choice((module.Leaf, module.Other)))],
            [lambda: setattr(module.Base, "bias", value), lambda: setattr(module.Leaf, "bias", value)],
            [lambda: setattr(module.Meta, "rank", value)],
            [lambda: setattr(self.leaf, "extra", value), lambda: vars(self.leaf).pop("extra", None)],
            [lambda: setattr(module, "SCALE", value), lambda: vars(module).update(SCALE=value)],
            [lambda: setattr(module, "LIMIT", 1), lambda: exec("global LIMIT\nLIMIT = 0", vars(module))],
            [
                lambda: self.items.append(value),
                lambda: _put(self.items, 0, value),
                lambda: self.items.__delitem__(slice(1, None)),
            ],
            [lambda: _put(self.mapping, "a", value), lambda: _put(self.mapping, "b", value), lambda: self.mapping.pop("b", None)],
            [lambda: _put(self.table, "a", value), lambda: setattr(self.table, "k", value)],
            [lambda: setattr(self.own, "a", value), lambda: self.own.update(a=value)],
            [replace_object, lambda: setattr(plain, "inner", self._filled(module.Plain(), {"a": value, "w": tensor}))],
        ]
        kind = rng.randrange(len(changes))
        which = rng.randrange(len(changes[kind]))
        changes[kind][which]()
        return f"{kind}.{which} {way.__name__}"


def _put(container: Any, place: Any, value: Any) -> None:
    container[place] = value


class Tally:
    """compiled: calls that ran compiled; differences: texts."""

    def __init__(self) -> None:
        self.compiled = self.calls = 0
        self.differences: list[str] = []


def play(seed: int, tally: Tally, hot: bool, calls: int = 24) -> None:
    """Run the program of a seed."""
    rng = random.Random(seed)
    world, x = _World(rng), T.tensor([0.5, -1.0])
    read = world.module.read
    done: list[str] = []
    with override(hot_calls=2 if hot else 0):
        compiled = T.compile(read, wait=True)
        for _ in range(calls):
            if done and rng.random() < 0.5:
                done.append(world.change())
            elif not done:
                done.append("first")
            for _ in range(rng.randrange(1, 5)):
                expected, actual = read(x, *world.arguments), compiled(x, *world.arguments)
                if expected.tolist() != actual.tolist():
                    tally.differences.append(f"seed {seed}, hot {hot}: expected {expected}, got {actual} after {done}")
                    return
        tally.calls += compiled.stats.calls
        tally.compiled += compiled.stats.compiled_calls


def main(programs: int) -> int:
    different = 0
    tally = Tally()
    for seed in range(programs):
        for hot in (False, True):
            play(seed, tally, hot)
        if tally.differences:
            print(*tally.differences, sep="\n", flush=True)
            different += len(tally.differences)
            tally.differences.clear()
    print(f"{programs} programs: {tally.calls} calls, {tally.compiled} compiled, {different} differ")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
