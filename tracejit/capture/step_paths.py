"""What a step of a branching loop did, as a path of its tree (path_tree.py): the nodes of the recording since the step began, guards
among them, and what the step has left in each slot."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tracejit.capture.handlers.base import ABSENT
from tracejit.capture.handlers.post_program import is_post_program
from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.handlers.symbols import concretise
from tracejit.capture.loop_steps import LIVE_IN, LOCAL, SHARED, RecordingPoint, StepNode, StepValue, describe_step
from tracejit.capture.other_effects import does_more, what_has_changed, why_not_again
from tracejit.capture.path_tree import Leaf, LoopNode, LoopRecord, PathEnd, Slot
from tracejit.capture.recording.journal import Mark
from tracejit.capture.recording.selections import joined_nodes
from tracejit.capture.row_views import RowView
from tracejit.capture.snapshots import IdentityKey, Snapshot, outside_effects, snapshot
from tracejit.capture.syntax.loops import OUTLINED, UNBOUND
from tracejit.capture.syntax.pieces import CONTINUES, RETURNS
from tracejit.core.aval import Aval
from tracejit.core.dtypes import FROM_NUMPY, bool_, float64, int64
from tracejit.core.op import REGISTRY, Kind
from tracejit.ir.graph import Graph, Node
from tracejit.nn.parameter import Parameter
from tracejit.ops.movement.copies import clone
from tracejit.ops.movement.views import detach, select
from tracejit.passes.functionalise import functionalise
from tracejit.tensor import Tensor

if TYPE_CHECKING:
    from tracejit.capture.branching_loops import LoopRun
    from tracejit.capture.handlers.recorder import Recorder
    from tracejit.capture.tensors import RecordingInterpreter

__all__ = [
    "HOLDS_STATE", "MOST_PARTS", "NUMBERS", "PRIMITIVE", "Carried", "Refused", "StepOutcome", "carried_form", "check_tensor",
    "describe_path", "form_of", "is_carried_or_constant", "is_equal", "list_form", "number_tensor", "number_value",
    "put_together", "reachable", "slot_of", "variable_keys",
]  # fmt: skip

NUMBERS: Final[dict[type, Any]] = {int: int64, float: float64, bool: bool_}
"""Types of numbers that slots hold, with the dtypes of their tensors."""
HOLDS_STATE: Final = object
"""What the slot of a generator's state holds."""
MOST_PARTS: Final = 64
"""Parts of a tuple that steps carry on, at most."""
_WORD: Final = 63
PRIMITIVE: Final = (str, bytes, type(None), complex)
"""Types of what has no state, and is the same in all steps of a path."""


class Refused(Exception):
    """Steps are not those of a node.  The message says why, for users."""


@dataclass(slots=True)
class StepOutcome:
    """path, end: see path_tree.py.  contents: what slots hold after the step, if it has put something else there.  grads: which
    of these require grad.  items: what it has appended to each list.  changes: a variable that is of another kind than before the
    step; "" if there is none.  has_views_of_leaf: whether it has left a view of the contents of a leaf (carried_leaves.py), and that may be
    one from before the loop.  new_leaves: variables that hold leaves after it, of which that was not known before.  new_lists: the same of
    lists that it appends to, each with its length before.  new_places: the same of places that it stores in
    (found_places.py), each with what it held before.  stays: whether it cannot be made again with these, since it has made output."""

    path: list[StepNode]
    end: PathEnd
    contents: dict[int, np.ndarray[Any, Any]] = field(default_factory=dict)
    grads: dict[int, bool] = field(default_factory=dict)
    items: list[list[np.ndarray[Any, Any]]] = field(default_factory=list)
    changes: str = ""
    has_views_of_leaf: bool = False
    new_leaves: Collection[str] = ()
    new_lists: Sequence[tuple[list[Any], int]] = ()
    new_places: Sequence[tuple[Any, Any]] = ()
    stays: bool = False


class _Value(NamedTuple):
    """A value of the graph, where a description of a step is asked for its place."""

    number: int
    requires_grad: bool = False


# -- what slots are filled with
def check_tensor(interpreter: RecordingInterpreter, x: Any, name: Any, is_leaf: bool = False) -> None:
    """Raises Refused for a tensor that cannot be carried.  is_leaf: whether it stays the same leaf, which may be a parameter with a
    gradient."""
    if type(x) not in ((Tensor, Parameter) if is_leaf else (Tensor,)) or x._hooks or vars(x):
        raise Refused(f"{name!r} is more than a tensor ({type(x).__name__})")
    if (x._grad is not None and not is_leaf) or (x._node is not None and x._node.hooks):
        raise Refused(f"{name!r} has a gradient, or a hook")
    if not x._array.flags.c_contiguous:
        raise Refused(f"{name!r} is not row-major")
    if interpreter.value_of(x) is None:
        raise Refused(f"{name!r} has an unknown origin")


def tensor_aval(interpreter: RecordingInterpreter, x: Tensor) -> Aval:
    """The shape and dtype of a tensor of the recording."""
    shape = interpreter.symbolic_shape(x)
    return Aval(x._array.shape if shape is None else shape, FROM_NUMPY[x._array.dtype])


