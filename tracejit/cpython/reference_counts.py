"""Counting references in machine code.

A reference count is the first word of an object, or the lower half of it (layouts.Layout.count_bits).  From CPython 3.12 on an object
whose lower 32 bits are negative is immortal, and not counted (PEP 683).
"""

from __future__ import annotations

from typing import Final

from tracejit.cpython.c_api import LAYOUT

__all__ = ["counting"]

_IMMORTAL: Final = """
  %low = load i32, ptr %o
  %immortal = icmp slt i32 %low, 0
  br i1 %immortal, label %end, label %counted
counted:"""

_UNLESS_NULL: Final = """\
define internal void @x{name}(ptr %o) nounwind {{
  %none = icmp eq ptr %o, null
  br i1 %none, label %end, label %some
some:
  call void @{name}(ptr %o)
  br label %end
end:
  ret void
}}
"""


def counting() -> str:
    """The definitions of `incref(ptr)` and `decref(ptr)`, which need _Py_Dealloc, and of `xincref` and `xdecref`, which take null."""
    unless_immortal = _IMMORTAL if LAYOUT.immortal else ""
    count = f"i{LAYOUT.count_bits}"
    return f"""
define internal void @incref(ptr %o) nounwind {{{unless_immortal}
  %count = load {count}, ptr %o
  %more = add {count} %count, 1
  store {count} %more, ptr %o
  br label %end
end:
  ret void
}}
define internal void @decref(ptr %o) nounwind {{{unless_immortal}
  %count = load {count}, ptr %o
  %less = sub {count} %count, 1
  store {count} %less, ptr %o
  %last = icmp eq {count} %less, 0
  br i1 %last, label %free, label %end
free:
  call void @_Py_Dealloc(ptr %o)
  br label %end
end:
  ret void
}}
{_UNLESS_NULL.format(name="incref")}{_UNLESS_NULL.format(name="decref")}"""
