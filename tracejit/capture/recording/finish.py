"""Makes a `Recording` of a run that has not been stopped: guards in their final form, facts about outputs, effects and result.

It also refuses recordings that no entry could replay (the checks below).  The Recording keeps no tensors of the run alive: only
their metadata and names.
"""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from tracejit.autograd.tape import DataStorage, edges_behind_freed
from tracejit.capture.handlers.base import ABSENT, TensorSource
from tracejit.capture.handlers.effects import AttributeStore, FunctionCall, ItemStore, MethodCall
from tracejit.capture.handlers.locking import release
from tracejit.capture.handlers.recorder import Recorder
from tracejit.capture.policies import IDENTITY_TYPES, is_a, is_library_module
from tracejit.capture.recording.entry import (
    Alias,
    ExitPoint,
    Recording,
    ScalarInput,
    TensorInput,
    TensorOutput,
    ViewPosition,
    WrittenInput,
    distinct_guards,
)
from tracejit.capture.recording.facts import Fact, shown
from tracejit.capture.recording.generator_states import reference
from tracejit.capture.recording.post_program_checks import Views, check_arrays, check_calls, check_outside_arrays
from tracejit.capture.recording.recipes import Recipes
from tracejit.capture.recording.selections import join_selections
from tracejit.capture.recording.structure import Structure, split
from tracejit.capture.tensors import RecordingInterpreter
from tracejit.core.aval import Aval
from tracejit.core.dtypes import FROM_NUMPY
from tracejit.core.interpreter import state
from tracejit.core.op import Kind, Op
from tracejit.core.overlap import overlaps_itself
from tracejit.core.shapes import element_strides, filled_strides
from tracejit.core.symbolic import text_of
from tracejit.ir.graph import Graph, Literal, Node
from tracejit.ops.indexing import nonzero, row_indices
from tracejit.replay.ir import And, Constant, Define, Evaluate, Expr, Miss, Name, Or, SetAttribute, Statement, walk
from tracejit.tensor import Tensor
from tracejit.tensor.marks import marks

__all__ = ["finish"]

_GUARD = Kind.GUARD  # found once: a member of an enumeration takes 0.1 us on Python 3.11