def number_tensor(interpreter: RecordingInterpreter, x: Any, holds: type) -> Tensor:
    """The tensor of a number in the program.  Raises Refused."""
    dtype = NUMBERS[holds]
    if is_post_program(x) and holds is not bool:
        tensor = x._post_program.carried_tensor()
        if tensor is None:
            raise Refused("the program cannot compute a number that steps change")
        if tensor._array.ndim:
            tensor = interpreter.bind(REGISTRY["reshape"], (tensor,), {"shape": ()})
        if FROM_NUMPY[tensor._array.dtype] is not dtype:
            tensor = interpreter.bind(REGISTRY["cast"], (tensor,), {"dtype": dtype})
        return tensor  # type: ignore[no-any-return]
    value = concretise(x) if holds is bool else x
    if type(plain(value)) is int and plain(value).bit_length() > _WORD:
        raise Refused(f"an integer has more than {_WORD} bits")
    return interpreter.bind(REGISTRY["full"], (value,), {"shape": (), "dtype": dtype})  # type: ignore[no-any-return]


def number_value(interpreter: RecordingInterpreter, x: Any) -> int:
    """The value of a number of the program or of the call in the graph.  Raises Refused."""
    value: Any
    if is_post_program(x):
        value = interpreter.value_of(x._post_program.carried_tensor())
    else:
        value = interpreter._scalar(x, (-(2**_WORD), 2**_WORD - 1))
        if type(value) is not int:  # a size of the call
            value = interpreter.value_of(number_tensor(interpreter, x, int))
    if type(value) is not int:
        raise Refused("the number of its steps is none of the program")
    return value


def reachable(recorder: Recorder, step: FunctionType, fixed: Mapping[str, Any], stores: Collection[int]) -> Snapshot | str:
    """What a step finds besides slots, or why that cannot be compared.  fixed: the other variables that it is given.  stores: the
    positions among the effects of those in places that have slots."""
    cells = zip(step.__code__.co_freevars, step.__closure__ or (), strict=True)
    touched = [cell for name, cell in cells if name != "__class__" and not recorder.effects.is_untouched(cell)]
    try:
        around = [cell.cell_contents for cell in touched]
    except ValueError:
        return "a variable around the function has no value"
    return snapshot(recorder, (), fixed, (*around, *outside_effects(recorder, stores)), ())


# -- structures
class Carried(NamedTuple):
    """What slots hold of a variable.  form: see `taken_apart`.  slots: those of its tensors and numbers."""

    form: Any
    slots: list[int]


def variable_keys(name: str, count: int) -> list[tuple[Any, ...]]:
    """The keys of the slots of a variable that holds so many tensors and numbers."""
    return [("variable", name)] if count == 1 else [("variable", name, n) for n in range(count)]


def carried_form(x: Any, leaves: list[Any]) -> Any:
    """The form of what a variable holds, if steps may carry it: a tensor, a number, or a tuple of such; else None."""
    if type(x) is not tuple:
        return taken_apart(x, leaves) if isinstance(x, Tensor) or type(plain(x)) in NUMBERS else None
    if len(x) > MOST_PARTS:
        return None
    parts = [("constant", y) if type(y) in PRIMITIVE else carried_form(y, leaves) for y in x]
    return None if None in parts or not leaves else (tuple, parts)


def list_form(recorder: Recorder, x: list[Any], leaves: list[Any]) -> Any:
    """The same of a list of tensors and numbers that a place holds."""
    items = recorder.contents.elements(x) if recorder.is_outside(x) else x
    parts = [carried_form(y, leaves) for y in items]
    return None if None in parts or not leaves or len(leaves) > MOST_PARTS else (list, parts)


def is_carried_or_constant(x: Any) -> bool:
    """Whether steps may carry what a place holds, or that has no state."""
    return type(x) in PRIMITIVE or carried_form(x, []) is not None


def taken_apart(
    x: Any, leaves: list[Any], known: Callable[[Any], bool] = lambda x: False, other: Callable[..., Any] = lambda x, leaves: None
) -> Any:
    """The form of a value, whose tensors and numbers are appended to `leaves`.  known: whether an object is there before the step, and is
    handed on itself.  other: gives the form of a structure of another type, or None.  Raises Refused."""
    if isinstance(x, Tensor) or type(plain(x)) in NUMBERS:
        leaves.append(x)
        return Tensor if isinstance(x, Tensor) else type(plain(x))
    if type(x) is not tuple and type(x) not in PRIMITIVE and known(x):
        return "object", IdentityKey(x)
    if type(x) in (tuple, list):
        return type(x), [taken_apart(y, leaves, known, other) for y in x]
    if type(x) is dict and all(type(key) is str for key in x):
        return dict, [(key, taken_apart(y, leaves, known, other)) for key, y in x.items()]
    if type(x) in PRIMITIVE:
        return "constant", x
    if (form := other(x, leaves)) is not None:
        return form
    raise Refused(f"a step returns a {type(x).__name__}")


def form_of(x: Any) -> tuple[Any, list[Any]]:
    """(the form of what steps may leave in a variable, None of anything else; its tensors and numbers)."""
    leaves: list[Any] = []
    form = ("constant", x) if type(x) in PRIMITIVE and x is not UNBOUND else carried_form(x, leaves)
    return form, leaves


