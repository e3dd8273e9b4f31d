"""Whether Ctrl-C was pressed, asked in machine code that must not run a handler.

Python's handlers are functions of the program: run in the middle of a program in machine code, they might call that very program, whose
memory is in use.  So the answer is all that machine code gets, and the signal is put back for Python to find.  There is such a question
for Ctrl-C alone; the handlers of other signals run when machine code is done, as they do with any C function.
"""

from __future__ import annotations

from typing import Final

from tracejit.cpython.c_api import declaration as of_function

__all__ = ["INTERRUPTED", "declaration", "interrupted_text"]

INTERRUPTED: Final = "tracejit_interrupted"


def declaration() -> str:
    """What a program says of the function of interrupted_text."""
    return f"declare i1 @{INTERRUPTED}()"


def interrupted_text() -> str:
    """A module with the function `i1 interrupted()`.  Outside the main thread the answer is always no."""
    return f"""{of_function("PyOS_InterruptOccurred")}
{of_function("PyErr_SetInterrupt")}
define i1 @{INTERRUPTED}() noinline nounwind {{
entry:
  %there = call i32 @PyOS_InterruptOccurred()
  %pressed = icmp ne i32 %there, 0
  br i1 %pressed, label %back, label %done
back:
  call void @PyErr_SetInterrupt()
  br label %done
done:
  ret i1 %pressed
}}
"""
