"""Recordings of a function with symbolic sizes, and the paths and programs that are made of them for calls of other sizes.

The second different size of a dimension makes it symbolic: that call is recorded with symbolic sizes
(capture/recording/symbolic_recording.py).  Paths for other sizes are instances of that recording, as long as the relations
between sizes hold that the recorded call relied on; no Python of the function runs for them.

Programs are made once for a *domain* of sizes.  Passes, lowering and the writing of machine code run on the symbolic recording as
on any other.  A second environment notes the relations that they rely on: for all sizes for which these hold they would write the
same text of machine code, with other numbers in its table.  A size outside all domains begins a new one.  Results are therefore
those of a program of the exact size, bit for bit (tests/test_symbolic_paths.py compares).

It knows of paths only for which sizes they were recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from tracejit.autograd.compiled import Mask
from tracejit.capture.recording.entry import Recording, calling
from tracejit.capture.recording.facts import Fact
from tracejit.capture.recording.generator_states import restore_states, saved_states
from tracejit.capture.recording.symbolic_recording import SymbolicRecording, may_vary
from tracejit.capture.session import tensors_among, tensors_and_integers_among
from tracejit.compiled.executable import Executable
from tracejit.compiled.recorded_path import same_objects
from tracejit.core.locks import Ticket, Turn
from tracejit.core.shapes import filled_strides
from tracejit.core.substitution import Substitution
from tracejit.core.symbolic import ShapeEnv
from tracejit.cpython.size_table import Reach, Shapes
from tracejit.lowering.lower import NeedsHost
from tracejit.runtime.program import Program
from tracejit.tensor.marks import marks

__all__ = ["SymbolicPath", "SymbolicPaths", "of_tensors"]

_MOST: Final = 8  # symbolic recordings that a function keeps: of branches of its Python, of modes
_ATTEMPTS: Final = 4  # symbolic recordings in a row of which no instance was made; then no more are made
_DOMAINS: Final = 24  # of a symbolic recording
_NARROW: Final = 6  # domains that served no size but their first; then no more are made
_UNROLLED: Final = 2  # domains of one size each, while there are no others: a loop over the size is unrolled
_NUMBERS_OF_LOGGED: Final = 3
"""Numbers of tensors in lists in objects, so many as calls may find there that fill such lists once, or empty them."""
_FITS: Final = object()
INTEGER: Final[Any] = "an integer"  # in the place of a second size: no shape has it
STRIDES: Final[Any] = "strides"  # behind the sizes and the strides of a tensor that does not fill its memory
_making = Turn()


class SizeDomain:
    """The programs of a symbolic recording, and the relations between sizes under which they are right."""

    def __init__(self, path: SymbolicPath, shapes: Shapes, make: Callable[[Recording], Executable]) -> None:
        """make: compiles a recording.  Raises what that raises, and NeedsHost where the recording is more than one program."""
        self.env = ShapeEnv()
        self.instances = 0
        self._clean: set[int] = set()
        self._backward: dict[tuple[Mask, Mask], Program | None] = {}
        with self.env:
            self._executable = make(path.recording.in_terms_of(self.env, shapes))
        if not isinstance(self._executable.program, Program):  # nothing of it has symbolic sizes
            raise NeedsHost(f"{self._executable.name} has steps of Python")

    @property
    def is_pinned(self) -> bool:
        """Whether it serves one size alone."""
        return len(self.env.pinned()) == self.env.variables

    def _numbers(self, sizes: list[int]) -> Substitution | None:
        """What puts these sizes in the places of the symbolic ones; None where they are not in the domain."""
        values = self.env.evaluated(sizes)
        return None if values is None else Substitution(self.env, values, self._clean)

    def is_for(self, sizes: list[int]) -> bool:
        """Whether these sizes are in the domain."""
        return self.env.evaluated(sizes) is not None

    def at(self, recording: Recording, sizes: list[int]) -> Executable | None:
        """The programs of the recording for these sizes; None where they are not in the domain."""
        numbers = self._numbers(sizes)
        if numbers is None:
            return None
        self.instances += 1
        return self._executable.at(recording, numbers, _InstanceMaker(self, sizes))

    def backward(self, instance: Executable, present: Mask, mask: Mask, sizes: list[int]) -> Program | None:
        """A backward program of an instance for these sizes; None where it cannot be made once for the whole domain."""
        key = (present, mask)
        if key not in self._backward:
            ticket = Ticket()
            try:
                if not _making.take(ticket):
                    return None
                with self.env:
                    try:
                        program, _ = self._executable.build_backward(present, mask)
                    except NeedsHost:
                        program = None
                    if not isinstance(program, Program):  # it has steps of Python, though none with symbolic sizes
                        program = None
                self._backward[key] = program
            finally:
                ticket.over = True
        symbolic = self._backward[key]
        numbers = None if symbolic is None else self._numbers(sizes)
        return None if numbers is None else numbers.of(symbolic)  # type: ignore[no-any-return]


class _InstanceMaker:
    """The domain that an executable is an instance of, and its sizes."""

    __slots__ = ("_domain", "_sizes")

    def __init__(self, domain: SizeDomain, sizes: list[int]) -> None:
        self._domain = domain
        self._sizes = sizes

    def backward(self, instance: Executable, present: Mask, mask: Mask) -> Program | None:
        return self._domain.backward(instance, present, mask, self._sizes)


class SymbolicPath:
    """A symbolic recording, and the domains of its programs."""

    def __init__(self, recording: SymbolicRecording) -> None:
        self.recording = recording
        self.domains: tuple[SizeDomain, ...] = ()
        self.needs_host = False

    def is_of(self, recording: Recording, shapes: Shapes) -> bool:
        """Whether this recording is of the same path as another one with these shapes: under the same guards."""
        made = self.recording.at(shapes)
        return (
            made is not None
            and made.graph is not None
            and recording.graph is not None
            and made.graph.equals(recording.graph)
            and made.guards == recording.guards
            and same_objects(made.guards, made.namespace, recording.namespace)
        )

    def executable(self, plain: Recording, shapes: Shapes, make: Callable[[Recording], Executable]) -> Executable | None:
        """The programs of `plain`, which is this recording for these shapes; None where they have to be made for these alone."""
        sizes = self.recording.sizes(shapes)
        for domain in self.domains:
            if (found := domain.at(plain, sizes)) is not None:
                return found
        if self.needs_host or not self._may_have_more():
            return None
        ticket = Ticket()
        try:
            if not _making.take(ticket):
                return None
            domain = SizeDomain(self, shapes, make)
        except NeedsHost:  # whose programs are several, with numbers of their own in each
            self.needs_host = True
            return None
        finally:
            ticket.over = True
        self.domains = (*self.domains, domain)
        return domain.at(plain, sizes)

    def has_programs(self, shapes: Shapes) -> bool:
        """Whether some domain stands for these sizes, and is used for them."""
        sizes = self.recording.sizes(shapes)
        return self.recording.serves(shapes) and any(domain.is_for(sizes) for domain in self.domains)

    def _may_have_more(self) -> bool:
        """Whether another domain may pay.  One of a single size is of one that is equal to another size by chance, unless all
        are: then something is unrolled."""
        wide = [domain for domain in self.domains if not domain.is_pinned]
        return (
            len(self.domains) - len(wide) < (_DOMAINS if wide else _UNROLLED)
            and len(wide) < _DOMAINS
            and sum(domain.instances < 2 for domain in wide) < _NARROW
        )


class SymbolicPaths:
    """What a function has met of sizes, and the symbolic recordings that came of it."""

    def __init__(self, dynamic: bool | None = None, reach: Reach = Reach.ALL) -> None:
        """dynamic: whether all sizes are symbolic at once, or none ever is; None: those of which there was a second one.
        reach: which tensors and integers of a call are looked at.  Of a piece of a function these are the arguments alone: they are
        variables of the function, and what is in them may grow from call to call."""
        self.dynamic = dynamic
        self.reach = reach
        self._tensors: dict[tuple[int, ...], set[int]] = {}  # see `lists_vary`
        self.paths: tuple[SymbolicPath, ...] = ()
        self._pinned: dict[str, None] = {}  # why sizes are none of these, for a reader
        self._first: dict[tuple[int, ...], Shapes] = {}  # ranks of the arguments -> the shapes that came first
        self._varying: dict[tuple[int, ...], set[tuple[int, int]]] = {}
        self._unused = 0  # symbolic recordings since one has served another call
        self._asked: frozenset[int] = frozenset()  # which of the integers among the arguments

    def lists_vary(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether calls like this one, which no path serves, have had so many different numbers of tensors in lists in objects that these
        lists are logs: their tensors are not read as a rule, and tell nothing about the sizes of a call."""
        if self.reach is not Reach.ALL:
            return False
        others = tensors_among(args, kwargs, Reach.WITHOUT_LISTS)
        counts = self._tensors.setdefault(tuple([x._array.ndim for x in others]), set())
        counts.add(len(tensors_among(args, kwargs)))
        return len(counts) > _NUMBERS_OF_LOGGED

    def dimensions(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[int, int]]:
        """The dimensions of the tensors among the arguments, and the integers, that are symbolic when this call is recorded."""
        tensors, shapes = tensors_among(args, kwargs, self.reach), self.shapes(args, kwargs)
        ranks = _ranks(shapes)
        first, varying = self._first.setdefault(ranks, shapes), self._varying.setdefault(ranks, set())
        marked = set()
        for k, shape in enumerate(shapes):
            varying.update([(k, d) for d, (a, b) in enumerate(zip(first[k], shape, strict=True)) if a != b])
        for k, tensor in enumerate(tensors):
            marked.update([shapes[k][d] for d, dynamic in marks(tensor).items() if dynamic])
        if marked:  # what has the same size is most likely the same batch
            varying.update([(k, d) for k, shape in enumerate(of_tensors(shapes)) for d, n in enumerate(shape) if n in marked])
        if self._unused >= _ATTEMPTS or self.dynamic is False:
            return []
        chosen = [(k, d) for k in range(len(tensors)) for d in range(len(shapes[k]))] if self.dynamic else sorted(varying)
        static = {(k, d) for k, tensor in enumerate(tensors) for d, dynamic in marks(tensor).items() if not dynamic}
        return [(k, d) for k, d in chosen if may_vary(shapes[k][d]) and (k, d) not in static]

    def shapes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Shapes:
        """The shapes of the tensors among the arguments, and in containers and objects that are: (*sizes, *strides, STRIDES) for
        those that do not fill their memory.  And where some integer among the arguments was asked for its value, as a size is,
        (value, INTEGER) for that one and (0, INTEGER) for others."""
        integers: list[int] = []
        if self._asked:
            tensors, integers = tensors_and_integers_among(args, kwargs, self.reach)
        else:
            tensors = tensors_among(args, kwargs, self.reach)
        found = tuple([_layout(a.shape, a.strides, a.itemsize) for x in tensors for a in (x._array,)])
        return self._with(found, integers) if self._asked else found

    def note_shapes(self, recording: Recording, shapes: Shapes, integers: Sequence[int]) -> Shapes:
        """A call was recorded that had these `shapes`, and integers among its arguments.  Returns its shapes as they are from now
        on."""
        if not recording.asked <= self._asked:
            self._asked |= recording.asked
            shapes = self._with(_without_integers(shapes), integers)
            # What was not asked for then has not changed since.
            first = _without_integers(self._first.get(_ranks(shapes), shapes))
            self._first[_ranks(shapes)] = (*first, *shapes[len(first) :])
        return shapes

    def _with(self, shapes: Shapes, integers: Sequence[int]) -> Shapes:
        return (*shapes, *[(x if k in self._asked else 0, INTEGER) for k, x in enumerate(integers)])  # type: ignore[arg-type]

    def note_recording(
        self, recording: Recording, shapes: Shapes, dynamic: list[tuple[int, int]]
    ) -> tuple[Recording, SymbolicPath | None]:
        """A recording was made, with these dimensions symbolic.  Returns it with its own sizes alone, and what it is of for
        others, too."""
        if recording.reason is not None:
            return recording, None
        made = None if recording.env is None else SymbolicRecording(recording, shapes, dynamic)
        plain = recording if made is None else made.plain
        if made is not None:
            self._pinned = dict.fromkeys([*self._pinned, *made.env.pins()][-_MOST:])
            plain = replace(plain, facts=(*plain.facts, *_pinned_sizes(made.env)))
        if made is None or not made.is_general:
            return plain, None
        known = next((path for path in self.paths if path.is_of(plain, shapes)), None)
        if known is None:
            self._unused += 1
            known = SymbolicPath(made)
            self.paths = (known, *self.paths)[:_MOST]
        return plain, known

    def describe(self) -> list[str]:
        """A line for a reader about each symbolic recording."""
        lines = []
        for path in self.paths:
            env = path.recording.env
            names = ", ".join(name for k, name in enumerate(env.names) if k not in env.pinned())
            guards = env.guards()
            more = f" and {len(guards) - _MOST} more" if len(guards) > _MOST else ""
            where = f", where {' and '.join(guards[:_MOST])}{more}" if guards else ""
            count = sum(domain.instances for domain in path.domains)
            state = f"{_counted_noun(count, 'path')} came of it"
            programs = _counted_noun(len(path.domains), "domain")
            own = ""
            if path.needs_host:
                own = "; programs with steps of Python are made for each size"
            lines.append(f"a recording with symbolic sizes {names}{where}: {state}, machine code for {programs} of sizes{own}")
        return lines

    def fixed_sizes(self) -> list[str]:
        """A line for a reader about each size that is not symbolic, with the program's line that asks for it."""
        return [f"a size is not symbolic, since the program asks which it is: {pin}" for pin in self._pinned]

    def has_programs(self, shapes: Shapes) -> bool:
        """Whether the forward program of a call of these sizes is made, but for its numbers."""
        return any(path.has_programs(shapes) for path in self.paths)

    def instance(
        self, shapes: Shapes, args: tuple[Any, ...], kwargs: dict[str, Any], tried: Callable[[Recording], bool]
    ) -> tuple[Recording, SymbolicPath] | None:
        """What a call of these sizes would be recorded as, if one of the symbolic recordings tells, and of which it is.  tried: whether a
        recording has a path that does not serve the call."""
        for path in self.paths:
            recording = path.recording.at(shapes)
            if recording is not None and not tried(recording) and _serves(recording, args, kwargs):
                self._unused = 0
                return recording, path
        return None