def put_together(recorder: Recorder | None, form: Any, leaves: Iterator[Any]) -> Any:
    """A result of a form that `taken_apart` or `row_view` has given.  recorder: None where nothing is recorded any more."""
    if type(form) is type:
        return next(leaves)
    if type(form) is RowView:
        next(leaves)  # what steps compute with
        return form.view(leaves)
    if type(form) not in (tuple, list):
        return form.made_of(recorder, leaves)  # a Structure
    kind, parts = form
    if kind == "constant":
        return parts
    if kind == "object":
        return parts.value
    if kind is dict:
        made: Any = {key: put_together(recorder, part, leaves) for key, part in parts}
    else:
        made = kind([put_together(recorder, part, leaves) for part in parts])
    return made if recorder is None else recorder.mark_created(made)


# -- paths
def describe_path(
    run: LoopRun,
    begin: RecordingPoint,
    entered: Mark,
    live_ins: Sequence[int],
    way: int,
    values: Any,
    in_places: Mapping[str, Any],
    before: Snapshot,
) -> StepOutcome:
    """What the step of a run did.

    begin: the point after its stand-ins were made.  entered: the mark from which on it is the program that runs.  live_ins: the values
    of stand-ins.  way, values: what it has returned.  in_places: what its places hold (step_places.py).  before: what it found.
    Raises Refused."""
    interpreter, slots = run.interpreter, run.tree.slots
    if any(x is ABSENT for x in in_places.values()):
        raise Refused("a step deletes an attribute or an item")
    if run.places.found.changes.has_freed:
        raise Refused("a backward pass of a step frees the graph of what was computed before the step")
    new_lists, new_places = run.reached.new(), run.places.found.new()
    if new_lists or new_places:
        stays = run.calls.has_output and run.may_stay_outside and way == CONTINUES and not new_lists
        if why := why_not_again(run, new_lists, new_places, before, in_places, entered, stays):
            raise Refused(why)
        for value, (x, is_uncounted) in _written(interpreter, interpreter.nodes[begin.mark.nodes :]).items():
            if stays and id(x) in run.recorder.loop_stand_ins:
                raise Refused("a step writes to a tensor in a variable that steps assign to")
            if not stays and id(x) not in run.recorder.loop_stand_ins:
                run.add_written(x, value, is_uncounted)
        return StepOutcome([], PathEnd(way, {}), new_lists=new_lists, new_places=new_places, stays=stays)
    logged = run.calls.of_step()
    after = run.places.reachable_after(in_places)
    if why := after if isinstance(after, str) else what_has_changed(run, before, after, entered):
        raise Refused(why)
    run.containers_after = frozenset(map(id, after.containers)) if isinstance(after, Snapshot) else frozenset()
    run.gathered.check_unchanged()
    run.structures.check_unchanged()
    if run.gathered.holds_item((values, *in_places.values(), *[item for _, item in run.reached.pending])):
        raise Refused("a step leaves an item of the list that it goes over: leave `item.clone()`")
    run.kinds.note_ends(begin.values, [*values, *in_places.values()] if way != RETURNS else [])
    found = {id(x) for x in before.containers}
    there = {*found, *run.recorder.reached, *run.recorder.sources} if way == RETURNS else found
    left, appended, changes = _left_in_slots(run, begin, way, values, in_places, lambda x: id(x) in there)
    new = run.leaves.new_in(begin, left)
    ends = [_end(interpreter, slot, x) for slot, x in left]
    of_program = {**dict(enumerate(appended)), **run.reached.of_step(returns=way == RETURNS)}
    run.structures.check_items([x for column in of_program.values() for x in column])
    run.structures.check_items([item for _, item in run.reached.pending])
    columns = {k: [_item(run, k, x) for x in column] for k, column in of_program.items()} | logged
    appended = [columns.get(k, []) for k in range(max(columns, default=-1) + 1)]
    rows = [x for column in appended for x in column]
    if run.recorder.stopped:
        raise Refused("a number has no place in the program")
    if why := does_more(run, entered):
        raise Refused(why)
    passing = [
        slot.key in run.kinds.rows or (slot.key[0] == "variable" and slot.key[1] not in run.read_after) for slot, _ in left
    ]
    joined = [not run.is_held(k) for k, column in enumerate(appended) for _ in column]
    path = _Path(
        run, begin, live_ins, ends, rows, passing, joined, [slot.holds is Leaf or slot.key[1] in new for slot, _ in left]
    )
    if new:
        return StepOutcome([], PathEnd(way, {}), new_leaves=new)
    if any(x.requires_grad for x in run.states.values()) and any(x.requires_grad for x in (*ends, *rows)):
        raise Refused("a step leaves a tensor that requires grad, and writes to a leaf: leave `loss.detach()`, or `loss.item()`")
    if why := run.leaves.why_not(path.nodes):
        raise Refused(why)
    on_tape = [*[x for x, (slot, _) in zip(ends, left, strict=True) if slot.holds is not Leaf], *rows]
    if run.tree.takes_gradients and any(x.requires_grad for x in on_tape):
        raise Refused("a step leaves a tensor that requires grad, and other steps take gradients")
    for x in (*ends, *rows):
        if any((x if x._base is None else x._base) is y for y in run.states.values()):
            raise Refused("a step leaves a tensor that it writes to, or a view of it, in a variable")
    # Steps that read the last item of a list guard its length before (syntax/grown_lists.py): they never read what is not there.
    # Nor does a part of a step what the parts before have not assigned to (OutlinedLoop.passed).
    unbound = {("variable", name) for name in run.unbound - run.loop.passed if not name.startswith(OUTLINED)}
    if any(x[0] == LIVE_IN and slots[x[1]].key in unbound for a in path.nodes for x in a.operands if type(x) is tuple):
        raise Refused("a step reads a variable that has no value before the loop")
    places = iter(path.items)
    items = tuple([tuple(islice(places, len(column))) for column in appended])
    outcome = StepOutcome(path.nodes, PathEnd(way, {}, items, (*path.copied_ends, *path.copies)))
    outcome.changes = changes
    known = {slot.key: k for k, slot in enumerate(slots)}
    for (slot, _), tensor, made in zip(left, ends, path.ends, strict=True):
        place = path.given_leaves.get(made, made) if slot.holds is Leaf else made
        k = known.get(slot.key)
        if k is None:
            k = len(slots)
            slots.append(slot)
        elif (slots[k].kind, slots[k].freed) != (slot.kind, slot.freed) or (slot.key in unbound and slot.holds is not Tensor):
            outcome.changes = str(slot.key[1])
            continue
        if slot.holds in (Tensor, Leaf) and place[0] == LIVE_IN and not run.tree.is_object(place[1]):
            raise Refused(f"{slot.key[1]!r} becomes the tensor of a number")
        if slot.holds is Tensor and place[0] == SHARED and run.is_nested:
            raise Refused(f"{slot.key[1]!r} becomes a tensor from before the loop, which is in another one")
        outcome.end.left[k] = place
        outcome.contents[k], outcome.grads[k] = tensor._array, slot.holds is Tensor and tensor.requires_grad
    outcome.path = [*run.kinds.begin_path(), *outcome.path]
    for k, place in path.written.items():
        outcome.end.left[k] = place
        outcome.contents[k] = run.states[k]._array.copy()
    outcome.items = [[x._array for x in column] for column in appended]
    run.item_roots += [
        x._base for k, column in enumerate(appended) for x in column if k in run.items.numbers and x._base is not None
    ]
    of_tensors = [x for x, (slot, _) in zip(path.ends, left, strict=True) if slot.holds in (Tensor, Leaf)]
    tensors = [x for k, column in enumerate(outcome.end.items) for x in column if run.tree.item_kinds[k][1] is Tensor]
    roots = _check_memory(path.nodes, [*of_tensors, *tensors], path.leaves)
    has_views = any(roots[x] in path.copies_of_leaves for x in (*of_tensors, *tensors) if x not in path.given_leaves)
    outcome.has_views_of_leaf = has_views and run.leaves.are_from_before
    if path.takes_gradients and not run.tree.takes_gradients:
        run.tree.take_gradients()
    return outcome