def finish(recorder: Recorder, interpreter: RecordingInterpreter, result: Any, modes: tuple[bool, Any]) -> Recording:
    """The recording of a run that has returned `result`.  modes: (grad mode, autocast) at its beginning."""
    branches, recursion = recorder.branches.in_program(), recorder.branches.recursion
    if recorder.stopped:
        return Recording(recorder.reason, branches=branches, recursion=recursion)
    recipes = Recipes(recorder, interpreter)
    for effect in list(recorder.effects.in_order):
        recipes.make(effect)
    for tensor, _, _ in interpreter.switched.values():
        if tensor._requires_grad != recorder.tensors[id(tensor)].requires_grad:
            recipes.statements.append(Evaluate(recipes.source(tensor).method("requires_grad_", tensor._requires_grad)))
    answer = recipes.expression(result)
    recipes.define_post_program()
    grad_enabled, autocast = modes
    if state.grad_enabled != grad_enabled:
        recipes.statements.append(SetAttribute(Name("state"), "grad_enabled", Constant(state.grad_enabled)))
    if state.autocast is not autocast:
        recipes.statements.append(SetAttribute(Name("state"), "autocast", recorder.constant(state.autocast)))
    views = Views(interpreter.nodes)
    inputs = list(interpreter.inputs)
    written = _written_inputs(recorder, interpreter, views, inputs)
    _check_overlap(recorder, interpreter, inputs, written)
    _check_targets(recorder, interpreter, views)
    check_arrays(recorder, interpreter, views)
    check_calls(recorder, views, inputs)
    check_outside_arrays(recorder, interpreter, inputs, written)
    outputs = _outputs(recorder, interpreter, recipes.outputs, views, inputs, {})
    if view_positions := _view_positions(interpreter, outputs, recipes.outputs):
        outputs = _outputs(recorder, interpreter, recipes.outputs, views, inputs, view_positions)
    for out in outputs:
        if out.alias is not None and out.requires_grad and any(_ends_gradients(op) for op, _, _ in out.alias.views):
            recorder.stop(
                "differentiable_write", f"a detached tensor of shape {list(out.shape)}, whose memory another tensor shares"
            )
    if any(type(tensor._storage) is DataStorage for tensor in recipes.outputs):
        recorder.stop("tensor_state", "a tensor from .data that leaves the call")
    # Whether a backward pass after the call may run through it.
    has_backward = any(o.requires_grad and not o.is_leaf and o.consumed is None for o in outputs)
    has_backward = has_backward or any(fact.has_new_edge and fact.consumed is None for fact in written)
    _check_storages(recorder, interpreter, views, inputs, has_backward)
    _check_data(recorder, interpreter, views, inputs, written, has_backward)
    for _, _, value in interpreter.switched.values() if has_backward else ():
        if value in interpreter.requires_grad and value not in inputs:
            recorder.stop("tensor_state", "requires_grad_() of an outside tensor, before a backward pass that follows the call,")
    if has_backward:
        for fact in written:
            tensor = interpreter.inputs[inputs[fact.index]]
            if fact.requires_grad and recorder.tensors[id(tensor)].is_view:  # the write has given it a new position on the tape
                recorder.stop("differentiable_write", f"a view of shape {list(tensor.shape)}, whose base changes with it")
    if has_backward and interpreter.own_backward:
        recorder.stop("own_backward", interpreter.own_backward)
    if has_backward and interpreter.hooked:
        recorder.stop("tensor_state", "a hook on a tensor of the call, which a backward pass that follows would run,")
    hooks = _hook_expressions(recorder, interpreter)
    of_tape = interpreter.earlier_graph.guards([interpreter.inputs[inputs[fact.index]] for fact in written])
    if recorder.stopped:
        return Recording(recorder.reason, branches=branches, recursion=recursion)
    join_selections(interpreter, [out.value for out in outputs])
    guards = [*_guards(recorder, hooks), *of_tape]
    asked = _guarded_integers(recorder, guards)
    distinct = [*[s.variable for s in recorder.tensors.values()], *recorder.distinct_objects]
    if any(isinstance(effect, FunctionCall) for effect in recorder.effects.in_order):
        distinct += recorder.distinct_arrays
    distinct = list(dict.fromkeys(distinct))
    variables = [recorder.tensors[id(interpreter.inputs[value])].variable for value in inputs]
    weak = {name: weakref.ref(value) for name, value in recorder.namespace.items() if _must_be_weak(name, value, recorder)}
    graph = Graph(
        inputs=(*inputs, *interpreter.scalars.values()),
        avals=interpreter.avals,
        nodes=tuple(interpreter.nodes),
        outputs=tuple(o.value for o in outputs),
        requires_grad=frozenset(interpreter.requires_grad),
    )
    return Recording(
        reason=None,
        env=recorder.sizes.env,
        graph=graph,
        tensor_inputs=_tensor_inputs(recorder, interpreter, inputs, variables),
        scalar_inputs=tuple(ScalarInput(value, name) for name, value in interpreter.scalars.items()),
        outputs=outputs,
        written_inputs=tuple(written),
        exits=tuple(
            ExitPoint(i, node.line, _expected(node)) for i, node in enumerate(interpreter.nodes) if node.op.kind is _GUARD
        ),
        guards=(*guards, *distinct_guards(distinct)),
        epilogue=tuple(recipes.statements),
        result=answer,
        namespace={**recorder.namespace, **weak, "release": release},
        weak=tuple(weak),
        structure=None
        if recorder.locking.acquired
        else _structure(recorder, guards, distinct),  # values read under a lock have to be read under it
        locks=bool(recorder.locking.acquired),
        asked=asked,
        settled={
            x._name.name: x._value
            for k, x in enumerate(recorder.integers)
            if x is not None and k in asked and not recorder.sizes.is_size(x)
        },
        generators=tuple(map(reference, recorder.generators.known.values())),
        opaque_calls=tuple(recorder.effects.opaque_calls),
        left_out=interpreter.left_out,
        remarks=tuple(dict.fromkeys(interpreter.remarks)),
        branches=branches,
        recursion=recursion,
        follows_rows=recorder.ragged.follows_rows,
        varied=recorder.facts.varied,
        facts=(
            *_facts_of_tensors(recorder, True),
            *recorder.facts.noted,
            *_facts_of_tensors(recorder, False),
            *_inside(interpreter),
        ),
    )


