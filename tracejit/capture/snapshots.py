"""What code can find at a point of a recorded call, to be compared with what it can find at another point.

`snapshot` walks through all that some variables lead to, and writes a list of tokens.  Two snapshots with equal tokens are alike:
in the same places they have the same functions and objects from outside, equal plain values, and tensors, lists, dictionaries and
instances of one kind that the call has made; two places that hold one object in the first snapshot do so in the second.  Code
that finds nothing else, and asks for no contents of tensors, does the same from both.  Where something has a state that cannot be
seen (an iterator, an instance of a class in C) there is no snapshot.  What is outside is not walked through: the journal has all
changes of that, and `only_computes` tells whether there were any.

Lists, dictionaries and instances may be replaced by new ones from one snapshot to the next, `state = State(state.x + dt *
state.v, ...)` (`Snapshot.follows`)."""

from __future__ import annotations

import builtins
import types
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tracejit.autograd.tape import DataStorage
from tracejit.capture.handlers.post_program import is_post_program
from tracejit.capture.handlers.symbols import is_symbolic
from tracejit.capture.nested_places import DICTIONARIES, SEQUENCES, children_of, is_tuple, items_of
from tracejit.capture.policies import COMPUTED_NUMBERS, is_heap_type
from tracejit.capture.recording.journal import NOTHING, Mark, Topic
from tracejit.core import dtypes
from tracejit.core.dtypes import DType
from tracejit.core.interpreter import state
from tracejit.replay.ir import Call, Define, Expr, Name, walk
from tracejit.tensor import Size, Tensor

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = [
    "VALUES",
    "IdentityKey",
    "Snapshot",
    "calls_in",
    "is_constant",
    "is_stale_view",
    "kind_of",
    "only_computes",
    "outside_effects",
    "reachable_state",
    "snapshot",
]

VALUES: Final = (int, float, complex, str, bytes, bool, types.NoneType)
_AROUND: Final = ""
"""The token before those of `around`; before those of a variable there is its name, and no other token is a text."""
_OF_NUMBERS: Final = (*COMPUTED_NUMBERS, int, float, bool, len, sum)
_MOST: Final = 4096
"""Tokens of a snapshot; there is none of more."""