def _left_in_slots(
    run: LoopRun, begin: RecordingPoint, way: int, values: Any, in_places: Mapping[str, Any], known: Callable[[Any], bool]
) -> tuple[list[tuple[Slot, Any]], list[Any], str]:
    """(slots that a step leaves something in, with that; for each list, what it appends; a variable that has become of another kind).
    known: see `taken_apart`."""
    left: list[tuple[Slot, Any]] = []
    rows: list[Any] = []
    changes, variables = "", {**in_places}
    if way == RETURNS:
        leaves: list[Any] = []
        form = taken_apart(values, leaves, known, run.structures.returned_form)
        if run.template is not None and run.template != form:
            raise Refused("steps return different kinds of things")
        run.template = form
        left += [_slot_and_contents(run, begin, ("return", n), x) for n, x in enumerate(leaves)]
    else:
        names = run.live_outs
        variables.update(zip(names, values, strict=False))
        rows += values[len(names) :]
    run.structures.check_tuples([x for name, x in variables.items() if name in run.read_after] if way != RETURNS else [values])
    for name, x in variables.items():
        if name in run.loop.detached and not run.is_divided and isinstance(x, Tensor) and x.requires_grad:
            x = detach(x)
        if (of_its_kind := run.kinds.end_slots(name, x)) is not None:
            left += of_its_kind
            continue
        held: list[Any] = []
        form = run.places.list_form(name, x, held) if type(x) is list and name in run.places else carried_form(x, held)
        form = None if run.structures.may_be_told_apart(name, x) else form
        has_slot = name in run.carried or run.slot_made(name) is not None
        if name in run.fixed:
            if x is run.fixed[name] or (type(x) in PRIMITIVE and is_equal(x, run.fixed[name])):
                continue
            if form is None and (name in run.places or type(x) not in PRIMITIVE or not run.may_stay_outside):
                raise Refused(f"{name!r} is another {type(x).__name__} after each step")
            changes = name
        elif name in run.carried and (type(x) in (tuple, list) or type(run.carried[name].form) is tuple):
            if form == run.carried[name].form:
                left += [
                    (slot_of(run.interpreter, key, y), y) for key, y in zip(variable_keys(name, len(held)), held, strict=True)
                ]
            else:
                changes = name
        elif form is not None and type(x) is not tuple:
            left.append(_slot_and_contents(run, begin, ("variable", name), x))
        elif type(x) in PRIMITIVE and not has_slot and x is not UNBOUND:
            if name in run.unbound - run.loop.passed:
                raise Refused(f"{name!r} is a {type(x).__name__} after a step, and may have no value")
            run.fixed[name] = run.variables[name] = x
        elif x is UNBOUND and name in run.unbound:
            continue
        elif name in run.loop.passed and not has_slot and run.recorder.is_outside(x):
            run.fixed[name] = run.variables[name] = x  # reads of it are guarded, and that paths leave the same object
        elif name in run.carried:
            changes = name
        else:
            raise Refused(f"{name!r} is a {type(x).__name__} after a step")
    return left, rows, changes