def _facts_of_tensors(recorder: Recorder, arguments: bool) -> list[Fact]:
    """Facts about the metadata of tensors from outside: of those that are arguments, or of the others."""
    result: list[Fact] = []
    cached: dict[Any, list[tuple[str, str, str]]] = {}  # many parameters have the same metadata
    for source in recorder.tensors.values():
        if source.argument is arguments and (source.used or source.inspected):
            array, shape = source.tensor._array, recorder.sizes.inputs.get(id(source.tensor))
            key = array.dtype, array.shape, array.strides, source.requires_grad, source.is_leaf
            facts = cached.get(key) if shape is None else _tensor_facts(source, shape)
            if facts is None:
                facts = cached[key] = _tensor_facts(source, array.shape)
            name = recorder.facts.name(source.tensor)
            result += [Fact(kind, f"{name}.{what}", "", value) for kind, what, value in facts]
    return result


def _tensor_facts(source: TensorSource, shape: Sequence[int]) -> list[tuple[str, str, str]]:
    """(kind, attribute, value) for each guarded attribute of a tensor."""
    array = source.tensor._array
    return [
        ("tensor", "dtype", str(FROM_NUMPY[array.dtype])),
        ("tensor", "dim()", str(array.ndim)),
        *[("shape", f"shape[{d}]", text_of(size)) for d, size in enumerate(shape)],
        ("tensor", "stride()", str(element_strides(array))),
        ("tensor", "requires_grad", str(source.requires_grad)),
        ("tensor", "is_leaf", str(source.is_leaf)),
    ]


def _inside(interpreter: RecordingInterpreter) -> list[Fact]:
    """Facts about what the program itself guards."""
    facts = []
    for node in interpreter.nodes:
        if node.op.kind is _GUARD:
            facts.append(Fact("exit", "a value", node.line, shown(_expected(node).value)))
        elif "dynamic shape" in node.op.traits:
            sizes = [list(aval.shape) for v in node.outputs if isinstance(aval := interpreter.avals[v], Aval)]
            if node.op is row_indices:
                sizes = [[*sizes[0], 1]]
            facts.append(Fact("exit", f"the shape that {_public_name(node)}() finds", node.line, ", ".join(map(str, sizes))))
    return facts


def _public_name(node: Node) -> str:
    """The name by which users know an operation whose result has a size that depends on data."""
    op = nonzero if node.op is row_indices else node.op
    return op.name


def _must_be_weak(name: str, value: Any, recorder: Recorder) -> bool:
    """Whether a constant is an object that the entry must not keep alive: one that leads to other objects, and is not a function,
    class or the like."""
    return (
        gc.is_tracked(value)
        and not (type(value) is frozenset and not any(map(gc.is_tracked, value)))
        and type(value).__weakrefoffset__ != 0
        and name not in recorder.compiled
        and not is_a(value, (*IDENTITY_TYPES, FunctionType, MethodType))
        and not is_library_module(type(value).__module__)
    )


def _expected(node: Node) -> Literal:
    expected = node.attrs["expected"]
    assert isinstance(expected, Literal)
    return expected


# -- guards
def _hook_expressions(recorder: Recorder, interpreter: RecordingInterpreter) -> dict[int, Expr]:
    """For outside tensors to which a backward pass inside the call may have sent a gradient: the expressions of their hooks, by
    the id of the TensorSource.  Guards require that there are none; if there are in this call, the recording stops."""
    expressions: dict[int, Expr] = {}
    for source in recorder.tensors.values():
        requires = source.requires_grad or id(source.tensor) in interpreter.switched
        if not (interpreter.backward_ran and source.used and requires):
            continue
        if id(source.tensor) in interpreter.hooks_read:
            continue
        if source.is_leaf:
            expressions[id(source)], hooks = source.variable.get("_hooks"), source.tensor._hooks
        elif source.edge[0] in interpreter.reached:
            edge = source.variable.get("_node").method("output_edge", source.variable.get("_index"))
            expressions[id(source)] = edge.at(0).get("hooks")
            hooks = source.edge[0].hooks
        else:
            continue
        if hooks:
            recorder.stop("tensor_state", f"a hook on a tensor of shape {list(source.tensor.shape)}, in a backward pass inside,")
    return expressions


