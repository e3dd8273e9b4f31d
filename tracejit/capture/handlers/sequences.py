"""Lists, deques and arrays from outside whose content is not guarded, so that their length may differ in each call.

The length is a number from outside.  Items are read at fixed positions from an end.  What the run adds or removes at an end is
noted in sequence_ends.py.  Where something depends on the length (an item that may be an old or a new one), the whole content is
guarded, and the list is like any other (contents.py).  For a list that grows with each call that is no use: the recording stops.
"""

from __future__ import annotations

import array
import collections
from typing import TYPE_CHECKING, Any

from tracejit.capture.handlers.base import ABSENT, Handlers
from tracejit.capture.handlers.contents import builtin_item, item_of, length_of, membership
from tracejit.capture.handlers.effects import ItemStore, MethodCall
from tracejit.capture.handlers.sequence_ends import SequenceEnds, fixed_positions
from tracejit.capture.handlers.stand_ins import plain, plain_value
from tracejit.capture.policies import builtin_base, is_a
from tracejit.replay.ir import Compare, Expr, Name, Not

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["ENDS", "SEQUENCES", "SequenceHandlers"]

SEQUENCES: tuple[type, ...] = (list, collections.deque, array.array)
ENDS: dict[str, bool] = {"append": False, "extend": False, "appendleft": True, "pop": False, "popleft": True}
"""Method that adds or removes items at one end -> whether that is the left end."""