def _slot_and_contents(run: LoopRun, begin: RecordingPoint, key: tuple[Any, ...], x: Any) -> tuple[Slot, Any]:
    """A slot for what a step leaves, and what the loop carries on of that."""
    if freed := run.freed.edges_behind(key, x):
        x = detach(x)
    slot = run.leaves.slot(begin, slot_of(run.interpreter, key, x), x)
    slot.freed = freed
    return slot, x


def is_equal(x: Any, y: Any) -> bool:
    """Whether two forms, or plain values that are kept in them, are the same."""
    return type(x) is type(y) and repr(x) == repr(y)


def slot_of(interpreter: RecordingInterpreter, key: tuple[Any, ...], x: Any) -> Slot:
    """A slot that holds such a tensor or number."""
    if isinstance(x, Tensor):
        return Slot(key, tensor_aval(interpreter, x), Tensor)
    return Slot(key, Aval((), NUMBERS[type(plain(x))]), type(plain(x)))


def _end(interpreter: RecordingInterpreter, slot: Slot, x: Any) -> Tensor:
    if slot.holds not in (Tensor, Leaf):
        try:
            return x if isinstance(x, Tensor) else number_tensor(interpreter, x, slot.holds)  # a position is a tensor
        except Refused as refusal:
            raise Refused(f"{refusal}: {str(slot.key[1])!r}") from None
    check_tensor(interpreter, x, slot.key[1])
    return x  # type: ignore[no-any-return]


def _item(run: LoopRun, k: int, x: Any) -> Tensor:
    """The tensor of what a step appends to a list."""
    holds = Tensor if isinstance(x, Tensor) else type(plain(x))
    if holds is not Tensor and holds not in NUMBERS:
        raise Refused(f"a step appends a {holds.__name__} to a list")
    slot = Slot(("item",), tensor_aval(run.interpreter, x) if holds is Tensor else Aval((), NUMBERS[holds]), holds)
    if run.tree.item_kinds.setdefault(k, slot.kind) != slot.kind:
        raise Refused("items of a list differ in shape, dtype or type")
    if holds is not Tensor:
        return number_tensor(run.interpreter, x, holds)
    check_tensor(run.interpreter, x, "an item of a list")
    return x  # type: ignore[no-any-return]


def _written(interpreter: RecordingInterpreter, recorded: Sequence[Node]) -> dict[int, tuple[Tensor, bool]]:
    """The tensors from before these nodes that they write to, by their values before, each with whether that does not count as a change
    (`x.data -= 1`).  Raises Refused for what requires grad or gets what does, but for leaves that are written to without a tape."""
    roots: dict[int, int] = {}
    found: dict[int, tuple[Tensor, bool]] = {}
    made = {v for node in recorded for v in node.outputs}
    for node in recorded:
        if node.op.kind in (Kind.VIEW, Kind.WRITE):
            base: Any = node.operands[0]
            roots[node.outputs[0]] = root = roots.get(base, base)
            if node.op.kind is Kind.WRITE and root not in made:
                tensor = interpreter.defined[root]
                marked = interpreter.requires_grad.intersection((*node.operands, *node.outputs))  # type: ignore[arg-type]
                if marked and not (_is_update(interpreter, node, tensor) and node.operands[1] not in marked):
                    raise Refused("a step writes to a tensor from before it that requires grad, or writes one that does")
                is_uncounted = node.outputs[0] in interpreter.uncounted
                if found.setdefault(root, (tensor, is_uncounted))[1] != is_uncounted:
                    raise Refused("a step writes to a tensor, and to its `.data`")
    return found


def _is_update(interpreter: RecordingInterpreter, node: Node, tensor: Tensor) -> bool:
    """Whether a write gives a leaf other contents without a tape, as optimizers do."""
    return tensor.requires_grad and tensor.is_leaf and not interpreter.evaluated.get(node.outputs[0], True)


