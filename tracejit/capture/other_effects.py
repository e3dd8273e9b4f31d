"""What a step of a branching loop does besides computing, in words for users: why the loop is no node, and whether a step may be made
again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tracejit.capture.handlers.effects import (
    AttributeStore,
    CellStore,
    DataStore,
    EffectTarget,
    FunctionCall,
    GradStore,
    ItemStore,
    MethodCall,
)
from tracejit.capture.handlers.symbols import MethodOf
from tracejit.capture.policies import APPENDING, is_user_instance
from tracejit.capture.recording.journal import Mark, Topic
from tracejit.capture.snapshots import Snapshot, calls_in
from tracejit.core.package_files import PACKAGE_NAME
from tracejit.replay.ir import Name

if TYPE_CHECKING:
    from tracejit.capture.branching_loops import LoopRun
    from tracejit.capture.found_places import Found
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["does_more", "what_has_changed", "why_not_again"]


_ELSE: Final = "something outside, or calls what is not in the program"


def what_has_changed(run: LoopRun, before: Snapshot, after: Snapshot, entered: Mark) -> str:
    """What code finds in another state after a step; "" if it finds all as before.  entered: when the step began."""
    if after.is_unchanged_since(before):
        return ""
    name = after.place_of_difference(before)
    detail = repr(name) if name else _change(run, entered)
    return "a step changes what it has not made" + (f": {detail}" if detail else "")


def why_not_again(
    run: LoopRun,
    lists: Sequence[tuple[list[Any], int]],
    found: Found,
    before: Snapshot,
    in_places: Mapping[str, Any],
    entered: Mark,
    may_have_output: bool = False,
) -> str:
    """Why a step that has appended to lists, or stored in places, cannot be made again: what else it has changed; "" if it can.  The lists
    are shortened while this is compared.  lists: each with its length before the step.  found: the places.  may_have_output: whether it
    may have made calls for output.  The others: see `describe_path`."""
    added, ids = [(items, items[length:]) for items, length in lists], {id(items) for items, _ in lists}
    places = [place.target for place, _ in found]
    effects = [*enumerate(run.recorder.effects.in_order)]
    known = [k for k, x in effects if k >= run.reached.first_effect and _appends(x, ids)]
    known += [k for place in places for k in run.places.found.changes.positions.get(place, ())]
    if may_have_output:
        known += [k for k, x in effects if k >= run.reached.first_effect and isinstance(x, FunctionCall)]
    replaced = {k: x for k, x in run.places.found.changes.replaced.items() if k in known}
    for items, length in lists:
        del items[length:]
    now = {k: run.recorder.effects.in_order[k] for k in replaced}
    for k, x in replaced.items():
        list.__setitem__(run.recorder.effects.in_order, k, x)
    try:
        after = run.places.reachable_after(in_places, [k for k in known if k not in replaced], found)
    finally:
        for k, x in now.items():
            list.__setitem__(run.recorder.effects.in_order, k, x)
        for items, more in added:
            items.extend(more)
    if isinstance(after, str):
        return after
    if why := what_has_changed(run, before, after, entered):
        return why
    changed = _change(run, entered, ids, places, may_have_output)
    what = "appends to a list" if lists else "stores in a place"
    return f"a step {what}, and changes {changed}" if changed else ""


def does_more(run: LoopRun, entered: Mark) -> str:
    """What a step has done besides operations, reads, draws, output, and stores in its places; "" if that is all.  entered: when it
    began."""
    if detail := _change(run, entered):
        return f"a step does more than compute: it changes {detail}"
    recorder = run.recorder
    if not (calls := calls_in(recorder, recorder.prologue[entered.statements :])):
        return ""
    function = calls[0].function
    called = recorder.namespace.get(function.name) if isinstance(function, Name) else None
    name = getattr(called, "__qualname__", "")
    return f"a step does more than compute: it calls {f'{name}()' if name else 'what is not in the program'}"


def _change(
    run: LoopRun, entered: Mark, lists: Collection[int] = (), places: Collection[EffectTarget] = (), may_have_output: bool = False
) -> str:
    """What a step has changed outside, rather something else than a call for output; "" if nothing but lists with these ids, and these
    places."""
    interpreter, recorder = run.interpreter, run.recorder
    effects = recorder.effects
    # These tell what has been read and guarded, or that something has happened once.  What was stored is in further tables, too.
    firsts = (
        interpreter.states,
        interpreter.uncounted,
        type(interpreter).backward_ran,
        type(interpreter)._wrote,
        type(effects).dropped,
    )
    sizes = recorder.sizes
    read = (effects.stored, effects.content_guarded, recorder.contents.ends, recorder.guarded_by_value, recorder.positions)
    known = (
        *read,
        *firsts,
        run.reached.pending,
        *sizes.tables_of_names(),
        *recorder.ragged.tables(),
        *((effects.opaque_calls,) if run.calls.positions or may_have_output else ()),
    )
    stores, containers = set(run.positions), {number for number, _ in places}
    stores.update([k for place in places for k in run.places.found.changes.positions.get(place, ())])
    found, calls = "", ""
    for table, place in interpreter.journal.changes(entered, Topic.READS | Topic.NUMBERS | Topic.APPENDED):
        if lists and _is_about(recorder, table, place, lists):
            continue
        if table is recorder.container_methods.orders and place not in run.sets_found:
            continue
        if (table is effects.written and place in places) or (table is effects.originals and place in containers):
            continue
        if any(table is x for x in known) or (table is effects.in_order and place in stores):
            continue
        if table is effects.in_order and isinstance(place, int) and place < len(effects.in_order):
            effect = effects.in_order[place]
            if _appends(effect, lists):
                continue
            if not isinstance(effect, FunctionCall):
                return _text(effect)
            if may_have_output:
                continue
            calls = calls or _text(effect)
        elif table is not effects.opaque_calls:
            changed = table.get(place) if isinstance(table, dict) else None
            is_own = type(changed).__module__.startswith(f"{PACKAGE_NAME}.")  # says nothing to users
            is_named = (is_user_instance(changed) and not is_own) or isinstance(changed, Random)
            found = found or (f"a {type(changed).__name__}" if is_named else _ELSE)
    return found or calls


def _appends(effect: Any, lists: Collection[int]) -> bool:
    """Whether an effect adds items to one of these lists, by their ids."""
    return isinstance(effect, MethodCall) and effect.method in APPENDING and id(effect.container) in lists


def _is_about(recorder: Recorder, table: Any, place: Any, lists: Collection[int]) -> bool:
    """Whether a change of a table is about one of these lists."""
    if table is recorder.effects.originals or table is recorder.contents.ends:
        return place in lists
    if table is recorder.sequences.lengths:
        return table.get(place) in lists
    return table is recorder.effects.stored and place[0] in lists


def _text(effect: Any) -> str:
    """What an effect changes."""
    match effect:
        case AttributeStore():
            return f"the attribute {effect.name!r} of a {type(effect.owner).__name__}"
        case ItemStore():
            return f"an item of a {type(effect.container).__name__}"
        case MethodCall():
            return f"a {type(effect.container).__name__}, by {effect.method}()"
        case FunctionCall() if type(effect.function) is not MethodOf:
            return f"something outside, by {getattr(effect.function, '__qualname__', type(effect.function).__name__)}()"
        case CellStore():
            return "a variable of the function around it"
        case GradStore() | DataStore():
            return f"the {'.grad' if isinstance(effect, GradStore) else '.data'} of a tensor"
    return "something outside"