class IdentityKey:
    """An object as a token: equal to itself alone, and kept alive."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and self.value is other.value

    def __repr__(self) -> str:
        return f"IdentityKey({id(self.value)})"

    __hash__ = None  # type: ignore[assignment]


class Snapshot:
    """See the module.

    tensors: those that the call has made, each once.  fixed: positions of those among them that stand where another tensor cannot
    be put.  containers: the lists, dictionaries and instances that were walked through; sets: the ids of sets.  new: positions of
    containers that the snapshot before does not have."""

    __slots__ = ("containers", "fixed", "new", "sets", "tensors", "tokens")

    def __init__(
        self, tokens: list[Any], tensors: list[Tensor], fixed: set[int], containers: list[Any], sets: frozenset[int]
    ) -> None:
        self.tokens = tokens
        self.tensors = tensors
        self.fixed = fixed
        self.containers = containers
        self.sets = sets
        self.new: set[int] = set()

    def follows(self, before: Snapshot) -> bool:
        """Whether this one is like `before`, and each place has the same container, or one that was made in between.  A container
        may also have been handed on from another place, `last = state`, if it was new there in `before`, and that place has
        another new one now."""
        if self.tokens != before.tokens:
            return False
        older = {id(x): k for k, x in enumerate(before.containers)}
        self.new = {k for k, x in enumerate(self.containers) if id(x) not in older}
        handed = self.new & before.new
        pairs = enumerate(zip(self.containers, before.containers, strict=True))
        return all(x is y or k in self.new or older[id(x)] in handed for k, (x, y) in pairs)

    def is_unchanged_since(self, before: Snapshot) -> bool:
        """Whether code finds the same objects in the same state as at `before`."""
        pairs = zip((*self.containers, *self.tensors), (*before.containers, *before.tensors), strict=False)
        return self.tokens == before.tokens and all(x is y for x, y in pairs)

    def place_of_difference(self, before: Snapshot) -> str | None:
        """The first variable whose tokens differ from those of another one of the same variables; "" if those of `around` do, None if
        those before all variables, or none."""
        place = None
        for one, other in zip(before.tokens, self.tokens, strict=False):
            if one != other:
                return place
            place = one if type(one) is str else place
        return place if len(before.tokens) != len(self.tokens) else None

    def difference_from(self, before: Snapshot) -> str:
        """How this one differs from another one of the same variables, as a text for users; empty where they are alike."""
        if self.tokens == before.tokens:
            return ""
        place = self.place_of_difference(before)
        if place == _AROUND:
            return "each step changes something outside of the call"
        return (
            f"{'what the loop goes through' if place is None else repr(place)} is another value, or of another kind, in each step"
        )


def snapshot(
    recorder: Recorder,
    given: Sequence[Tensor],
    variables: Mapping[str, Any],
    around: Iterable[Any],
    separate: Sequence[list[Any]],
    states: Sequence[Tensor] = (),
    takes_numbers: bool = False,
) -> Snapshot | str:
    """A snapshot, or why there is none.

    given: tensors that come first.  variables: by name; each may be assigned to.  around: what else code finds, in places that
    keep their values.  separate: lists that are not walked through; there is no snapshot where one is found in several places.
    states: tensors from outside that come last, as if the call had made them.  takes_numbers: numbers that the program computes
    count as their tensors, inside of what variables lead to."""
    walk = _Walk(recorder, separate, takes_numbers)
    if not walk.visit_first(given):
        return "what the loop goes through has a state that does not show"
    for name, value in variables.items():
        walk.tokens.append(name)
        if is_post_program(value):
            walk.tokens.append(IdentityKey(value))
        elif not walk.visit(value, False):
            return f"{name!r} holds something whose state does not show (an iterator, an object of C code, one with a __del__)"
    walk.tokens.append(_AROUND)
    for value in around:
        if not walk.visit(value, True):
            return "what the call has put outside has a state that does not show"
    walk.tokens += map(IdentityKey, states)
    return Snapshot(walk.tokens, [*walk.tensors, *states], walk.fixed, walk.containers, frozenset(walk.sets))


class _Walk:
    def __init__(self, recorder: Recorder, separate: Sequence[list[Any]], takes_numbers: bool) -> None:
        self.tokens: list[Any] = [state.grad_enabled, state.autocast, dtypes.default_dtype()]
        self.tensors: list[Tensor] = []
        self.fixed: set[int] = set()
        self.containers: list[Any] = []
        self.sets: set[int] = set()
        self._recorder = recorder
        self._takes_numbers = takes_numbers
        self._places: dict[int, int] = {}  # of tensors
        self._seen: dict[int, int] = {}  # of anything else: its number
        self._separate = dict.fromkeys(map(id, separate), 0)

    def visit_first(self, values: Sequence[Any]) -> bool:
        """Walk through values, all of them before what they lead to; False where one has a state that cannot be seen."""
        contents = [self._entered(value, False) for value in values]
        return all(parts is not None and all(self.visit(*part) for part in parts) for parts in contents)

    def visit(self, value: Any, is_fixed: bool) -> bool:
        """Walk through a value and what it leads to; False where something has a state that cannot be seen."""
        waiting = [(value, is_fixed)]
        while waiting:
            value, is_fixed = waiting.pop()
            parts = self._entered(value, is_fixed)
            if parts is None or len(self.tokens) > _MOST:
                return False
            waiting += reversed(parts)
        return True

    def _entered(self, x: Any, is_fixed: bool) -> list[tuple[Any, bool]] | None:
        """Write the token of `x`.  Returns what it leads to, each with whether another object cannot be put there; None where it
        has a state that cannot be seen."""
        cls, tokens = type(x), self.tokens
        if cls in VALUES or cls is range:
            tokens.append((cls, repr(x)))
            return []
        if is_symbolic(x):  # the same number is the same, whenever it was computed
            number = None if x._post_program is None or not self._takes_numbers else x._post_program.carried_tensor()
            if number is None:
                tokens.append(IdentityKey(x) if x._post_program is not None else (cls, x._name))
                return []
            tokens.append((cls, type(x._value)))
            return [(number, is_fixed)]
        if self._recorder.is_opaque(x) or is_constant(x):
            tokens.append(IdentityKey(x))
            return []
        if isinstance(x, Tensor):
            return self._entered_tensor(x, is_fixed)
        if id(x) in self._separate:
            self._separate[id(x)] += 1
            tokens.append(IdentityKey(x))
            return [] if self._separate[id(x)] == 1 and not is_fixed else None
        number_seen = self._seen.get(id(x))
        is_immutable = cls is Size or is_tuple(x)
        tokens.append((cls, number_seen))
        if is_fixed and not is_immutable:
            tokens.append(IdentityKey(x))
        if number_seen is not None:
            return [(y, True) for y in items_of(self._recorder, x)] if is_immutable and is_fixed else []
        self._seen[id(x)] = len(self._seen)
        if is_immutable:
            tokens.append(tuple.__len__(x))
            return [(y, is_fixed) for y in items_of(self._recorder, x)]
        if cls is set or cls is frozenset:
            self.sets.add(id(x))
            tokens.append([(type(y), repr(y)) for y in x])  # in the order in which they are gone through
            return [] if all(type(y) in VALUES for y in x) else None
        if id(cls) in self._recorder.created:  # what is in the class may change, too
            return None
        if (parts := children_of(self._recorder, x)) is not None:
            self.containers.append(x)
            found = [(y, False) for _, y in parts]
            if cls in SEQUENCES:
                tokens.append((len(x), getattr(x, "maxlen", None)))
            elif cls in DICTIONARIES:
                tokens.append([(type(key), repr(key)) if type(key) in VALUES else IdentityKey(key) for key in x])
                found += [(key, True) for key in x if type(key) not in VALUES]
                found.append((getattr(x, "default_factory", None), True))
            else:
                tokens.append([name for (name, _), _ in parts])
            return found
        tokens.append(IdentityKey(x))
        if cls is types.MethodType:
            return [(x.__func__, True), (x.__self__, True)]
        return self._entered_function(x) if cls is types.FunctionType else None

    def _entered_tensor(self, x: Tensor, is_fixed: bool) -> list[tuple[Any, bool]] | None:
        place = self._places.setdefault(id(x), len(self.tensors))
        if is_fixed:
            self.fixed.add(place)
        self.tokens.append((Tensor, place))
        if place < len(self.tensors):
            return []
        self.tensors.append(x)
        if vars(x) or x._hooks or hasattr(x, "_dynamic"):
            return None
        self.tokens.append(kind_of(x))
        base = x._base
        if base is not None and not self._recorder.is_created(base):  # the call may know nothing of it
            self.tokens.append(IdentityKey(base))
            base = None
        return [(base, False), (x._grad, True)]

    @staticmethod
    def _entered_function(x: types.FunctionType) -> list[tuple[Any, bool]] | None:
        try:
            cells = [cell.cell_contents for cell in x.__closure__ or ()]
        except ValueError:  # a variable that has no value yet
            return None
        called = x.__name__, x.__qualname__, x.__module__, x.__doc__, x.__annotations__, getattr(x, "__type_params__", ())
        found = [*called, *cells, *(x.__defaults__ or ()), *(x.__kwdefaults__ or {}).values(), *vars(x).values()]
        return [(y, True) for y in found]


def reachable_state(recorder: Recorder, functions: Sequence[Any]) -> Snapshot | None:
    """A snapshot of what functions find in the variables around them, and of what the call has put outside; None where that has a
    state that cannot be seen."""
    found = snapshot(recorder, (), {}, (*functions, *outside_effects(recorder)), ())
    return None if isinstance(found, str) else found


def kind_of(x: Tensor) -> tuple[Any, ...]:
    """What is known of a tensor besides its contents and other objects that it leads to."""
    node = x._node
    place = type(node), getattr(node, "op", None), x._index, is_stale_view(x)
    shares_data = type(x._storage) is DataStorage  # others have one once something has saved them
    return (type(x), x._aval, x._array.strides, x._requires_grad, shares_data, *place)


def is_stale_view(x: Tensor) -> bool:
    """Whether `x` is a view whose root has been written to since: it gets its place on the tape when it is used next."""
    base = x._base
    return base is not None and base._storage is not None and x._seen != base._storage.version


def outside_effects(recorder: Recorder, without: Collection[int] = ()) -> list[Any]:
    """What the call has put outside so far, without the stores at the positions `without` among the effects."""
    effects = [effect for k, effect in enumerate(recorder.effects.in_order) if k not in without]
    given = [x for effect in effects for x in (*getattr(effect, "arguments", ()), *getattr(effect, "keywords", {}).values())]
    return [*given, *[effect.value for effect in effects]]


def is_constant(x: Any) -> bool:
    return type(x) in (types.ModuleType, DType) or (type(x) is type and not is_heap_type(x))


def calls_in(recorder: Recorder, statements: Iterable[Any]) -> list[Call]:
    """What statements of the prologue call, but in guards, and to compute numbers."""
    calls = [part for x in statements if isinstance(x, Define) for part in walk(x.value) if isinstance(part, Call)]

    def is_pure(function: Expr) -> bool:
        if not isinstance(function, Name):
            return False
        called = recorder.namespace.get(function.name, getattr(builtins, function.name, None))
        return any(called is x for x in _OF_NUMBERS)

    return [call for call in calls if not is_pure(call.function)]


def only_computes(recorder: Recorder, since: Mark, ignored: Topic = NOTHING, stores: Collection[int] = ()) -> bool:
    """Whether the run has done nothing since a mark but operations on tensors, changes of the topics `ignored`, stores at the
    positions `stores` among the effects, and changes of numbers in places that snapshots compare."""
    if Topic.READS not in ignored and recorder.journal.has_read(since):
        return False
    effects = recorder.effects

    places = effects.places_of(stores)

    def is_known(table: Any, place: Any) -> bool:
        if table is effects.in_order:
            return place in stores
        return table is effects.stored and (place in places or not effects.distinguishes_steps(place[0]))

    return all(is_known(table, place) for table, place in recorder.journal.changes(since, ignored))
