"""Lists that steps of loops append to and that other code can reach: `self.history.append(x)`, `log["loss"].append(y)`, an argument.

There are three kinds, which `Origins.reached` has by their ids:

* An `OwnList` is one that the call has made.  Once a loop node stands for steps, rows of its results stand for items
  (stacked_items.py).  The program may append items, and join them: `stack(log["x"])`, `len(self.history)`.
* An `OutsideList` is from outside.  What is appended to it becomes the argument of one call of `extend` after the program.  It is
  joined, too, if the call has read or cleared the list before.
* A `_GrownList` is one to which the steps of a branching loop append that runs.  Such lists are found in the source (step_places.py),
  or as a step appends to one; then the steps are made again.  The list stays as it was before the loop; what steps append is noted
  beside it.  An item, or each part of one that is a tuple or a dictionary, is a column of the node (appended_items.py).  After the loop
  the list is one of the two others, with rows in it.

Whatever else looks at such a list, or changes it, asks for its origin first (`Origins.is_outside`), which calls `look`.  In a step
that appends to it, this stops the recording, once the list has its items.  Otherwise an own list gets items of its own; one from
outside with rows in it is read no more (`ContentHandlers.extended`), since it is not known how many items it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tracejit.capture.handlers.effects import FunctionCall, MethodCall
from tracejit.capture.handlers.stand_ins import plain_value
from tracejit.capture.policies import APPENDING
from tracejit.capture.recording.journal import Topic
from tracejit.capture.recording.selected_rows import records_of
from tracejit.capture.stacked_items import StackedItems, StackedRecords, has_stacked, joined_items, plain_items, unstack
from tracejit.capture.step_paths import PRIMITIVE, Refused
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.branching_loops import LoopRun
    from tracejit.capture.handlers.recorder import Recorder
    from tracejit.capture.snapshots import Snapshot

__all__ = ["OutsideList", "OwnList", "ReachedLists", "appended_lists", "note_appended", "note_filled"]

_UNKNOWN = object()
_LOOKS: Final = "a step reads, or changes otherwise, a list in an object that steps append to"


@dataclass(slots=True, eq=False)
class _GrownList:
    """A list that steps append to.

    is_certain: whether steps have appended to it.  form: of its items, as in StackedRecords; _UNKNOWN before there is one.  columns: the
    numbers of the lists of their parts.  constants: for each part, the constants of which the column has the numbers; None of one that has
    the parts themselves.  before: the items of steps that stay outside of the node.  known: what was known of the list before the loop."""

    run: LoopRun
    items: list[Any]
    is_certain: bool
    form: Any = _UNKNOWN
    columns: list[int] = field(default_factory=list)
    constants: list[list[Any] | None] = field(default_factory=list)
    before: list[Any] = field(default_factory=list)
    known: OwnList | OutsideList | None = None

    def add(self, name: str, arguments: tuple[Any, ...]) -> bool:
        """Note that the program calls a method of the list that adds items.  Returns whether that is all there is to do."""
        recorder = self.run.recorder
        if self.run.interpreter.loops_around[-1:] != [self.run] or (added := _added_items(recorder, name, arguments)) is None:
            return False
        if recorder.stopped:
            recorder.perform(lambda: self.items.extend(map(plain_value, added)))
        else:
            self.run.reached.pending.extend([(self, item) for item in added])
        return True

    def join(self, function: Any, others: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """See OwnList: the list lacks items."""
        return None

    def look(self) -> None:
        """Stop the recording if steps have appended to the list, since one is about to read it, or to change it otherwise."""
        if not self.is_certain and not any(grown is self for grown, _ in self.run.reached.pending):
            self.run.reached.forget(self)
            if self.known is not None:
                self.known.look()
            return
        self.run.recorder.stop("outlined_loop", f"the loop at {self.run.line}: {_LOOKS}")

    def parts(self, item: Any) -> list[Any]:
        """The parts of an item.  Raises Refused for one of another form than those before."""
        form: Any = None
        parts = [item]
        if type(item) is tuple:
            form, parts = tuple, [*item]
        elif type(item) is dict and all(type(key) is str for key in item):
            form, parts = tuple(item), [*item.values()]
        are_constants = [type(x) in PRIMITIVE for x in parts]
        if self.form is _UNKNOWN:
            self.form, self.is_certain = form, True
            self.constants = [[] if is_constant else None for is_constant in are_constants]
            self.columns = [self.run.items.new_list(is_of_program=True) for _ in parts]
        if self.form != form or are_constants != [known is not None for known in self.constants]:
            raise Refused("items of a list differ in their parts, or in the types of these")
        return [x if known is None else _number_of(x, known) for x, known in zip(parts, self.constants, strict=True)]

    def records(self, columns: Sequence[list[Any]]) -> list[Any]:
        """Items of which these are the parts."""
        return records_of(self.form, self.all_constants, *columns) if columns else []

    @property
    def all_constants(self) -> tuple[tuple[Any, ...] | None, ...]:
        """Those of each part."""
        return tuple([None if known is None else tuple(known) for known in self.constants])


@dataclass(slots=True, eq=False)
class OwnList:
    """A list that the call has made, and that code has only appended to, or joined, since this was noted: it may have rows of nodes in
    it."""

    recorder: Recorder
    items: list[Any]

    @property
    def rows(self) -> list[Any]:
        """The list that gets rows."""
        return self.items

    def add(self, name: str, arguments: tuple[Any, ...]) -> bool:
        """See _GrownList.  A step of any loop may append to the list."""
        added = _added_items(self.recorder, name, arguments)
        if added is None:
            return False
        self.recorder.journal.note(Topic.APPENDED)
        for run in self.recorder.interpreter.loops_around[-1:]:
            run.reached.note_length(self.items)
        self.recorder.containers.native(lambda: self.items.extend(added))
        return True

    def join(self, function: Any, others: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """See `joined_items`.  Whether two steps of a loop do the same does not show in a list that each step joins."""
        recorder, program = self.recorder, self.recorder.interpreter
        if program.loops_around:
            return None
        may_be_empty = all(isinstance(x, StackedItems) and x.count is None for x in self.items)
        if may_be_empty and function is not len:  # of no items, results are of another kind, if there is one
            length = joined_items(program, len, self.items)  # type: ignore[arg-type]
            if length is None or not recorder.operators.truth(recorder.operators.binary(">", length, 0)):
                return None
        result = joined_items(program, function, self.items, *others, **keywords)  # type: ignore[arg-type]
        if result is not None:
            recorder.journal.note()
        return result

    def look(self) -> None:
        """Give the list items of its own."""
        del self.recorder.reached[id(self.items)]
        self.unstack()

    def unstack(self) -> None:
        """Replace rows by items."""
        if self.recorder.interpreter.loops_around and has_stacked(self.items):
            self.recorder.stop("outlined_loop", "a loop: a step reads a list that steps of another loop have appended to")
        unstack(self.items, self.recorder)

    def extend(self, more: list[Any]) -> None:
        """Append what steps have appended that a node stands for."""
        self.items.extend(more)
        self.recorder.stacked_lists.append(self.items)


@dataclass(slots=True, eq=False)
class OutsideList:
    """A list from outside to which steps of loops only append.  added: the items, which one call of `extend` adds after the program.
    position: of that call among the effects.  known: how many of the items `SequenceEnds` has counted already.  before: what was in front
    of them, if the call has read or cleared the list; else None."""

    recorder: Recorder
    items: list[Any]
    added: OwnList
    position: int
    known: int = 0
    before: list[Any] | None = None

    @property
    def rows(self) -> list[Any]:
        """The list that gets rows."""
        return self.added.items

    def add(self, name: str, arguments: tuple[Any, ...]) -> bool:
        """See _GrownList.  Calls that are made after the program find the list as it was where the function makes them: what is appended
        after such a call is no part of this `extend`."""
        if self.recorder.interpreter.loops_around or self.is_over:
            self.look()
            return False
        added = _added_items(self.recorder, name, arguments)
        if added is None:
            return False
        self.recorder.perform(lambda: self.items.extend(map(plain_value, added)))
        return self.recorder.stopped or self.added.add("extend", (added,))

    @property
    def is_over(self) -> bool:
        """Whether a call follows this call of `extend`, so that later changes have to follow that."""
        return any(type(x) is FunctionCall for x in self.recorder.effects.in_order[self.position :])

    def join(self, function: Any, others: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """See OwnList: it is joined where all its contents are known."""
        if self.before is None:
            return None
        return OwnList(self.recorder, [*self.before, *self.rows]).join(function, others, keywords)

    def look(self) -> None:
        """End the call of `extend`.  If there are rows, and others before them, it is not known how many items there are."""
        recorder, added = self.recorder, self.added.items
        del recorder.reached[id(self.items)]
        recorder.reached.pop(id(added), None)
        if self.before is not None:
            OwnList(recorder, added).unstack()
            if not recorder.stopped:
                self.items[:] = map(plain_value, (*self.before, *added))
                recorder.contents.remember_items(self.items, [*self.before, *added])
        elif has_stacked(added):
            recorder.contents.extended.add(id(self.items))
        elif added[self.known :]:
            recorder.sequences.ends_of(self.items).push("extend", added[self.known :])

    def extend(self, more: list[Any]) -> None:
        """Append what steps have appended that a node stands for."""
        self.recorder.perform(lambda: self.items.extend(map(plain_value, plain_items(more))))
        self.added.extend(more)


def _added_items(recorder: Recorder, name: str, arguments: tuple[Any, ...]) -> list[Any] | None:
    """What a call of a method adds to a list; None if it does anything else.  It may stop the recording."""
    if name not in APPENDING or len(arguments) != 1:
        return None
    return [arguments[0]] if name == "append" else [*recorder.container_methods.consumable(arguments[0])]


def note_filled(recorder: Recorder, items: list[Any]) -> None:
    """Note that a list has rows of a node in it, which anything in the program may look at."""
    recorder.stacked_lists.append(items)
    recorder.reached[id(items)] = OwnList(recorder, items)


def _known_of(recorder: Recorder, items: list[Any]) -> OwnList | OutsideList | None:
    """What is known of a list to which steps are about to append; None if nothing is, or a call has followed what was appended."""
    known = recorder.reached.get(id(items))
    if isinstance(known, OutsideList) and known.is_over:
        known.look()
        return None
    return known if isinstance(known, OwnList | OutsideList) else None


def appended_lists(recorder: Recorder) -> list[OwnList | OutsideList]:
    """What is known of each list to which the program has only appended, without those that are arguments of `extend`."""
    found = [x for x in recorder.reached.values() if isinstance(x, OwnList | OutsideList)]
    added = [id(x.added) for x in found if isinstance(x, OutsideList)]
    return [x for x in found if id(x) not in added]


def note_appended(recorder: Recorder, items: list[Any], since: int | None = None) -> OwnList | OutsideList:
    """Note that steps of a loop append to a list that does not lack items.  Returns what is known of it from then on.  since: where the
    effects of the first step begin, if that has appended as any other code does."""
    if not recorder.is_outside(items):
        recorder.reached[id(items)] = own = OwnList(recorder, items)
        return own
    effects, added = recorder.effects, recorder.mark_created([])
    is_known = id(items) in effects.content_guarded
    before = [*recorder.contents.elements(items)] if is_known else None
    if not is_known:
        recorder.sequences.ends_of(items)
        effects.note_change(items)
    extending = MethodCall(items, "extend", (added,))
    begin = len(effects.in_order) if since is None else since
    found = [(k, x) for k, x in enumerate(effects.in_order) if k >= begin and isinstance(x, MethodCall) and x.container is items]
    position = found[0][0] if found else begin
    is_first = [x.method for _, x in found] == ["append"]
    if is_first and not any(type(x) is FunctionCall for x in effects.in_order[position:]):  # becomes part of the same call
        added += found[0][1].arguments
        effects.in_order[position] = extending
        before = None if before is None else before[:-1]
    else:
        position = len(effects.in_order)
        effects.note_method(extending)
    recorder.reached[id(added)] = own = OwnList(recorder, added)
    recorder.reached[id(items)] = outside = OutsideList(recorder, items, own, position, len(added), before)
    return outside


class ReachedLists:
    """The lists of one run.  pending: what the step that runs has appended, each with its list."""

    def __init__(self, run: LoopRun) -> None:
        self._run, self._recorder = run, run.recorder
        self._lists: list[_GrownList] = []
        self._lengths: dict[int, tuple[list[Any], int]] = {}  # by ids: lists that a step finds, with their lengths before it
        self.first_effect = self._calls = 0  # where the effects of the step begin, and its output
        self._found: set[int] = set()  # ids of the dictionaries that the step finds
        self._looked_at: set[int] = set()  # ids of the lists that it has looked at
        self.pending: list[tuple[_GrownList, Any]] = self._recorder.journal.list()
        self._known: dict[int, Tensor] = {}  # objects, by their numbers, that lists have got where the recording has stopped

    # -- a step
    def begin_step(self, before: Snapshot | str) -> None:
        """Note what a step finds."""
        containers = [] if isinstance(before, str) else before.containers
        self.first_effect, self._calls = len(self._recorder.effects.in_order), len(self._recorder.effects.opaque_calls)
        self._found = {id(x) for x in containers if type(x) is dict}
        self._lengths = {id(x): (x, len(x)) for x in containers if type(x) is list}
        self._looked_at.clear()

    def note_length(self, items: list[Any]) -> None:
        """Note the length of a list before the step, which is about to append to it."""
        self._lengths.setdefault(id(items), (items, len(items)))

    def new(self) -> list[tuple[list[Any], int]]:
        """The lists that the step has appended to, and that were not known: each with its length before.  Raises Refused."""
        effects = self._recorder.effects
        added: dict[int, tuple[list[Any], int]] = {}
        for effect in effects.in_order[self.first_effect :]:
            if type(effect) is not MethodCall or type(effect.container) is not list:
                continue
            if effect.method not in APPENDING:
                self._looked_at.add(id(effect.container))
            else:
                items, (argument,) = effect.container, effect.arguments
                length = added.get(id(items), (items, len(items)))[1]
                added[id(items)] = items, length - (1 if effect.method == "append" else len(argument))
        longer = {k: (x, length) for k, (x, length) in self._lengths.items() if len(x) > length}
        found = [(x, length) for x, length in {**longer, **added}.values() if self._may_grow(x)]
        if any(id(x) in self._looked_at for x, _ in found):
            raise Refused(_LOOKS)
        has_output = self._run.calls.are_any or len(effects.opaque_calls) > self._calls
        if found and (self._run.is_nested or self._run.is_divided or has_output):
            raise Refused("a step appends to a list in an object")
        return found

    def _may_grow(self, items: list[Any]) -> bool:
        """Whether this loop may take over a list: it has not done so, and does not go over it."""
        is_known = type(self._recorder.reached.get(id(items))) is _GrownList
        return not (is_known or self._run.gathered.goes_over(items))

    def begin(self, lists: Sequence[tuple[list[Any], int]], are_certain: bool) -> None:
        """Have steps append to these lists, which get back the lengths that they had.  are_certain: whether one has appended to them."""
        for items, length in lists:
            if not self._may_grow(items):
                continue
            known = _known_of(self._recorder, items)
            del items[length:]
            grown = _GrownList(self._run, items, are_certain, known=known)
            self._lists.append(grown)
            self._recorder.reached[id(items)] = grown

    def forget(self, grown: _GrownList) -> None:
        """No step has appended to this list: whatever the one that runs does may be done."""
        self.note_length(grown.items)
        self._looked_at.add(id(grown.items))
        self._end(grown)

    def _end(self, grown: _GrownList) -> None:
        """Steps do not append to this list any more."""
        self._lists = [x for x in self._lists if x is not grown]
        del self._recorder.reached[id(grown.items)]
        if grown.known is not None:
            self._recorder.reached[id(grown.items)] = grown.known

    def of_step(self, returns: bool) -> dict[int, list[Any]]:
        """What the step appends to the lists of parts.  returns: whether it returns from the function.  Raises Refused."""
        found: dict[int, list[Any]] = {}
        dictionaries: set[int] = set()
        for grown, item in self.pending:
            parts = grown.parts(item)
            if type(item) is dict:
                is_own = self._recorder.is_created(item) and id(item) not in self._found
                if returns or id(item) in dictionaries or not is_own:
                    raise Refused("an item of a list is a dictionary that something else holds, too")
                dictionaries.add(id(item))
            for k, part in zip(grown.columns, parts, strict=True):
                if isinstance(part, Tensor) and part.requires_grad:
                    raise Refused("an item of a list in an object requires grad")
                found.setdefault(k, []).append(part)
        return found

    # -- steps that are no part of the node
    def keep(self, original: Callable[[Any], Any]) -> None:
        """Have what the step has appended stand before the rows.  original: what a stand-in of the step stands for."""
        for grown, item in self.pending:
            if type(item) is dict:
                item.update({key: original(x) for key, x in item.items()})
            grown.before.append(original(item))
        self.pending.clear()

    def flush(self, known: dict[int, Tensor], original: Callable[[Any], Any] = plain_value) -> None:
        """Put all items so far into the lists, since the recording has stopped.  known: objects, by their numbers, to which those that
        lists have got are added.  original: what a stand-in of the step that runs stands for."""
        known.update(self._known)
        lists = self._lists
        for grown in lists:
            self._end(grown)
            columns = [self._run.items.plain_items(k, known) for k in grown.columns]
            grown.items.extend([*map(original, grown.before), *grown.records(columns)])
        for grown, item in self.pending:
            grown.items.append(original(item))
        self.pending.clear()
        self._known = {**known} if lists else self._known

    # -- after the loop
    def emit(self, rows: Sequence[Tensor], held: Mapping[int, Tensor]) -> None:
        """Have the entry put the items of all steps into the lists.  rows, held: see AppendedItems.lists."""
        if not self._lists:
            return
        recorder, items = self._recorder, self._run.items
        columns = items.columns(rows)
        items.watch(held)
        for grown in [*self._lists]:
            stacked = [items.stacked(k, columns, held, may_be_none=True) for k in grown.columns]
            added = [*grown.before]
            if any(stacked):
                is_alone = grown.form is None and grown.constants == [None]
                added += stacked[0] if is_alone else [StackedRecords(tuple(stacked), grown.all_constants, grown.form)]
            self._end(grown)
            if added:
                (_known_of(recorder, grown.items) or note_appended(recorder, grown.items)).extend(added)


def _number_of(x: Any, known: list[Any]) -> int:
    """The number of a constant among those known."""
    at = next((k for k, y in enumerate(known) if type(y) is type(x) and repr(y) == repr(x)), len(known))
    if at == len(known):
        known.append(x)
    return at