class _Path:
    """The nodes of a step as a path: without writes, and nested loops with their trees.

    ends, items: the places of what the step leaves, and of items for lists.  leaves: those of leaves among the former.  given_leaves: the
    slots of leaves that it was given, by their places; copies_of_leaves: the places of their contents.  written: what tensors from before
    the step hold after it, by their slots."""

    def __init__(
        self,
        run: LoopRun,
        begin: RecordingPoint,
        live_ins: Sequence[int],
        ends: Sequence[Tensor],
        rows: Sequence[Tensor],
        passing: Sequence[bool],
        joined: Sequence[bool],
        leaves: Sequence[bool],
    ) -> None:
        """passing: which of `ends` are for the next steps alone.  joined: which of `rows` are for lists that are joined alone.  leaves:
        which of `ends` are leaves.  Raises Refused."""
        self._run, self._interpreter = run, run.interpreter
        left = [v for x in (*ends, *rows) if (v := self._interpreter.value_of(x)) is not None]
        recorded = joined_nodes(self._interpreter, begin.mark.nodes, left)
        trees = self._interpreter.path_trees
        nested = {v: trees[v] for node in recorded for v in node.outputs[:1] if v in trees}
        asked = [_Value(v) for x in nested.values() for v in (*x.tree.shared, *x.starts.values()) if v is not None]
        step = describe_step(
            self._interpreter,
            begin,
            live_ins,
            [*ends, *asked],  # type: ignore[list-item]
            [[x] for x in rows],
            lambda x: x.number if type(x) is _Value else self._interpreter.value_of(x),
            oldest=begin.values,
            recorded=recorded,
        )
        if step is None or not all(leaves[k] for k in step.leaves):
            raise Refused("a step reads what an earlier one has made, or leaves a leaf that requires grad")
        if step.takes_gradients and any(x.tree.has_gradients for x in nested.values()):
            raise Refused("a step takes gradients through a loop in it")
        for v in self._interpreter.leaves[begin.leaves :]:
            x = self._interpreter.defined.get(v)
            if any(x is y for w, y in self._interpreter.defined.items() if w < begin.values):
                raise Refused("a step sets the gradient of a tensor that it was given, or whether that requires grad")
        places = dict(zip([x.number for x in asked], step.carried_on[len(ends) :], strict=True))
        self._nested, self._places = nested, places
        self._same: dict[StepValue, StepValue] = {}  # a place -> the one that has the same value
        copies = run.leaves.path_of_copies(sum(len(a.outputs) for a in step.nodes))
        self.copies_of_leaves = {a.outputs[0] for a in copies[::2]}
        self.given_leaves = {a.outputs[0]: (LIVE_IN, k) for k, a in zip(run.leaves.given, copies[1::2], strict=True)}
        self._same.update({slot: leaf for leaf, slot in self.given_leaves.items()})
        tensors = self._tensors_written(recorded)
        nodes = self._with_writes(step.nodes)
        self.written: dict[int, StepValue] = {k: (LIVE_IN, k) for k, x in run.states.items() if any(x is y for y in tensors)}
        same, written = {**self._same}, {**self.written}
        path = self._path(nodes, has_parts=False)
        if path is None:
            self._same, self.written = same, written
            path = self._path(nodes, has_parts=True)
        assert path is not None
        self.nodes = [*copies, *path]
        self.takes_gradients = step.takes_gradients
        self.ends = list(map(self._place, step.carried_on[: len(ends)]))
        self.items = [self._place(column[0]) for column in step.collected]
        if any(a.node.op.kind is Kind.WRITE for a in self.nodes):
            self._make_pure()
        self.leaves = [x for x, is_leaf in zip(self.ends, leaves, strict=True) if is_leaf]
        self.copied_ends = self._copy_views(self.ends, passing)
        self.copies = self._copy_views(self.items, joined)
        self._run.viewed += [
            self._interpreter.defined[x[1]] for x in self.items if x[0] == SHARED and x[1] in self._interpreter.defined
        ]
        if run.states:
            self._check_overlap()

    def _copy_views(self, places: list[StepValue], alone: Sequence[bool]) -> list[tuple[StepValue, StepValue]]:
        """Have the next steps, or lists, find copies of views of what is from before the step, `before = x`, where nothing else finds
        them.  alone: at which places that is so.  Returns the copies, each with the view."""
        copies: list[tuple[StepValue, StepValue]] = []
        views = {a.outputs[0]: a.operands[0] for a in self.nodes if a.node.op.kind is Kind.VIEW}
        kinds = {x: kind for a in self.nodes for x, kind in zip(a.outputs, a.kinds, strict=True)}
        fresh = count(max([x[1] for a in self.nodes for x in a.outputs if x[0] == LOCAL], default=-1) + 1)
        for k, (x, is_alone) in enumerate(zip(places, alone, strict=True)):
            root: Any = x
            while root in views:
                root = views[root]
            if not is_alone or x not in views or root[0] == LOCAL:
                continue
            if root[0] == LIVE_IN and (root[1] in self._run.states or not self._run.is_divided):
                continue
            if root[0] == SHARED:
                if root[1] in self._interpreter.numbers or self._run.gathered.is_row(self._interpreter.defined[root[1]]):
                    continue
                self._run.viewed.append(self._interpreter.defined[root[1]])
            places[k] = (LOCAL, next(fresh))
            copies.append((places[k], x))
            node = Node(clone, (), (), (), "")
            self.nodes.append(StepNode(node, (x,), (), True, (places[k],), (kinds[x],)))
        return copies

    def _place(self, x: StepValue) -> StepValue:
        while x in self._same:
            x = self._same[x]
        return x

    def _tensors_written(self, recorded: Sequence[Node]) -> list[Tensor]:
        """The tensors from before the step that it has written to, states of generators among them.  Each gets a slot, whose place
        becomes that of its value before the step.  Raises Refused for what a variable holds that steps assign to, and for what requires
        grad or gets what does."""
        interpreter, run = self._interpreter, self._run
        found = _written(interpreter, recorded)
        for value, (x, is_uncounted) in found.items():
            if run.gathered.is_row(x):
                raise Refused("a step writes to an item of the list that it goes over")
            if id(x) in run.recorder.loop_stand_ins:
                raise Refused("a step writes to a tensor in a variable that steps assign to")
            if id(x) not in interpreter.states:
                check_tensor(interpreter, x, "a tensor that steps write to", is_leaf=x.requires_grad)
                if x._base is not None:
                    raise Refused("a step writes to a view that was made before it")
            if not any(y is x for y in run.states.values()):
                self._same[SHARED, value] = (LIVE_IN, run.add_written(x, value, is_uncounted))
            if is_uncounted != (id(x) in run.uncounted):
                raise Refused("some steps write to a tensor, others to its `.data`")
        return [x for x, _ in found.values()]

    def _with_writes(self, nodes: Sequence[StepNode]) -> list[StepNode]:
        """The nodes, of which those are marked that read or make what steps write to and have not made."""
        roots: dict[Any, Any] = {}
        written: set[Any] = {(LIVE_IN, k) for k in self._run.states}
        for a in nodes:
            if a.node.op.kind in (Kind.VIEW, Kind.WRITE):
                base = self._place(a.operands[0])
                roots[a.outputs[0]] = roots.get(base, base)

        def is_written(x: Any) -> bool:
            return type(x) is tuple and roots.get(x := self._place(x), x) in written

        return [replace(a, is_written=any(map(is_written, (*a.operands, *a.outputs)))) for a in nodes]

    def _path(self, nodes: Sequence[StepNode], has_parts: bool) -> list[StepNode] | None:
        """The nodes, less writes to whole tensors of slots: what is written becomes their value.  has_parts: whether there are other
        writes, after which that holds for states of generators alone.  None if there are, and has_parts does not say so."""
        path: list[StepNode] = []
        avals = {x: kind[0] for a in nodes for x, kind in zip(a.outputs, a.kinds, strict=True)}
        slots: dict[Any, int] = {(LIVE_IN, k): k for k in self._run.states}  # a version of a tensor of a slot -> the slot
        viewed: set[int | None] = set()
        for a in nodes:
            operands = tuple([self._place(x) if type(x) is tuple else x for x in a.operands])
            first: Any = a.operands[0] if a.operands else None
            slot = slots.get(first, slots.get(self._same.get(first)))
            if a.node.outputs and a.node.outputs[0] in self._interpreter.loop_constants:
                continue  # a nested loop makes them again
            is_write, found = a.node.op.kind is Kind.WRITE, self._nested.get(a.node.outputs[0]) if a.node.outputs else None
            if (
                is_write
                and slot is not None
                and slot not in viewed
                and self._aval(operands[1], avals) == self._run.tree.slots[slot].aval
            ):
                if not has_parts or id(self._run.states[slot]) in self._interpreter.states:
                    self._same[a.outputs[0]] = self.written[slot] = operands[1]
                    slots[a.outputs[0]] = slot
                    continue
            elif is_write and not has_parts:
                return None
            if is_write or a.node.op.kind is Kind.VIEW:
                viewed.add(slot)
            if a.node.op.kind is Kind.OPAQUE:
                own = "calls code of the program in" if "own code" in a.node.op.traits else "has NumPy or SciPy compute"
                raise Refused(f"a step {own} {a.node.op.name} at {a.node.line}")
            if found is None:
                path.append(replace(a, operands=operands))
            else:
                path.append(self._loop_node(replace(a, operands=()), found))
        return path

    def _aval(self, place: Any, avals: dict[StepValue, Any]) -> Any:
        """What is known of a place; None of a number.  avals: of those that nodes of the step compute."""
        if type(place) is not tuple or place in avals:
            return avals.get(place)
        return self._run.tree.slots[place[1]].aval if place[0] == LIVE_IN else self._interpreter.avals[place[1]]

    def _requires_grad(self, place: StepValue) -> bool:
        """Whether what the step is given, or reads from before the loop, requires grad."""
        kind, k = place
        return self._run.tree.slots[k].requires_grad if kind == LIVE_IN else k in self._interpreter.requires_grad

    def _loop_node(self, a: StepNode, record: LoopRecord) -> LoopNode:
        def place(v: int) -> StepValue:
            return self._place(self._places[v])

        starts = {key: None if v is None else place(v) for key, v in record.starts.items()}
        named = [n for n, name in enumerate(record.names) if name is not None]
        names = tuple([record.names[n] for n in named])
        return LoopNode(
            a.node,
            (),
            a.attributes,
            a.with_grad,
            tuple([a.outputs[n] for n in named]),
            tuple([(a.kinds[n][0], record.names[n] in record.marked) for n in named]),
            is_written=a.is_written,
            tree=record.tree.with_shared(place),
            starts=starts,
            begun=record.begun,
            names=names,  # type: ignore[arg-type]
            room=record.room,
        )

    def _make_pure(self) -> None:
        """Replace writes and views of what is written by pure nodes (passes/functionalise.py).  Raises Refused."""
        path = self.nodes
        if any(isinstance(a, LoopNode) for a in path):
            raise Refused("a step with a loop in it writes to a tensor")
        ends = [*self.ends, *self.items]
        places = dict.fromkeys([*[x for a in path for x in (*a.operands, *a.outputs) if type(x) is tuple], *ends])
        ids = {x: v for v, x in enumerate(places)}
        avals: dict[int, Any] = {ids[x]: kind[0] for a in path for x, kind in zip(a.outputs, a.kinds, strict=True)}
        inputs = [x for x in places if ids[x] not in avals]
        avals.update({ids[x]: self._aval(x, {}) for x in inputs})
        values = [a.operands[1] for a in path if a.node.op.kind is Kind.WRITE]  # so that it is no matter what comes after a write
        outputs = [ids[x] for x in (*ends, *values) if type(x) is tuple]
        marked = {ids[x] for x in inputs if self._requires_grad(x)}
        for a in path:  # what is written without a tape leaves a tensor as it was there
            kept = a.node.op.kind is Kind.WRITE and not a.with_grad
            marked.update([ids[x] for x, kind in zip(a.outputs, a.kinds, strict=True) if kind[1] and not kept])
        nodes = tuple([a.in_graph(ids) for a in path])
        graph = Graph(tuple([ids[x] for x in inputs]), avals, nodes, tuple(outputs), requires_grad=frozenset(marked))
        try:
            pure = functionalise(graph)
        except RuntimeError as error:
            raise Refused("a step writes to a view whose elements share memory") from error
        if pure.stale or any("straight through" in node.op.traits for node in pure.nodes):
            raise Refused(
                "a step writes to a tensor that requires grad without a tape, or after it was saved for a backward pass"
            )
        self._run.tree.assume_marks()
        known = {a.outputs: a for a in path if a.node.op.kind is not Kind.WRITE}
        named: dict[Any, Any] = {v: x for x, v in ids.items()}
        fresh = count(max([x[1] for x in places if x[0] == LOCAL], default=-1) + 1)
        self.nodes = []
        for node in pure.nodes:
            for v in node.outputs:
                named.setdefault(v, (LOCAL, next(fresh)))
            operands = tuple([named[x] if type(x) is int else x for x in node.operands])
            outs = tuple([named[v] for v in node.outputs])
            kinds = tuple([(pure.avals[v], v in pure.requires_grad) for v in node.outputs])
            before = known.get(outs)
            if before is not None and before.node.op is node.op and outs:
                if before.position is not None and node.op is select:  # which is no part of its operands (StepNode)
                    operands = (operands[0], None, *operands[2:])
                self.nodes.append(replace(before, operands=operands, kinds=kinds))
            else:
                is_written = bool(outs and self.written)
                self.nodes.append(StepNode(node, operands, node.attributes, True, outs, kinds, is_written=is_written))
        after = [named[v] for v in pure.outputs[: len(ends)]]
        self.ends, self.items = after[: len(self.ends)], after[len(self.ends) :]
        for target, v in pure.writes:
            kind, k = named[target]
            if kind != LIVE_IN or k not in self.written:
                raise Refused("a step writes to a tensor that it was given")
            self.written[k] = named[v]

    def _check_overlap(self) -> None:
        """Raises Refused where a tensor that steps write to shares memory with something else that they are given."""
        run = self._run
        arrays = [x for k, x in enumerate(run.arrays) if k not in run.states]
        shared = {x[1] for a in self.nodes for x in a.operands if type(x) is tuple and x[0] == SHARED}
        shared.update(run.tree.shared)
        read = [x for v in shared if (x := self._interpreter.defined.get(v)) is not None]
        arrays += [x._array for x in read if not any(x is y for y in run.states.values())]
        arrays += [x._array for x in (*run.begun.values(), *run.viewed, *run.gathered.tensors)]
        for k in run.states:
            others = (*arrays, *[x._array for j, x in run.states.items() if j != k])
            if any(np.may_share_memory(run.states[k]._array, y) for y in others):
                raise Refused("a step writes to a tensor that shares memory with another one")


def _check_memory(
    path: Sequence[StepNode], places: Sequence[StepValue], leaves: Sequence[StepValue]
) -> dict[StepValue, StepValue]:
    """Raises Refused where a step leaves a view of what it was given, two views of one tensor, or a leaf to which something else refers.
    places: of all tensors that it leaves and appends.  leaves: those that require grad.  Returns what each of the former is a view of;
    itself where it is none."""
    views = {a.outputs[0]: a.operands[0] for a in path if a.node.op.kind is Kind.VIEW}

    def root(x: Any) -> Any:
        while x in views:
            x = views[x]
        return x

    roots: dict[Any, StepValue] = {}
    for x in dict.fromkeys(places):
        if x in views and root(x)[0] != LOCAL:
            raise Refused("a step leaves a view of what it was given")
        if x[0] == LOCAL and roots.setdefault(root(x), x) != x:
            raise Refused("a step leaves two views of one tensor")
    if any(sum(root(x) == root(y) for y in places) > 1 for x in leaves):
        raise Refused("a step leaves a leaf that requires grad twice")
    return {x: root(x) for x in places}
