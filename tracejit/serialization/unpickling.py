"""An interpreter of pickles that can make containers, numbers and strings, and otherwise only what its table of globals holds.

A pickle is a program for a stack machine.  The standard library's machine calls whatever a program names; this one has no import,
no attribute access and no calls but of the functions in the table, so a file can only ever make what the table can.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from tracejit.serialization.files import FileFormatError

__all__ = ["Unpickler", "checked_members"]

_MARK = object()


class Unpickler:
    """Runs the pickle at `position` of `content`; afterwards `position` is where it ends.

    find(module, name) gives what a global stands for; persistent(id) what a persistent id does.  Both raise for what they do not
    know."""

    def __init__(
        self, content: bytes, find: Callable[[str, str], Any], persistent: Callable[[Any], Any], position: int = 0
    ) -> None:
        self._content, self._find, self._persistent, self.position = content, find, persistent, position
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def load(self) -> Any:
        """The object.  Raises FileFormatError for a pickle that is cut off, broken, or not made of what is known here."""
        try:
            while True:
                code = self._take(1)
                if code == b".":
                    return self._pop()
                operation = _OPERATIONS.get(code)
                if operation is None:
                    raise FileFormatError(f"load(): the pickle has the operation {code!r}, which no state_dict needs")
                operation(self)
        except FileFormatError:
            raise
        except (
            IndexError,
            KeyError,
            TypeError,
            ValueError,
            UnicodeDecodeError,
            struct.error,
            OverflowError,
            AttributeError,
        ) as error:
            raise FileFormatError(f"load(): the pickle is broken ({type(error).__name__}: {error})") from error

    # ---- reading ----------------------------------------------------------------------------------------------------
    def _take(self, count: int) -> bytes:
        part = self._content[self.position : self.position + count]
        if len(part) != count:
            raise FileFormatError("load(): the pickle is cut off")
        self.position += count
        return part

    def _number(self, size: int, signed: bool = False) -> int:
        return int.from_bytes(self._take(size), "little", signed=signed)

    def _line(self) -> str:
        end = self._content.find(b"\n", self.position, self.position + 1000)
        if end < 0:
            raise FileFormatError("load(): the pickle is cut off")
        line = self._content[self.position : end].decode()
        self.position = end + 1
        return line

    # ---- the stack --------------------------------------------------------------------------------------------------
    def _pop(self) -> Any:
        value = self._stack.pop()
        if value is _MARK:
            raise FileFormatError("load(): the pickle is broken (a mark where there should be a value)")
        return value

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _marked(self) -> list[Any]:
        """What stands above the last mark."""
        at = len(self._stack) - 1
        while self._stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise FileFormatError("load(): the pickle is broken (no mark)")
        values = self._stack[at + 1 :]
        del self._stack[at:]
        return values

    def _tuple(self, count: int) -> None:
        values = [self._pop() for _ in range(count)][::-1]
        self._push(tuple(values))

    # ---- operations -------------------------------------------------------------------------------------------------
    def _appends(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not list:
            raise FileFormatError(f"load(): the pickle appends to a {type(target).__name__}")
        target.extend(values)

    def _set_items(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, dict):
            raise FileFormatError(f"load(): the pickle sets items of a {type(target).__name__}")
        for key, value in zip(values[::2], values[1::2], strict=True):
            target[_checked_key(key)] = value

    def _add_items(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not set:
            raise FileFormatError(f"load(): the pickle adds to a {type(target).__name__}")
        target.update(map(_checked_key, values))

    def _global(self, module: Any, name: Any) -> None:
        if type(module) is not str or type(name) is not str:
            raise FileFormatError("load(): the pickle names a global by something that is no string")
        found = self._find(module, name)
        self._push(_Global(f"{module}.{name}", found) if callable(found) else found)

    def _call(self) -> None:
        arguments, function = self._pop(), self._pop()
        if not isinstance(function, _Global) or not callable(function.value) or type(arguments) is not tuple:
            raise FileFormatError(f"load(): the pickle calls a {type(function).__name__}")
        self._push(function.value(*_plain(arguments)))

    def _build(self) -> None:
        """Give an object its state: attributes of an OrderedDict (PyTorch's _metadata) mean nothing here."""
        state, target = self._pop(), self._stack[-1]
        set_state = getattr(type(target), "set_pickled_state", None)
        if set_state is not None:
            set_state(target, state)
        elif not isinstance(target, dict):
            raise FileFormatError(f"load(): the pickle gives a state to a {type(target).__name__}")

    def _put(self, key: int) -> None:
        if not self._stack or self._stack[-1] is _MARK:
            raise FileFormatError("load(): the pickle is broken (nothing to remember)")
        self._memo[key] = self._stack[-1]

    def _long(self, size: int) -> None:
        self._push(int.from_bytes(self._take(size), "little", signed=True))

    def _text(self, size: int) -> None:
        self._push(self._take(size).decode("utf-8", "surrogatepass"))

    def _protocol(self) -> None:
        if (version := self._number(1)) > 5:
            raise FileFormatError(f"load(): the pickle is of protocol {version}, which this version does not know")

    def _persistent_load(self) -> None:
        self._push(self._persistent(_plain(self._pop())))

    def _stack_global(self) -> None:
        name, module = self._pop(), self._pop()
        self._global(module, name)


class _Global:
    """A function on the stack: what the table gave, and the name it has in the pickle."""

    def __init__(self, name: str, value: Any) -> None:
        self.name, self.value = name, value


def _plain(value: Any) -> Any:
    """What stands on the stack, as a tuple of arguments: globals as what they stand for.  Only the tuple itself is looked into: a
    pickle can nest tuples so that going through all of them takes for ever."""
    if type(value) is not tuple:
        return value
    return tuple(v.value if isinstance(v, _Global) else v for v in value)


def _checked_key(key: Any) -> Any:
    """A key of a mapping or a member of a set: text, a number or a tuple of them, for the reason above."""
    members = key if type(key) is tuple else (key,)
    if not all(member is None or isinstance(member, str | int | float | bytes) for member in members):
        raise FileFormatError(f"load(): the pickle has a {type(key).__name__} as a key, expected text or a number")
    return key


def checked_members(members: Any = ()) -> list[Any]:
    """What a set is made of.  Raises FileFormatError for what cannot be in one here."""
    if not isinstance(members, list | tuple):
        raise FileFormatError(f"load(): the pickle makes a set of a {type(members).__name__}")
    return [_checked_key(member) for member in members]


_OPERATIONS: Mapping[bytes, Callable[[Unpickler], Any]] = {
    b"\x80": Unpickler._protocol,
    b"\x95": lambda u: u._take(8),  # frames only say how much to read ahead
    b"(": lambda u: u._push(_MARK),
    b"0": lambda u: u._pop(),
    b"N": lambda u: u._push(None),
    b"\x88": lambda u: u._push(True),
    b"\x89": lambda u: u._push(False),
    b"K": lambda u: u._push(u._number(1)),
    b"M": lambda u: u._push(u._number(2)),
    b"J": lambda u: u._push(u._number(4, signed=True)),
    b"\x8a": lambda u: u._long(u._number(1)),
    b"\x8b": lambda u: u._long(u._number(4)),
    b"G": lambda u: u._push(struct.unpack(">d", u._take(8))[0]),
    b"X": lambda u: u._text(u._number(4)),
    b"\x8c": lambda u: u._text(u._number(1)),
    b"\x8d": lambda u: u._text(u._number(8)),
    b"B": lambda u: u._push(u._take(u._number(4))),
    b"C": lambda u: u._push(u._take(u._number(1))),
    b"\x8e": lambda u: u._push(u._take(u._number(8))),
    b"U": lambda u: u._push(u._take(u._number(1)).decode("latin-1")),
    b"T": lambda u: u._push(u._take(u._number(4)).decode("latin-1")),
    b"]": lambda u: u._push([]),
    b"}": lambda u: u._push({}),
    b")": lambda u: u._push(()),
    b"\x8f": lambda u: u._push(set()),
    b"a": lambda u: u._appends([u._pop()]),
    b"e": lambda u: u._appends(u._marked()),
    b"s": lambda u: u._set_items([u._pop(), u._pop()][::-1]),
    b"u": lambda u: u._set_items(u._marked()),
    b"\x90": lambda u: u._add_items(u._marked()),
    b"\x91": lambda u: u._push(frozenset(checked_members(u._marked()))),
    b"t": lambda u: u._push(tuple(u._marked())),
    b"\x85": lambda u: u._tuple(1),
    b"\x86": lambda u: u._tuple(2),
    b"\x87": lambda u: u._tuple(3),
    b"l": lambda u: u._push(u._marked()),
    b"q": lambda u: u._put(u._number(1)),
    b"r": lambda u: u._put(u._number(4)),
    b"\x94": lambda u: u._put(len(u._memo)),
    b"h": lambda u: u._push(u._memo[u._number(1)]),
    b"j": lambda u: u._push(u._memo[u._number(4)]),
    b"c": lambda u: u._global(u._line(), u._line()),
    b"\x93": Unpickler._stack_global,
    b"R": Unpickler._call,
    b"\x81": Unpickler._call,
    b"b": Unpickler._build,
    b"Q": Unpickler._persistent_load,
}
