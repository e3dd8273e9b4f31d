"""Variables that hold things of different kinds in different steps of a branching loop: `best = None` until a step finds one, `total = 0`
until a float is added, `state = "idle"`.

Each kind that such a variable has held has slots of its own (path_tree.py), a text or None has none, and one more slot holds the number
of the kind.  Paths begin with guards on these numbers.  When a variable gets a second kind, the paths recorded so far are those of kind 0,
which is what the slot of the number holds at first: they get a guard in front.  After the loop, the kind of a variable is guarded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tracejit.capture.carried_structures import Structure
from tracejit.capture.loop_steps import LIVE_IN, StepNode
from tracejit.capture.path_tree import Slot
from tracejit.capture.row_views import RowView, row_view
from tracejit.capture.snapshots import IdentityKey
from tracejit.capture.step_paths import form_of, is_equal, put_together, slot_of
from tracejit.core.aval import Aval
from tracejit.core.dtypes import int64
from tracejit.core.op import REGISTRY
from tracejit.ir.graph import Literal, Node
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.branching_loops import LoopRun

__all__ = ["VaryingKinds"]

_MOST: Final = 6
"""Kinds of things that a variable holds, at most."""


class VaryingKinds:
    """The variables of one run that hold things of several kinds.  By their names, for each kind, its form (step_paths.py) and the keys
    of its slots; the number of a kind is its position."""

    def __init__(self, run: LoopRun) -> None:
        self._run = run
        self._kinds: dict[str, list[tuple[Any, list[Any]]]] = {}
        self.rows: set[Any] = set()  # the keys of the slots of rows
        self.given: dict[str, Tensor] = {}  # by variables, the rows that the step is given that runs
        self._values_before = 0  # the step that has run last
        self._ends: list[Any] = []  # what variables hold after it
        self._guarded = 0  # the first ones of these, which the paths of the tree begin with

    def note_ends(self, values_before: int, ends: list[Any]) -> None:
        """Note what variables hold after a step.  values_before: the number of values before it."""
        self._values_before, self._ends = values_before, ends

    def end_slots(self, name: str, x: Any) -> list[tuple[Slot, Any]] | None:
        """The slots of a variable that a step changes, with what they hold after it, where it leaves `x` in the variable.  None if that is
        not of several kinds, or of too many."""
        if name in self.given and x is self.given[name]:
            return []
        form, held = self._form_of(name, x)
        kinds = self._kinds.get(name)
        if kinds is None:
            before = None if form is None else self._kinds_before(name, form)
            if before is None:
                return None
            kinds = self._kinds[name] = before
        if form is None:
            return None
        at = next((k for k, (other, _) in enumerate(kinds) if is_equal(other, form)), len(kinds))
        is_other_structure = type(form) is Structure and any(type(other) is Structure for other, _ in kinds[:at])
        if at == _MOST or (at == len(kinds) and is_other_structure):  # steps would go on in as many ways as there are lengths
            return None
        if at == len(kinds):
            kinds.append((form, [("variable", name, at, n) for n in range(len(held))]))
        keys = kinds[at][1]
        if type(form) is RowView:
            self.rows.add(keys[0])
            positions = [(Slot(key, Aval((), int64), int), y) for key, y in zip(keys[1:], held[1:], strict=True)]
            return [(slot_of(self._run.interpreter, keys[0], x), x), *positions, (Slot(_number(name), Aval((), int64), int), at)]
        slots = [(slot_of(self._run.interpreter, key, y), y) for key, y in zip(keys, held, strict=True)]
        return [*slots, (Slot(_number(name), Aval((), int64), int), at)]

    def _form_of(self, name: str, x: Any) -> tuple[Any, list[Any]]:
        """The same as `form_of`, with views of rows where the variable is read after the loop."""
        row = None
        if name in self._run.read_after and not self._run.is_nested and sum(x is y for y in self._ends) == 1:
            row = row_view(self._run, x, self._values_before)
        if row is not None:
            return row
        run, kinds = self._run, self._kinds.get(name, [])
        if any(form == ("object", IdentityKey(x)) for form, _ in kinds):  # what the variable held before the loop
            return ("object", IdentityKey(x)), []
        found = (None, list[Any]()) if run.structures.may_be_told_apart(name, x) else form_of(x)
        if found[0] is not None or x is run.fixed.get(name) or run.is_nested or name in run.places:
            return found
        is_given = any(x is y for y in run.fixed.values())  # to the step, in another variable
        return (("object", IdentityKey(x)), []) if is_given else run.structures.form_of(x)

    def _is_assigned(self, name: str) -> bool:
        """Whether each step assigns to a variable, and none reads what it held before."""
        return name not in self._run.loop.live_ins and not self._run.is_divided

    def _kinds_before(self, name: str, form: Any) -> list[tuple[Any, list[Any]]] | None:
        """The kind that a variable had so far which gets another one; none if each step assigns a row, or a structure, to it.  None if it
        gets no other kind, or one that cannot be carried."""
        run = self._run
        is_structure = type(form) is Structure or (type(form) is tuple and form[0] == "object")
        if run.is_nested or name in run.places or (run.may_stay_outside and type(form) is not RowView and not is_structure):
            return None
        if name in run.unbound - run.loop.passed:
            return None
        by_key = {slot.key: slot for slot in run.tree.slots}
        before: tuple[Any, list[Any]]
        if name in run.carried:
            before = run.carried[name].form, [run.tree.slots[k].key for k in run.carried[name].slots]
        elif ("variable", name) in by_key:
            before = by_key["variable", name].holds, [("variable", name)]
        elif name in run.fixed:
            if type(run.fixed[name]) is Tensor:
                return None
            is_object = form_of(run.fixed[name])[0] is None
            if is_object and type(form) is not Structure:
                return None
            before = ("object", IdentityKey(run.fixed[name])) if is_object else ("constant", run.fixed[name]), []
        else:
            has_parts = is_structure or (type(form) is tuple and form[0] is tuple)
            return [] if type(form) is RowView or (has_parts and self._is_assigned(name)) else None
        return None if is_equal(before[0], form) else [before]

    def begin_path(self) -> list[StepNode]:
        """The guards that the path of the step that has run last begins with, besides those that it was recorded with.  The paths before
        it get them, too."""
        run = self._run
        guards: list[StepNode] = []
        for name in [*self._kinds][self._guarded :]:
            slot = self._slot(name)
            run.tree.begin_with(slot, run.line, [k for k in range(len(run.parts)) if self._concerns(name, k)])
            if not self._concerns(name, run.part):
                continue
            node = Node(REGISTRY["guard"], (), (("expected", Literal(0)),), (), run.line)
            guards.insert(0, StepNode(node, ((LIVE_IN, slot),), node.attributes, True, (), ()))
        self._guarded = len(self._kinds)
        return guards

    def take(self, stand_ins: list[Tensor]) -> None:
        """Guard of which kinds the variables are that a step is given."""
        self.given = {}
        for name in [x for x in reversed([*self._kinds]) if self._concerns(x, self._run.part)]:
            self._run.take(stand_ins[self._slot(name)])

    def _concerns(self, name: str, part: int) -> bool:
        """Whether the paths of a part of the step begin with a guard on the kind of a variable, or of a place.  A part that only assigns to
        it does, too: paths that were recorded before there were several kinds leave the number of the kind as it was."""
        run = self._run
        own = run.parts[part]
        return not run.is_divided or name in run.places or name in own.live_ins or name in own.live_outs

    def views_given(self) -> dict[int, Tensor]:
        """The views that the step which has run last was given rows of, by the ids of these."""
        run = self._run
        return {
            id(x): put_together(None, form, iter([x, *[int(run.arrays[k]) for k in slots[1:]]]))
            for name, x in self.given.items()
            for form, slots in [run.carried[name]]
        }

    def take_ends(self, at: dict[Any, Tensor]) -> None:
        """The same for what follows the loop.  at: what the loop carries in the end."""
        for name in self._kinds.keys() & self._run.read_after:
            self._run.take(at[LIVE_IN, self._slot(name)])

    def settle(self) -> None:
        """Have the run know of which kinds the variables are now."""
        run = self._run
        for name, kinds in self._kinds.items():
            form, keys = kinds[int(run.arrays[self._slot(name)])]
            if not keys:
                run.carried.pop(name, None)
                run.fixed[name] = run.variables[name] = form[1].value if form[0] == "object" else form[1]
            else:
                run.fixed.pop(name, None)
                run.carry(name, form, keys)

    def _slot(self, name: str) -> int:
        key = _number(name)
        return next(k for k, slot in enumerate(self._run.tree.slots) if slot.key == key)


def _number(name: str) -> tuple[str, str]:
    """The key of the slot of the number of a kind."""
    return "kind", name
