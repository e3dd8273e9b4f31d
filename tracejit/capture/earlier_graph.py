"""Backward passes of a call that reach a graph made before it (autograd/earlier_graph.py): the recording ends there.

The program gives the cotangents of the tensors from outside at which the graph begins.  From there the pass goes on without the recording:
at once in the recorded call, and in later ones when their program has run, if `may_come_later`, which a guard asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tracejit.autograd.earlier_graph import Dependences, dependences, may_come_later, propagate, propagate_from
from tracejit.capture.handlers.base import TensorSource
from tracejit.capture.handlers.effects import FunctionCall
from tracejit.capture.handlers.try_blocks import is_in_try_block
from tracejit.capture.recording.journal import Variable
from tracejit.replay.ir import Expr, Miss, Not, Statement, TupleOf
from tracejit.tensor import Tensor
from tracejit.tensor.base import wrap

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["EarlierGraph"]

TapeEdge = tuple[Any, int]


class EarlierGraph:
    """The passes of a call that have gone on into such graphs: from which tensors, and what they depend on."""

    _retained = Variable(True)  # whether all of them have left their graphs as they were

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.journal = recorder.journal
        self._passes: list[tuple[list[TensorSource], Dependences]] = self.journal.list()

    def may_be_entered(self, nodes: Iterable[Any]) -> bool:
        """Whether another pass may go on at these nodes: one that is nobody's earlier graph, and comes to the same when it is later."""
        recorder = self._recorder
        if not self._retained or recorder.unwatched(lambda: is_in_try_block(recorder.effects.handles_in_blocks)):
            return False
        known = recorder.unwatched(lambda: dependences([(node, 0) for node in nodes]))
        return known is not None and known.allow([s.tensor for s in self._leaves()], ())

    def enter(self, arrived: Sequence[tuple[TapeEdge, Tensor]], retain_graph: bool) -> None:
        """A pass has arrived at these places with these cotangents."""
        recorder = self._recorder
        places, cotangents = [place for place, _ in arrived], [wrap(g._array.copy()) for _, g in arrived]
        sources = [self._source(place) for place in places]
        known = None if recorder.stopped else recorder.unwatched(lambda: dependences(places))
        if known is None or None in sources:
            recorder.stop("outside_graph", places[0][0].name())
        else:
            begun = [source for source in sources if source is not None]
            self._passes.append((begun, known))
            self._retained = self._retained and retain_graph
            tensors = recorder.mark_created(tuple([source.tensor for source in begun]))
            given = recorder.mark_created(tuple([recorder.program.copy_of_contents(g) for _, g in arrived]))
            call = FunctionCall(recorder.mark_fixed(propagate_from), (tensors, given, retain_graph), {})
            recorder.effects.note_hit(call)
        recorder.unwatched(lambda: propagate(places, cotangents, retain_graph))

    def _source(self, place: TapeEdge) -> TensorSource | None:
        """The only tensor from outside at a place of the tape, which is no view; else None."""
        found = [s for s in self._recorder.tensors.values() if s.requires_grad and s.place == place]
        return found[0] if len(found) == 1 and not found[0].is_view else None

    def _leaves(self) -> list[TensorSource]:
        """The leaves from outside that the call uses."""
        sources = self._recorder.tensors.values()
        return [s for s in sources if s.requires_grad and s.is_leaf and (s.used or s.inspected)]

    def guards(self, written: Iterable[Tensor]) -> list[Statement]:
        """That these passes may come after the program, which writes to these tensors."""
        recorder = self._recorder
        leaves = self._leaves()
        changed = [recorder.tensors[id(tensor)] for tensor in written]
        statements: list[Statement] = []
        for sources, known in self._passes:
            if not known.allow([s.tensor for s in leaves], [s.tensor for s in changed]):
                recorder.stop(
                    "outside_graph", f"{sources[0].place[0].name()}, whose leaves the call uses, or whose saved values it changes"
                )
            groups: list[Expr] = [TupleOf(tuple([s.variable for s in group])) for group in (sources, leaves, changed)]
            statements.append(Miss(Not(recorder.constant(may_come_later).call(*groups))))
        return statements
