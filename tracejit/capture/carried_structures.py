"""Structures that steps of a branching loop make anew: `state = {"x": x, "n": n + 1}`, lists, named tuples, objects of classes in Python.

The loop carries on the tensors and numbers in such a structure; a step that runs in Python, and what follows the loop, find one that is
made of these.  That is no difference, since nothing else refers to the structure: a step has made it, and left it in one variable.  The
structure that a variable holds before the loop is an object like any other, and a kind of its own (varying_kinds.py).  A step may not
change a structure that it was given: code that made it may see that."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracejit.capture.nested_places import children_of, is_tuple, items_of, store_at
from tracejit.capture.policies import instance_dictionary, is_user_instance
from tracejit.capture.step_paths import MOST_PARTS, PRIMITIVE, Refused, carried_form, put_together
from tracejit.capture.syntax.loops import OUTLINED

if TYPE_CHECKING:
    from tracejit.capture.branching_loops import LoopRun
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["CarriedStructures", "Structure"]


@dataclass(frozen=True, slots=True)
class Structure:
    """The form of a list, a dictionary, a named tuple, or an instance (step_paths.py).  places, parts: of what is in it, as
    `children_of` gives them, with the forms."""

    cls: type
    places: tuple[Any, ...]
    parts: tuple[Any, ...]

    def made_of(self, recorder: Recorder | None, leaves: Iterator[Any]) -> Any:
        """A structure of these tensors and numbers.  recorder: None where nothing is recorded any more."""
        contents = [put_together(recorder, part, leaves) for part in self.parts]
        if issubclass(self.cls, tuple):
            return tuple.__new__(self.cls, contents) if recorder is None else recorder.contents.record_of(self.cls, contents)
        if self.cls is list or self.cls is dict:
            made: Any = contents if self.cls is list else dict(zip(self.places, contents, strict=True))
            return made if recorder is None else recorder.mark_created(made)
        made = object.__new__(self.cls)
        if recorder is not None:
            recorder.mark_created(made)
        for place, value in zip(self.places, contents, strict=True):
            if recorder is not None:
                store_at(recorder, made, place, value)
            elif place.slot is None:
                instance_dictionary(made)[place.name] = value  # type: ignore[index]
            else:
                place.slot.__set__(made, value)
        return made


class CarriedStructures:
    """The structures of one run."""

    def __init__(self, run: LoopRun) -> None:
        self._run = run
        # What may be changed of the structures that the step was given, by ids, each with the ids of what is in it.
        self._given: dict[int, tuple[Any, list[int]]] = {}
        self._left: set[int] = set()  # the ids of those that the step has left

    def begin_step(self) -> None:
        """A step is about to be given what it finds in variables."""
        self._given.clear()
        self._left.clear()

    def note_given(self, structure: Any) -> None:
        """Note a structure that the step is given."""
        children = children_of(self._run.recorder, structure)
        for part in self._items(structure) if children is None else [part for _, part in children]:
            self.note_given(part)
        if children is not None:
            self._given[id(structure)] = structure, [id(part) for _, part in children]

    def _items(self, x: Any) -> list[Any]:
        return items_of(self._run.recorder, x) if is_tuple(x) else []

    def check_unchanged(self) -> None:
        """Raises Refused if the step has changed a structure that it was given."""
        for structure, before in self._given.values():
            if [id(part) for _, part in children_of(self._run.recorder, structure) or ()] != before:
                raise Refused(f"a step changes a {type(structure).__name__} that an earlier one has made")

    def form_of(self, x: Any) -> tuple[Any, list[Any]]:
        """(the form of a structure that a step has left in a variable, None of anything else; its tensors and numbers).  Raises Refused
        for one that it has left elsewhere, too."""
        leaves: list[Any] = []
        parts: list[Any] = []
        form = self._form(x, leaves, parts) if children_of(self._run.recorder, x) is not None or is_tuple(x) else None
        if form is None or not leaves or len(leaves) > MOST_PARTS:
            return None, []
        for part in parts:
            if id(part) in self._left or id(part) in self._run.containers_after:
                raise Refused(f"a step leaves a {type(part).__name__} in two places")
            self._left.add(id(part))
        return form, leaves

    def returned_form(self, x: Any, leaves: list[Any]) -> Any:
        """The form of a named tuple or an instance that a step returns from the function; None of anything else."""
        return self._form(x, leaves, []) if is_user_instance(x) or is_tuple(x) else None

    def _form(self, x: Any, leaves: list[Any], parts: list[Any]) -> Any:
        """The form of what is in a structure; None if there is none.  parts: what it leads to that may be changed."""
        recorder, cls = self._run.recorder, type(x)
        if cls in PRIMITIVE:
            return "constant", x
        if is_tuple(x) and (self._run.loop.tests_parts or self._run.loop.tests_identity):
            return None  # the function may tell it from an equal one
        known = len(leaves)
        if (form := carried_form(x, leaves)) is not None or known > MOST_PARTS:
            return form
        del leaves[known:]  # those of the first parts of a tuple
        if is_tuple(x):
            children = [*enumerate(items_of(recorder, x))]
        elif not self._may_be_carried(x) or any(x is part for part in parts):
            return None
        else:
            children = children_of(recorder, x) or []
            parts.append(x)
        found = [self._form(part, leaves, parts) for _, part in children]
        if None in found:
            return None
        return (tuple, found) if cls is tuple else Structure(cls, tuple([place for place, _ in children]), tuple(found))

    def _may_be_carried(self, x: Any) -> bool:
        """Whether a list, a dictionary or an instance was made by the step, or given to it."""
        run, cls = self._run, type(x)
        if not run.recorder.is_created(x) or (id(x) in run.containers_found and id(x) not in self._given):
            return False
        if cls is dict:
            return all(type(key) in (str, int) for key in x)
        is_plain = is_user_instance(x) and cls.__new__ is object.__new__ and not weakref.getweakrefcount(x)
        return cls is list or (is_plain and children_of(run.recorder, x) is not None)

    def may_be_told_apart(self, name: str, x: Any) -> bool:
        """Whether a variable holds a tuple that the function may tell from an equal one."""
        if not is_tuple(x) or name.startswith(OUTLINED):
            return False
        loop, has_tuples = self._run.loop, any(map(is_tuple, self._items(x)))
        return loop.tests_identity or (loop.tests_parts and (has_tuples or bool(loop.items)))

    def check_tuples(self, values: Sequence[Any]) -> None:
        """Raises Refused where one tuple is in two places of what a step has left: each would get a tuple of its own."""
        waiting, seen, found = [*values], set[int](), set[int]()
        while waiting:
            x = waiting.pop()
            if is_tuple(x) and x:
                if id(x) in found:
                    raise Refused("a step leaves a tuple in two places")
                found.add(id(x))
                waiting += self._items(x)
            elif self._run.recorder.is_created(x) and id(x) not in seen:
                seen.add(id(x))
                waiting += [part for _, part in children_of(self._run.recorder, x) or ()]

    def check_items(self, items: Iterable[Any]) -> None:
        """Raises Refused if a structure that the step has left is an item that it has appended, too."""
        if any(id(x) in self._left for x in items):
            raise Refused("a step appends what it leaves in a variable, too")
