"""The closed catalogue of reasons why a call runs eagerly.

A reason has a code, a message about the user's code, the user's file and line, and a remedy.  `make` creates all reasons; a code
that is not in the catalogue is a defect of the recorder.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CATALOGUE", "Reason", "make"]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a call runs eagerly.  where: the user's "file:line"; "" if there is none."""

    code: str
    message: str
    where: str
    remedy: str

    def __str__(self) -> str:
        location = f" ({self.where})" if self.where else ""
        return f"[{self.code}] {self.message}{location}. {self.remedy}"


# code -> (message, in which `{}` is replaced by the detail; remedy)
CATALOGUE: dict[str, tuple[str, str]] = {
    "no_source": ("no source text for {}", "Define the function in a file, or give its text: compile(..., source=text)"),
    "source_changed": ("the source text no longer matches the running code: {}", "Restart, or import the module again"),
    "ambiguous_source": ("two functions share a line and cannot be told apart: {}", "Put them on separate lines"),
    "unsupported_syntax": ("{} cannot be recorded", "Rewrite it with plain statements, or move it out of the compiled function"),
    "frame_access": ("{}() looks at Python's frames", "Pass the names explicitly"),
    "impure_call": ("{} has effects or results that a recording cannot hold", "Move the call out of the compiled function"),
    "clock": ("{}", "Do what depends on the time outside the compiled function"),
    "disabled": (
        "{} is never compiled, by compiler.disable()",
        "Call it outside the compiled function, or take compiler.disable() away",
    ),
    "unknown_call": ("nothing is known about the C function {}", "Move the call out of the compiled function"),
    "unknown_callable": ("objects of type {} cannot be followed when called", "Call a Python function instead"),
    "construction": ("construction of {} cannot be followed", "Create the object outside the compiled function"),
    "implicit_python": ("Python code ran behind C code: {}", "Call it directly, or move it out of the compiled function"),
    "class_statement": ("the class statement of {} cannot be followed", "Define the class outside the compiled function"),
    "profiler_active": ("a profiler is active: {}", "Recording needs sys.setprofile for itself; stop the profiler"),
    "recursion_limit": (
        "the call is deep in recursion, or what it is given or gives is nested deeply: {}",
        "Call it less deep in recursion, nest less, or raise the limit (sys.setrecursionlimit); where there is room calls are recorded",
    ),
    "interrupted": ("the program went on after an interrupt: {}", "Nothing: a call that is not interrupted is recorded"),
    "external_iterator": ("{} from outside is consumed", "Pass a list or a tensor instead of an iterator"),
    "container": (
        "{} from outside is read or changed in a way that cannot be guarded",
        "Use a list, tuple or dict of plain keys",
    ),
    "array_like": (
        "{} is more than reading numbers of an array-like object",
        "Compute with a tensor() of it, or with its to_numpy(), or call it outside the compiled function",
    ),
    "read_after_change": ("{} from outside is read after it was changed", "Read it before changing it"),
    "descriptor": ("the attribute {} is computed in a way that cannot be followed", "Use a property or a plain attribute"),
    "shared_store": (
        "an attribute of {} is changed that is more than a value",
        "Change methods and special names of classes outside the compiled function",
    ),
    "raised_again": ("an exception from outside is raised, which notes where: {}", "Raise a new one"),
    "object_identity": ("{} depends on where objects lie in memory", "Use a key of your own"),
    "object_text": ("the text of {} contains an address or cannot be followed", "Format plain values"),
    "number_range": ("an integer that the tensor's dtype cannot hold exactly is used: {}", "Use a float, or a wider dtype"),
    "unknown_origin": (
        "{} is used that was reached in a way that no guard can repeat",
        "Reach it by a name, an attribute or an item, or create it inside the compiled function",
    ),
    "tensor_contents": ("tensor contents leave the program: {}", "Keep the values in tensors, or convert them outside"),
    "tensor_origin": ("a tensor of unknown origin is used: {}", "Create it outside the compiled function, or from tensors in it"),
    "tensor_state": ("{} changes or reads the state of a tensor beyond its contents", "Do it outside the compiled function"),
    "own_backward": (
        "{} has a backward pass that is Python code of the program, and would run after the call",
        "Call backward() inside too, or write it with operations, whose gradients are known",
    ),
    "outside_graph": (
        "backward() enters a graph that was made outside: {}",
        "Call backward() outside, or record the forward pass too",
    ),
    "random_operation": ("random numbers are drawn from {}", "Make the generator outside the function"),
    "global_state": ("{} changes the state of the library", "Call it outside the compiled function"),
    "unbuildable": ("a new {} is returned or stored", "Return tensors, numbers, strings, tuples, lists, dicts or plain objects"),
    "overlapping_inputs": ("inputs overlap in memory and one is written: {}", "Pass a copy (clone())"),
    "overlapping_write": (
        "a view is written that was taken of one whose elements share memory: {}",
        "Write to a clone() of it, or to its base",
    ),
    "selected_rows_written": (
        "what a selection of rows has given is written to, and a backward pass needs it as it was: {}",
        "Nothing: what is recorded from now on is for each number of rows",
    ),
    "shared_storage": (
        "inputs are views of one tensor, one of them is written, and a backward pass follows: {}",
        "Pass a copy (clone()) of one of them",
    ),
    "differentiable_write": (
        "an outside tensor that takes part in gradients is changed in place: {}",
        "Write to what it is a view of, or under no_grad(), or return the new value",
    ),
    "outside_call": (
        "{} is no part of the program: it is called when the program has run",
        "Move the call out of the compiled function",
    ),
    "internal_error": ("the recorded program could not be compiled: {}", "This is a defect of tracejit: please report it"),
    "recording_defect": (
        "the code that records has failed: {}",
        "This is a defect of tracejit: please report it; calls run eagerly, as they would without compile()",
    ),
    "compiling": (
        "{} is compiled in the background, since that takes longer than TRACEJIT_COMPILE_WAIT; calls run eagerly meanwhile",
        "Nothing: later calls are compiled; compile(..., wait=True) and warm_up() wait",
    ),
    "too_many_paths": (
        "{}; what fits none of them runs eagerly until some have gone out of use",
        "Pass what varies as tensors, or raise TRACEJIT_MAX_ENTRIES, or TRACEJIT_MAX_SIZES where arguments differ in size",
    ),
    "many_sizes": (
        "{}; calls of another size run eagerly until it has come a few times",
        "Pad to a few sizes, unless the same sizes come again",
    ),
    "unstable_guards": (
        "a call of {} was recorded as a path that exists, whose guards had not held for it",
        "Call it with arguments that do not change from call to call; if they do not, please report it",
    ),
    "outlined_loop": (
        "steps of {}",
        "See docs/branching-loops.md for what steps may do, or compile the function of one step",
    ),
    "divided_step": (
        "{}, where a step of a loop runs in parts",
        "Nothing: the next recording has whole steps",
    ),
    "branching_loop": (
        "{}",
        "No later call would take the path that was recorded: compile the function of one step, and leave the loop to Python",
    ),
    "raised": ("the call raised {}", "Return a value instead, or leave what raises to the caller"),
}


def make(code: str, detail: str, where: str = "") -> Reason:
    """The reason with this code.  detail: for the message.  Raises KeyError for a code that is not in the catalogue."""
    message, remedy = CATALOGUE[code]
    return Reason(code, message.replace("{}", detail), where, remedy)