def _guards(recorder: Recorder, hooks: Mapping[int, Expr]) -> list[Statement]:
    """The statements of the prologue, with guards in the places of TensorSources.  hooks: see `_hook_expressions`."""
    statements: list[Statement] = []
    for line in recorder.prologue:
        if isinstance(line, Statement):
            statements.append(line)
        else:
            conditions = _tensor_conditions(recorder, line)
            if id(line) in hooks:
                conditions.append(hooks[id(line)])
            statements.append(Miss(Or(tuple(conditions)) if len(conditions) > 1 else conditions[0]))
    return statements


def _guarded_integers(recorder: Recorder, guards: Sequence[Statement]) -> frozenset[int]:
    """The positions of the integers among the arguments whose values are guarded, directly or through numbers computed from them,
    for another reason than as the position of a slice."""
    if not recorder.integers:
        return frozenset()
    computed = {s.name: s.value for s in guards if type(s) is Define}
    reached, pending = set(), list(recorder.guarded_by_value - recorder.positions)
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending += [part for part in walk(computed.get(name.name, name)) if type(part) is Name]
    return frozenset([k for k, x in enumerate(recorder.integers) if x is not None and x._name in reached])


def _structure(recorder: Recorder, guards: Sequence[Statement], distinct: Sequence[Expr]) -> Structure | None:
    """`split` for the guards of a recording: with the objects that the call has reached and those that it changes."""
    reached = [(recorder.sources.get(id(value)), value) for value in recorder.keep]
    objects = {source.name: value for source, value in reached if isinstance(source, Name)}
    changed: set[int] = set()
    stored: dict[int, set[str]] = {}
    for effect in recorder.effects.in_order:
        if isinstance(effect, AttributeStore):
            changed.add(id(effect.owner))
            if is_a(effect.owner, type):
                changed.add(id(recorder.attributes.class_dictionary(effect.owner)))
        elif (
            isinstance(effect, ItemStore)
            and type(effect.container) is dict
            and type(effect.key) is str
            and effect.value is not ABSENT
        ):
            stored.setdefault(id(effect.container), set()).add(effect.key)
        elif isinstance(effect, (ItemStore, MethodCall)):
            changed.add(id(effect.container))
    return split(guards, distinct, objects, recorder.namespace, recorder.instance_reads, changed, stored)


def _tensor_conditions(recorder: Recorder, source: TensorSource) -> list[Expr]:
    """The conditions on a tensor from outside under which the entry misses.  The program itself checks the metadata of its
    inputs."""
    x, array = source.variable, source.tensor._array
    conditions: list[Expr] = [x.type().is_not(recorder.constant(type(source.tensor)))]
    if not (source.used or source.inspected):
        return conditions
    if source.is_view:
        conditions.append(x.get("requires_grad").is_not(source.requires_grad))
        conditions.append(x.get("is_leaf").is_not(source.is_leaf))
    else:
        conditions.append(x.get("_base").is_not(None))
        conditions.append(x.get("_requires_grad").is_not(source.requires_grad))
        if source.requires_grad:  # only tensors that require grad have a node
            node = x.get("_node")
            conditions.append(node.is_not(None) if source.is_leaf else node.is_same(None))
    if not source.used:  # the program checks its own inputs
        memory = x.get("_array")
        conditions.append(memory.get("shape").differs(recorder.sizes.inputs.get(id(source.tensor), array.shape)))
        conditions.append(memory.get("dtype").is_not(recorder.constant(array.dtype)))
        conditions.append(memory.get("strides").differs(_strides_in_bytes(recorder, source.tensor)))
    return conditions


# -- inputs
def _strides_in_bytes(recorder: Recorder, tensor: Tensor) -> tuple[int, ...]:
    """The strides of a tensor from outside: as they follow from its symbolic sizes if it fills its memory, else symbolic
    themselves."""
    env, shape, array = recorder.sizes.env, recorder.sizes.inputs.get(id(tensor)), tensor._array
    if env is None:
        return array.strides
    with env:
        strides = element_strides(array)
        symbolic = filled_strides(array.shape, strides, array.shape if shape is None else shape)
        symbolic = recorder.sizes.strides.get(id(tensor)) if symbolic is None else symbolic
        return array.strides if symbolic is None else tuple([s * array.itemsize for s in symbolic])