class SequenceHandlers(Handlers):
    """`losses.append(v)`, `losses[-1]`, `losses[-3:]`, `len(losses)`, `window.popleft()`."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        journal = recorder.journal
        self.lengths: dict[Name, int] = journal.dictionary()  # variable of a length -> id of the sequence

    def open_ends(self, owner: Any, items: bool = True) -> SequenceEnds | None:
        """The ends of a list, deque or array from outside whose content is not guarded; None for other objects.  The content of a
        deque that has dropped items because it is full is guarded now.  items: whether more than the length is read."""
        recorder = self.recorder
        recorder.contents.check_extended(owner)
        if items:
            recorder.contents.check_reordered(owner)
        if (
            recorder.stopped
            or id(owner) in recorder.effects.content_guarded
            or not (recorder.is_outside(owner) and is_a(owner, SEQUENCES))
        ):
            return None
        ends = self.ends_of(owner)
        if is_a(owner, collections.deque):
            recorder.miss_if(recorder.sources[id(owner)].get("maxlen").differs(ends.most))
        elif is_a(owner, array.array):
            recorder.miss_if(recorder.sources[id(owner)].get("typecode").differs(owner.typecode))
        if ends.most is not None:
            if ends.overflowed:
                recorder.contents.read_elements(owner)
                return None
            if ends.front or ends.back:
                self._at_most(owner, ends.most - ends.growth)
        return ends

    def ends_of(self, owner: Any) -> SequenceEnds:
        """The ends of a sequence from outside."""
        recorder = self.recorder
        ends = recorder.contents.ends.get(id(owner))
        if ends is None:
            length = builtin_base(type(owner)).__len__(owner)
            ends = recorder.contents.ends[id(owner)] = SequenceEnds(
                length, owner.maxlen if is_a(owner, collections.deque) else None
            )
            recorder.keep.append(owner)
        return ends

    def _length_before(self, owner: Any) -> Expr:
        return length_of(type(owner), self.recorder.sources[id(owner)])

    # -- guards on the length before the call
    def at_least(self, owner: Any, length: int) -> None:
        """Guard that `owner` has at least `length` items before the call."""
        if length > 0:
            self.recorder.miss_if(self._length_before(owner).compared("<", length))

    def _at_most(self, owner: Any, length: int) -> None:
        self.recorder.miss_if(self._length_before(owner).compared(">", length))

    def outside_length(self, owner: Any) -> Any:
        """len(owner) of a container from outside: a symbolic number as long as the content is not guarded."""
        recorder = self.recorder
        base = builtin_base(type(owner))
        if is_a(owner, SEQUENCES):
            ends = self.open_ends(owner, items=False)
            if ends is None:
                return base.__len__(owner)
            before, now = ends.length, ends.length + ends.growth
        else:
            now = base.__len__(owner)
            before = now - self._grown_by(owner)
        if id(owner) in recorder.effects.content_guarded or recorder.stopped:
            return now
        number = recorder.define_number(self._length_before(owner), before, check_type=False)
        recorder.facts.numbers.setdefault(number._name, f"len({recorder.facts.name(owner)})")
        length = number if now == before else number + (now - before)
        self.lengths[length._name] = id(owner)
        return length

    def note_guard(self, condition: Expr) -> None:
        """Note that a comparison is guarded.  If it compares a length, that limits the container."""
        if isinstance(condition, Compare) and isinstance(condition.left, Name) and condition.left in self.lengths:
            self.recorder.contents.limited.add(self.lengths[condition.left])

    def _grown_by(self, owner: Any) -> int:
        """By how many keys or members this run has enlarged a dictionary or set.  Guards require that in each call the same ones
        are new."""
        recorder = self.recorder
        if id(owner) not in recorder.effects.originals:
            return 0
        before = recorder.effects.originals[id(owner)]
        keys = (
            [key for container, key in recorder.effects.written if container == id(owner)]
            if is_a(owner, dict)
            else self._members(owner)
        )
        expressions = [recorder.contents.key_expression(key) for key in keys]
        if None in expressions:
            recorder.contents.read_content(owner)
        for key, expression in zip(keys, expressions, strict=True):
            if expression is not None:
                there = membership(type(owner), recorder.sources[id(owner)], expression)
                recorder.miss_if(Not(there) if key in before else there)
        return int(builtin_base(type(owner)).__len__(owner)) - len(before)

    def _members(self, owner: Any) -> list[Any]:
        """The members that this run has added to a set."""
        calls = [effect for effect in self.recorder.effects.in_order if type(effect) is MethodCall and effect.container is owner]
        return [item for call in calls for a in call.arguments for item in (a if call.method == "update" else (a,))]

    # -- items
    def end_item(self, owner: Any, key: int) -> Any:
        """owner[key], counted from one end; ABSENT if the content has to be guarded first."""
        ends = self.open_ends(owner)
        if ends is None:
            return ABSENT
        length = ends.length + ends.growth
        if not -length <= key < length:
            self._at_most(owner, (key if key >= 0 else -key - 1) - ends.growth)
            return builtin_base(type(owner)).__getitem__(owner, key)  # raises Python's error
        if key < 0:
            if -key <= len(ends.back):
                return ends.back[key]
            return self._old_from_end(owner, ends, -key - len(ends.back) + ends.last)
        if key < len(ends.front):
            return ends.front[key]
        return self._old_from_start(owner, ends, key - len(ends.front) + ends.first)

    def _old_from_end(self, owner: Any, ends: SequenceEnds, position: int) -> Any:
        """The original item at `position` from the end; ABSENT if guards cannot ensure that it is one."""
        if position > ends.length - ends.first or not self._is_disjoint(owner, ends, (), (position,)):
            return ABSENT
        if ends.first or position in ends.changed:  # else reading the item in the prologue ensures the length
            self.at_least(owner, ends.first + position)
        if position in ends.changed:
            return ends.changed[position]
        value = builtin_item(self.recorder.effects.originals.get(id(owner), owner), -position)
        return self._old(owner, value, -position)

    def _old_from_start(self, owner: Any, ends: SequenceEnds, position: int) -> Any:
        """The original item at `position` from the start; ABSENT if guards cannot ensure that it is one."""
        recorder = self.recorder
        if position >= ends.length - ends.last or not self._is_disjoint(owner, ends, (position,), ()):
            return ABSENT
        if ends.last:
            self.at_least(owner, position + ends.last + 1)
        key = id(owner), position
        if key in recorder.effects.stored:
            return recorder.effects.stored[key]
        value = builtin_item(recorder.effects.originals.get(id(owner), owner), position)
        return (
            builtin_base(type(owner)).__getitem__(owner, position)
            if key in recorder.effects.written
            else self._old(owner, value, position)
        )

    def _old(self, owner: Any, value: Any, position: int) -> Any:
        """`value`, the item of the original at an index, guarded or as a symbolic number."""
        recorder = self.recorder
        expression = item_of(type(owner), recorder.sources[id(owner)], position)
        return recorder.read(value, expression, called=recorder.facts.item(owner, position), symbolic=True, truths=True)

    def _is_disjoint(self, owner: Any, ends: SequenceEnds, from_start: tuple[int, ...], from_end: tuple[int, ...]) -> bool:
        """Whether positions of the original, counted from one end, differ from those that were written to by counting from the other
        end.  If so, that is guarded."""
        if from_end:
            written = self.recorder.effects.written
            from_start = (*from_start, *[key for container, key in written if container == id(owner) and type(key) is int])
        from_end = (*from_end, *(ends.changed if from_start else ()))
        if from_start and from_end:
            least = max(from_start) + max(from_end) + 1
            if ends.length < least:
                return False
            self.at_least(owner, least)
        return True

    def set_end_item(self, owner: Any, key: int, value: Any) -> bool:
        """Do owner[key] = value, counted from one end; False, and nothing is done, if the content has to be guarded first."""
        recorder = self.recorder
        ends = self.open_ends(owner)
        if ends is None or not -ends.length - ends.growth <= key < ends.length + ends.growth:
            return False
        if key < 0:
            position = -key - len(ends.back) + ends.last
            if -key <= len(ends.back):
                ends.back[key] = value
            elif position > ends.length - ends.first or not self._is_disjoint(owner, ends, (), (position,)):
                return False
            else:
                self.at_least(owner, ends.first + position)
                ends.changed[position] = value
        elif key < len(ends.front):
            ends.front[key] = value
        elif ends.moved or key >= ends.length - ends.last or not self._is_disjoint(owner, ends, (key,), ()):
            return False
        else:
            self.at_least(owner, key + ends.last + 1)
            recorder.effects.check_dropped(builtin_item(owner, key))
            builtin_base(type(owner)).__setitem__(owner, key, plain_value(value))
            recorder.effects.note_store((id(owner), key), ItemStore(owner, key, value))
            return True
        recorder.effects.note_change(owner)
        recorder.effects.check_dropped(builtin_item(owner, key))
        builtin_base(type(owner)).__setitem__(owner, key, plain_value(value))
        recorder.effects.note_method(MethodCall(owner, "__setitem__", (key, value)))
        return True

    def end_slice(self, owner: Any, key: slice) -> Any:
        """The items of owner[key], for a slice at one end of a list; ABSENT if the content has to be guarded first."""
        ends = self.open_ends(owner)
        if ends is None or not is_a(owner, list) or not {type(p) for p in (key.start, key.stop, key.step)} <= {int, type(None)}:
            return ABSENT
        length = ends.length + ends.growth
        fixed = fixed_positions(key, length)
        if fixed is not None:
            least, positions = fixed
            self.at_least(owner, least - ends.growth)
        elif fixed_positions(key, 1 << 62) is not None:  # the list is too short, but a longer one will not be
            self.recorder.miss_if(self._length_before(owner).differs(ends.length))
            positions = [position - length for position in range(*key.indices(length))]
        else:
            return ABSENT
        items = [self.end_item(owner, position) for position in positions]
        return ABSENT if any(item is ABSENT for item in items) else items

    # -- changes
    def stores_as_it_is(self, owner: Any, values: Any) -> bool:
        """Whether `owner` stores these values unchanged.  Only arrays may convert or refuse them."""
        if not is_a(owner, array.array):
            return True
        self.recorder.miss_if(self.recorder.sources[id(owner)].get("typecode").differs(owner.typecode))
        return bool(owner.typecode == "d" and all(type(plain(value)) is float for value in values))

    def end_changed_by(self, owner: Any, name: str, arguments: tuple[Any, ...]) -> bool | None:
        """Whether a method call adds or removes an item at the left end (True) or the right end (False); None for other calls."""
        if name == "insert":
            return True if type(arguments[0]) is int and arguments[0] == 0 else None
        if name in ("pop", "__delitem__") and arguments:
            return {0: True, -1: False}.get(arguments[0]) if type(arguments[0]) is int else None
        return ENDS.get(name)

    def item_to_pop(self, owner: Any, left: bool) -> Any:
        """The item that is about to be removed at an end; ABSENT if the content has to be guarded first."""
        ends = self.open_ends(owner)
        if ends is None or ends.length + ends.growth == 0 or (left and self.is_written(owner)):
            return ABSENT
        if not ends.takes_old(left):
            return (ends.front if left else ends.back)[0 if left else -1]
        if ends.rest == 0:
            return ABSENT
        return self._old_from_start(owner, ends, ends.first) if left else self._old_from_end(owner, ends, ends.last + 1)

    def is_written(self, owner: Any) -> bool:
        """Whether this run has written to a position counted from the start."""
        return any(container == id(owner) for container, _ in self.recorder.effects.written)
