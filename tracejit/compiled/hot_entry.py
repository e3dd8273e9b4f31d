"""Hot entries: entries that have served many calls, as machine code.

The first calls of a recorded path go through Python (`Recording.build_entry`).  An entry that has served `config.hot_calls` calls
is translated (cpython/functions.py).  A call of a CompiledFunction then never leaves C and machine code: functools.partial calls
the dispatcher (cpython/dispatcher.py), which calls the first entry, which calls its program, each by a pointer.

Translating and compiling a statement takes 0.12 ms and saves about 20 ns a call, so it pays after some thousand calls.  The code
has no addresses in it, so it is cached by its content, on disk, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tracejit.autograd.compiled import CompiledNode, ConsumedNode
from tracejit.autograd.tape import Storage
from tracejit.capture.recording.cell import StructureState
from tracejit.capture.recording.entry import Body, Recording
from tracejit.cpython import c_api, watchers
from tracejit.cpython.builtin_functions import FASTCALL, KEYWORDS, builtin_function
from tracejit.cpython.functions import Untranslatable, translate
from tracejit.cpython.linking import link
from tracejit.replay.ir import Function, Statement, walk
from tracejit.tensor import Tensor

__all__ = ["machine_entry", "machine_function"]

_ATTRIBUTE_ACCESS: Final = ("__getattribute__", "__setattr__")
_LONGEST: Final = 4000  # statements of an entry: compiling more of them would take over half a second
_SYMBOL: Final = "tracejit_hot"


def _slotted(namespace: Mapping[str, Any]) -> tuple[type, ...]:
    """Classes with slots whose instances an entry with these globals reads and creates, and which do not override attribute
    access."""
    kinds = [value for value in namespace.values() if isinstance(value, type) and issubclass(value, Tensor)]
    plain = [cls for cls in kinds if all(getattr(cls, name) is getattr(object, name) for name in _ATTRIBUTE_ACCESS)]
    return tuple(dict.fromkeys((*plain, Tensor, Storage, CompiledNode, ConsumedNode, StructureState)))


def machine_entry(recording: Recording, body: Body, entry: Callable[..., Any]) -> Any:
    """`entry`, the result of `recording.build_entry(body)`, as a built-in function of positional arguments.  Raises
    Untranslatable, whose text names the obstacle."""
    if not body.promotes:
        raise Untranslatable("a program that is not one call of machine code")
    return machine_function(recording.functions(body)[0], entry.__globals__)


def machine_function(function: Function, namespace: Mapping[str, Any]) -> Any:
    """A function of replay/ir.py as a built-in function of positional arguments.  namespace: its globals.  Raises
    Untranslatable."""
    if not c_api.supported():
        raise Untranslatable(c_api.unsupported())
    if (length := sum(isinstance(node, Statement) for node in walk((function.guards, function.body)))) > _LONGEST:
        raise Untranslatable(f"a function of {length} statements ({_LONGEST} at most)")
    text, constants = translate(function, _SYMBOL, namespace, _slotted(namespace))
    address, owner = link(text, _SYMBOL, imports=watchers.symbols())
    return builtin_function("entry", address, FASTCALL | KEYWORDS, (*constants, *owner))