def _pinned_sizes(env: ShapeEnv) -> list[Fact]:
    """The sizes that are one in all calls, for who compares recordings."""
    found = []
    for pin in env.pins():
        relation, _, line = pin.partition(" at ")
        name, sign, value = relation.partition(" == ")
        if sign:
            found.append(Fact("size", name, line, value))
    return found


def _counted_noun(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def of_tensors(shapes: Shapes) -> Shapes:
    """The sizes alone, of those that are no integers among the arguments."""
    return tuple([shape[: len(shape) // 2] if shape[-1:] == (STRIDES,) else shape for shape in _without_integers(shapes)])


def _without_integers(shapes: Shapes) -> Shapes:
    return tuple([shape for shape in shapes if shape[-1:] != (INTEGER,)])


@lru_cache(4096)
def _layout(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    in_elements = tuple([n // itemsize for n in strides])
    return shape if filled_strides(shape, in_elements, shape) is not None else (*shape, *in_elements, STRIDES)


def _ranks(shapes: Shapes) -> tuple[int, ...]:
    """What must be the same in two calls for their sizes to be compared."""
    return tuple([-len(shape) if shape[-1:] in ((INTEGER,), (STRIDES,)) else len(shape) for shape in shapes])


def _serves(recording: Recording, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the guards of a recording hold for a call.  What locks before the program is not tried in vain; what is drawn
    before it is put back."""
    if recording.locks:
        return False
    entry = recording.build_entry(calling(recording, lambda tensors, numbers: _FITS))
    states, answer = saved_states(recording.generators)(), None
    try:
        answer = entry(args, kwargs)
    finally:
        restore_states(states, answer)
    return answer is _FITS