def _layout(
    interpreter: RecordingInterpreter, value: int, array: np.ndarray[Any, Any]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of a value, and its strides in elements."""
    env = interpreter.recorder.sizes.env
    if env is None:
        return array.shape, element_strides(array)
    with env:
        strides = interpreter.symbolic_strides(interpreter.defined[value], value)
    return interpreter.avals[value].shape, element_strides(array) if strides is None else strides  # type: ignore[union-attr]


def _tensor_inputs(
    recorder: Recorder, interpreter: RecordingInterpreter, inputs: list[int], variables: list[Name]
) -> tuple[TensorInput, ...]:
    facts = []
    for value, variable in zip(inputs, variables, strict=True):
        tensor = interpreter.inputs[value]
        source = recorder.tensors[id(tensor)]
        array = tensor._array
        dtype = FROM_NUMPY[array.dtype]
        shape, strides = _layout(interpreter, value, array)
        facts.append(TensorInput(value, variable, shape, dtype, strides, source.requires_grad, source.is_leaf, marks(tensor)))
    return tuple(facts)


def _written_inputs(recorder: Recorder, interpreter: RecordingInterpreter, views: Views, inputs: list[int]) -> list[WrittenInput]:
    """Facts about the inputs that the call has written.  Writes that no entry could replay stop the recording."""
    roots = views.written()
    writes = [node.outputs[0] for _, node in views.writes]
    counted = {views.root(value)[0] for value in writes if value not in interpreter.uncounted}
    # Roots of differentiable writes: these give the target, and the tensor that it is a view of, new positions on the tape.
    with_new_edge = set()
    for value in writes:
        root, chain = views.root(value)
        if value in interpreter.requires_grad and not any(_ends_gradients(view.op) for view in chain):
            with_new_edge.add(root)
    written = []
    for index, value in enumerate(inputs):
        if value in roots:
            tensor = interpreter.inputs[value]
            source = recorder.tensors[id(tensor)]
            _, former, _ = interpreter.rebound.get(id(tensor), (tensor, None, 0))
            version = interpreter.values[id(tensor)] if former is None else former
            switched = id(tensor) in interpreter.switched
            requires = source.requires_grad if switched else tensor.requires_grad
            if value in with_new_edge and source.is_view:
                recorder.stop("differentiable_write", f"a view of shape {list(tensor.shape)}, whose base changes with it")
            elif value in with_new_edge and switched:
                recorder.stop("tensor_state", "requires_grad_() of an outside tensor that is changed in place")
            consumed = _consumed(recorder, interpreter, tensor, inputs) if value in with_new_edge else None
            written.append(
                WrittenInput(index, version, requires, tensor.is_leaf, value in counted, value in with_new_edge, consumed)
            )
    return written


def _check_data(
    recorder: Recorder,
    interpreter: RecordingInterpreter,
    views: Views,
    inputs: list[int],
    written: list[WrittenInput],
    has_backward: bool,
) -> None:
    """Stop the recording if a backward pass after the call could read other contents than in eager mode, because of `.data`.

    In eager mode it reads the memory of a saved tensor, with what writes through `.data` have put there until then.  A program
    does the same if the tensor was saved after the last of these writes (`Executable._refresh`).  A tensor whose `.data` was
    assigned must not be used by way of its former memory."""
    if has_backward and interpreter.uncounted and not _is_saved_after_writes(interpreter, views):
        recorder.stop("tensor_state", "a write through .data, before a backward pass that follows the call,")
    for tensor, former, position in interpreter.rebound.values():
        is_written_later = former is not None and views.root(former)[0] in views.written(position)
        has_new_edge = any(fact.has_new_edge and interpreter.inputs[inputs[fact.index]] is tensor for fact in written)
        if (has_backward and tensor.requires_grad) or is_written_later or has_new_edge:
            recorder.stop("tensor_state", f".data = a tensor of shape {list(tensor.shape)}, which is used elsewhere,")


def _is_saved_after_writes(interpreter: RecordingInterpreter, views: Views) -> bool:
    """Whether tensors that were written through `.data` were saved for backward passes only after their last write, and were
    written in no other way; and whether no tensor was saved whose contents were written through `.data`, since in a pure graph
    the two are the same value."""
    if interpreter.own_backward or interpreter.rebound:
        return False  # a user-defined Function may save anything; after `.data =` two tensors have the same memory
    last: dict[int, int] = {}  # root -> position of the last write
    unseen: dict[int, bool] = {}  # root -> whether its writes are those through `.data`
    sources = set()
    for position, node in views.writes:
        root = views.root(node.outputs[0])[0]
        is_uncounted = node.outputs[0] in interpreter.uncounted
        if unseen.setdefault(root, is_uncounted) != is_uncounted:
            return False
        last[root] = position
        if is_uncounted and type(value := node.operands[1]) is int:
            sources.add(views.root(value)[0])
    marked = interpreter.requires_grad
    for position, node in enumerate(interpreter.nodes):
        if marked.isdisjoint(node.outputs):
            continue
        ins, outs = node.op.saved_for(tuple([type(x) is int and x in marked for x in node.operands]))
        for v in (*[node.operands[i] for i in ins], *[node.outputs[i] for i in outs]):
            if type(v) is not int:
                continue
            root = views.root(v)[0]
            if last[root] > position if unseen.get(root) else root in sources:
                return False
    return True


def _ends_gradients(view: Op) -> bool:
    """Whether no gradient flows through a view (`detach`)."""
    return "not differentiable" in view.traits


def _check_targets(recorder: Recorder, interpreter: RecordingInterpreter, views: Views) -> None:
    """Stop the recording if it writes through a view that has an element of its base twice (`expand`): no program can do that."""
    for _, node in views.writes:
        for view in views.root(node.outputs[0])[1]:
            base = interpreter.avals[view.operands[0]]  # type: ignore[index]
            assert isinstance(base, Aval)
            if view.op.scatter is None and view.op.undone_for(base.shape, view.attrs) is None:
                recorder.stop("overlapping_write", f"{view.op.name}() at {view.line}")


def _check_overlap(recorder: Recorder, interpreter: RecordingInterpreter, inputs: list[int], written: list[WrittenInput]) -> None:
    """Stop the recording if an input that is written overlaps another input, or has an element of memory twice.  It is one sweep
    over the arrays in order of address."""
    arrays = [interpreter.inputs[value]._array for value in inputs]
    changed = {fact.index for fact in written}
    for index in changed:
        array = arrays[index]
        if not array.flags.c_contiguous and array.size and overlaps_itself(array):
            shape, strides = list(array.shape), list(element_strides(array))
            recorder.stop("overlapping_write", f"an input of shape {shape} and strides {strides}")
    spans = sorted((*byte_bounds(array), index) for index, array in enumerate(arrays) if array.size) if changed else []
    furthest, furthest_written = (0, -1), (0, -1)  # end, index
    for low, high, index in spans:
        end, other = furthest if index in changed else furthest_written
        if low < end:
            recorder.stop("overlapping_inputs", f"shapes {list(arrays[index].shape)} and {list(arrays[other].shape)}")
        furthest = max(furthest, (high, index))
        if index in changed:
            furthest_written = max(furthest_written, (high, index))


def _check_storages(
    recorder: Recorder, interpreter: RecordingInterpreter, views: Views, inputs: list[int], has_backward: bool
) -> None:
    """Require that a tensor which is written before a backward pass, inside the call or after it, shares its storage with no
    other input.

    In eager mode the backward pass raises if a saved tensor has the same storage as a written one, even if the two do not
    overlap.  A program has no storages, so they must differ: the recording stops, or guards are added.  Guards are needed for
    arguments and views alone, since other tensors can only get a common storage by `.data = ...`."""
    written = views.written() if has_backward else views.written(0, interpreter.last_backward)
    tensors = {value: interpreter.inputs[value] for value in inputs}
    for target in inputs:
        if target not in written:
            continue
        for other, tensor in tensors.items():
            if other == target or (other in written and other < target):
                continue
            if tensor._storage is not None and tensor._storage is tensors[target]._storage:
                shapes = f"shapes {list(tensors[target].shape)} and {list(tensor.shape)}"
                recorder.stop("shared_storage", shapes)
                return
            a, b = recorder.tensors[id(tensors[target])], recorder.tensors[id(tensor)]
            if (a.argument and b.argument) or a.is_view or b.is_view:
                storage = a.variable.get("_storage")
                recorder.miss_if(And((storage.is_not(None), storage.is_same(b.variable.get("_storage")))))


# -- outputs
def _view_positions(
    interpreter: RecordingInterpreter, outputs: Sequence[TensorOutput], tensors: list[Tensor]
) -> dict[int, ViewPosition]:
    """The positions of output views that the program computes, by their values.  Each call creates the views again, and needs
    these positions as outputs, which are appended to `tensors`."""
    operands = [x for out in outputs if out.alias is not None for _, rest, _ in out.alias.views for x in rest]
    computed = dict.fromkeys([x for x in operands if type(x) is int and isinstance(interpreter.avals[x], Aval)])
    positions = {x: ViewPosition(len(tensors) + k) for k, x in enumerate(computed)}
    tensors += map(interpreter.copied, computed)
    return positions


def _outputs(
    recorder: Recorder,
    interpreter: RecordingInterpreter,
    tensors: list[Tensor],
    views: Views,
    inputs: list[int],
    view_positions: Mapping[int, ViewPosition],
) -> tuple[TensorOutput, ...]:
    """Facts about the output tensors.  After them come hidden outputs: roots that are no outputs themselves, of which several
    outputs are views, or of which one is a view created under no_grad, since a later write to that gives it the position of its root
    on the tape."""
    values = [interpreter.values[id(t)] for t in tensors]
    roots = [views.root(value) for value in values]
    positions = {root: i for i, (root, chain) in enumerate(roots) if not chain}
    sharing = Counter(root for root, _ in roots)
    hidden: list[int] = []
    for tensor, (root, chain) in zip(tensors, roots, strict=True):
        follows = not tensor.requires_grad and root in interpreter.requires_grad and not any(_ends_gradients(n.op) for n in chain)
        if chain and (sharing[root] > 1 or follows) and root not in positions and root not in inputs:
            positions[root] = len(values) + len(hidden)
            hidden.append(root)
    facts, numbers = [], {value: k for k, value in enumerate(inputs)}
    for position, (tensor, (root, chain)) in enumerate(zip(tensors, roots, strict=True)):
        alias = _alias(position, root, chain, positions, numbers, view_positions)
        facts.append(_output(recorder, interpreter, tensor, alias, inputs))
    for root in hidden:
        owner = interpreter.defined[root]
        facts.append(_output(recorder, interpreter, owner, None, inputs))
    return tuple(facts)


def _alias(
    position: int,
    root: int,
    chain: tuple[Node, ...],
    positions: Mapping[int, int],
    inputs: Mapping[int, int],
    view_positions: Mapping[int, ViewPosition],
) -> Alias | None:
    steps = tuple((node.op, tuple([view_positions.get(x, x) for x in node.operands[1:]]), node.attrs) for node in chain)  # type: ignore[arg-type]
    if root in inputs:
        return Alias("input", inputs[root], steps)
    owner = positions.get(root)
    return None if owner is None or owner == position else Alias("output", owner, steps)


def _consumed(recorder: Recorder, interpreter: RecordingInterpreter, tensor: Tensor, inputs: list[int]) -> tuple[int, ...] | None:
    """The positions of the inputs that the tape's graph of `tensor` leads to, if a backward pass inside the call has freed it;
    else None."""
    edges = edges_behind_freed(tensor, interpreter.first_sequence)
    if edges is None:
        return None
    outside = [recorder.tensors[id(interpreter.inputs[value])] for value in inputs]
    targets = [(i, s.edge) for i, s in enumerate(outside) if s.requires_grad or id(s.tensor) in interpreter.switched]
    return tuple([i for i, (target, index) in targets if (id(target), index) in edges])


def _output(
    recorder: Recorder, interpreter: RecordingInterpreter, tensor: Tensor, alias: Alias | None, inputs: list[int]
) -> TensorOutput:
    consumed = _consumed(recorder, interpreter, tensor, inputs)
    value, array = interpreter.values[id(tensor)], tensor._array
    dtype = FROM_NUMPY[array.dtype]
    shape, strides = _layout(interpreter, value, array)
    return TensorOutput(value, shape, dtype, strides, tensor.requires_grad, tensor.is_leaf, alias, consumed)
