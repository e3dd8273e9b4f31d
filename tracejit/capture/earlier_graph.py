"""Backward passes in a recorded call that reach an earlier graph: nodes of the tape that were created before the call.

The recording of such a pass ends where it enters the earlier graph, at tensors from outside, whose cotangents the program
computes.  The rest of the pass is not recorded.  In the recorded call it runs at once; in later calls it runs as an effect after
the program (autograd/earlier_graph.py), if a guard finds that this gives the same result (`may_come_later`).
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
    """The backward passes of one call that have entered earlier graphs: the tensors at which they entered, and what they depend
    on."""

    _retained = Variable(True)  # whether all of these passes have retained their graphs

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.journal = recorder.journal
        self._passes: list[tuple[list[TensorSource], Dependences]] = self.journal.list()

    def may_be_entered(self, nodes: Iterable[Any]) -> bool:
        """Whether a pass may enter earlier graphs at these nodes: earlier passes have retained their graphs, and running the rest
        of this pass after the program gives the same result."""
        recorder = self._recorder
        if not self._retained or recorder.unwatched(lambda: is_in_try_block(recorder.effects.handles_in_blocks)):
            return False
        needs = recorder.unwatched(lambda: dependences([(node, 0) for node in nodes]))
        return needs is not None and needs.allow([s.tensor for s in self._leaves()], ())

    def enter(self, arrived: Sequence[tuple[TapeEdge, Tensor]], retain_graph: bool) -> None:
        """Run the rest of a pass, and record it as an effect.  arrived: the edges on the tape where it has entered earlier
        graphs, with their cotangents."""
        recorder = self._recorder
        edges, cotangents = [edge for edge, _ in arrived], [wrap(g._array.copy()) for _, g in arrived]
        sources = [self._source(edge) for edge in edges]
        needs = None if recorder.stopped else recorder.unwatched(lambda: dependences(edges))
        if needs is None or None in sources:
            recorder.stop("outside_graph", edges[0][0].name())
        else:
            starts = [source for source in sources if source is not None]
            self._passes.append((starts, needs))
            self._retained = self._retained and retain_graph
            tensors = recorder.mark_created(tuple([source.tensor for source in starts]))
            copies = recorder.mark_created(tuple([recorder.interpreter.copy_of_contents(g) for _, g in arrived]))
            call = FunctionCall(recorder.mark_fixed(propagate_from), (tensors, copies, retain_graph), {})
            recorder.effects.note_hit(call)
        recorder.unwatched(lambda: propagate(edges, cotangents, retain_graph))

    def _source(self, edge: TapeEdge) -> TensorSource | None:
        """The tensor from outside at an edge of the tape, if there is exactly one and it is not a view; else None."""
        sources = [s for s in self._recorder.tensors.values() if s.requires_grad and s.edge == edge]
        return sources[0] if len(sources) == 1 and not sources[0].is_view else None

    def _leaves(self) -> list[TensorSource]:
        """The leaves from outside that the call uses."""
        sources = self._recorder.tensors.values()
        return [s for s in sources if s.requires_grad and s.is_leaf and (s.used or s.inspected)]

    def guards(self, written: Iterable[Tensor]) -> list[Statement]:
        """The guards that these passes may run after the program.  written: the tensors from outside that the program writes."""
        recorder = self._recorder
        leaves = self._leaves()
        changed = [recorder.tensors[id(tensor)] for tensor in written]
        statements: list[Statement] = []
        for sources, needs in self._passes:
            if not needs.allow([s.tensor for s in leaves], [s.tensor for s in changed]):
                recorder.stop(
                    "outside_graph", f"{sources[0].edge[0].name()}, whose leaves the call uses, or whose saved values it changes"
                )
            groups: list[Expr] = [TupleOf(tuple([s.variable for s in group])) for group in (sources, leaves, changed)]
            statements.append(Miss(Not(recorder.constant(may_come_later).call(*groups))))
        return statements
