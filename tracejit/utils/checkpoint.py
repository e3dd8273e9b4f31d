"""Checkpointing: what a function saved for its backward pass is computed again there, in exchange for the memory.

The function is called on the tape, and what it put there is dropped at once; only the edges outside that it leads to are kept: its
arguments, and whatever else it found that wants gradients.  In the backward pass it is called once more, with the random numbers that it
drew the first time, and the gradients of those edges are computed through that.

Inside of a recording the function is simply called: the compiled program decides itself what it keeps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tracejit.autograd.engine import GradientSink, run_backward
from tracejit.autograd.grad_mode import enable_grad, is_grad_enabled
from tracejit.autograd.saved import SavedTensor
from tracejit.autograd.tape import FREED, Node, edge_of, next_sequence
from tracejit.core.interpreter import is_recording, state
from tracejit.core.tree import flatten, unflatten
from tracejit.ops.movement.copies import clone
from tracejit.ops.movement.views import detach
from tracejit.ops.public.random import default_generator
from tracejit.tensor import Tensor, wrap

__all__ = ["checkpoint", "checkpoint_sequential", "get_device_states", "set_device_states"]

TapeEdge = tuple[Any, int]


class _CheckpointNode(Node):
    """The whole call as one step of the tape.  edges: those of the arguments, then of what else it leads to."""

    __slots__ = ("_arguments", "_random", "_run", "freed")

    def __init__(self, run: Callable[[list[Any]], list[Any]], arguments: list[Any], outside: list[TapeEdge], random: Any) -> None:
        wanted = [edge_of(x) if isinstance(x, Tensor) and x.requires_grad else None for x in arguments]
        super().__init__((*wanted, *outside))
        self._run = run
        self._arguments = [SavedTensor(x, None) if isinstance(x, Tensor) else x for x in arguments]
        self._random = random
        self.freed = False

    def name(self) -> str:
        return "CheckpointFunctionBackward"

    def release(self) -> None:
        self.freed = True
        self._arguments = []

    def backward(self, cotangents: Sequence[Any], tensors: bool) -> Sequence[Any]:
        if self.freed:
            raise RuntimeError(FREED)
        create_graph = tensors and state.grad_enabled
        given = [x.unpack(self) if isinstance(x, SavedTensor) else x for x in self._arguments]
        points = [_variable(x, create_graph) for x in given]
        with enable_grad():
            outputs = _with_random(self._random, functools.partial(self._run, points))
        pairs = [
            (y, g if tensors else wrap(g))
            for y, g in zip(outputs, cotangents, strict=True)
            if g is not None and isinstance(y, Tensor) and y.requires_grad
        ]
        own = [edge_of(x) if edge is not None else None for x, edge in zip(points, self.edges, strict=False)]
        all_edges = [*own, *self.edges[len(points) :]]
        sink = GradientSink(None, [edge for edge in all_edges if edge is not None])
        if pairs:
            roots, seeds = [edge_of(y) for y, _ in pairs], [g for _, g in pairs]
            run_backward(roots, seeds, sink, retain_graph=create_graph, create_graph=create_graph, wrap=wrap)
        found = [None if edge is None else sink.received.get((id(edge[0]), edge[1])) for edge in all_edges]
        return [g if tensors or g is None or not isinstance(g, Tensor) else g._array for g in found]


def _variable(x: Any, linked: bool) -> Any:
    """`x` at a position of its own on the tape: a leaf, or, if derivatives of the result are wanted, a result of `x`."""
    if not isinstance(x, Tensor):
        return x
    if not x.requires_grad:
        return detach(x)
    return clone(x) if linked else detach(x).requires_grad_()


def _with_random(random: Any, call: Callable[[], Any]) -> Any:
    """call() with the default generator at `random` (None for where it is), and back afterwards."""
    if random is None:
        return call()
    now = default_generator.get_state()
    try:
        default_generator.set_state(random)
        return call()
    finally:
        default_generator.set_state(now)


def _outside(outputs: Sequence[Any], points: Sequence[Any], since: float) -> list[TapeEdge]:
    """The edges that outputs lead to, made before `since` or leaves, and which are none of `points`."""
    own = {id(x) for x in points}
    seen: set[Any] = set()
    found: dict[tuple[int, int], TapeEdge] = {}
    stack = [edge_of(y) for y in outputs if isinstance(y, Tensor) and y.requires_grad]
    while stack:
        target, index = stack.pop()
        if isinstance(target, Node) and target.sequence > since:
            if target not in seen:
                seen.add(target)
                stack.extend([edge for edge in target.edges if edge is not None])
        elif id(target) not in own:
            found[id(target), index] = target, index
    return list(found.values())


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    context_fn: Any = None,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """function(*args, **kwargs), keeping only the arguments for its backward pass, in which the function is called once more.

    preserve_rng_state: it draws the same random numbers then.  Parameters that the function finds elsewhere get their gradients too.  The
    other options say how PyTorch goes about it, and change nothing here."""
    if is_recording() or not is_grad_enabled():
        return function(*args, **kwargs)
    return _checkpointed(function, args, kwargs, preserve_rng_state)


def _checkpointed(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], keep_random: bool) -> Any:
    arguments, shape = flatten([list(args), kwargs])
    structures: list[Any] = []

    autocast = state.autocast

    def run(values: list[Any]) -> list[Any]:
        given, named = unflatten(shape, values)
        previous = state.autocast
        try:
            state.autocast = autocast  # also in the backward pass, which is outside
            outputs, structure = flatten(function(*given, **named))
        finally:
            state.autocast = previous
        structures[:] = [structure]
        return outputs

    random = default_generator.get_state() if keep_random else None
    since = next_sequence()
    points = [_variable(x, False) for x in arguments]
    outputs = run(points)
    node = _CheckpointNode(run, arguments, _outside(outputs, points, since), random)
    node.count = len(outputs)
    on_tape = []
    for i, y in enumerate(outputs):
        if isinstance(y, Tensor) and y.requires_grad:
            y = detach(y)
            y._put_on_tape(node, i, written=False)
        on_tape.append(y)
    return unflatten(structures[0], on_tape)


def checkpoint_sequential(
    functions: Any,
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
) -> Any:
    """The functions (or the modules of a Sequential) one after the other, in so many segments that are checkpointed but for the last."""
    members = list(functions)
    size = len(members) // segments
    start = 0
    for _ in range(segments - 1):
        part = functools.partial(_run_all, members[start : start + size])
        input = checkpoint(part, input, use_reentrant=use_reentrant, preserve_rng_state=preserve_rng_state)
        start += size
    return _run_all(members[start:], input)


def _run_all(members: Sequence[Callable[[Any], Any]], x: Any) -> Any:
    for member in members:
        x = member(x)
    return x


def get_device_states(*args: Any) -> tuple[list[int], list[Any]]:
    """([], []): the numbers of the devices that tensors are on, and the states of the generators there; the CPU is none of them."""
    return [], []


def set_device_states(devices: Sequence[int], states: Sequence[Any], *, device_type: str | None = None) -> None:
    """Sets what get_device_states() gave, which is nothing.  Raises RuntimeError for a device."""
    if devices or states:
        raise RuntimeError(f"set_device_states(): there are no devices {list(devices)}: tracejit computes on the CPU only")
