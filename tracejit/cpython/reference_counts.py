"""Counting references in machine code.

A reference count is a 64-bit word.  From CPython 3.12 on an object whose lower 32 bits are negative is immortal, and not counted (PEP 683).
"""

from __future__ import annotations

from typing import Final

from tracejit.cpython import c_api

__all__ = ["counting"]

_IMMORTAL: Final = """
  %low = load i32, ptr %o
  %immortal = icmp slt i32 %low, 0
  br i1 %immortal, label %end, label %counted
counted:"""


def counting() -> str:
    """The definitions of `incref(ptr)` and `decref(ptr)`, which need _Py_Dealloc."""
    unless_immortal = _IMMORTAL if c_api.immortal_objects() else ""
    return f"""
define internal void @incref(ptr %o) nounwind {{{unless_immortal}
  %count = load i64, ptr %o
  %more = add i64 %count, 1
  store i64 %more, ptr %o
  br label %end
end:
  ret void
}}
define internal void @decref(ptr %o) nounwind {{{unless_immortal}
  %count = load i64, ptr %o
  %less = sub i64 %count, 1
  store i64 %less, ptr %o
  %last = icmp eq i64 %less, 0
  br i1 %last, label %free, label %end
free:
  call void @_Py_Dealloc(ptr %o)
  br label %end
end:
  ret void
}}
"""
