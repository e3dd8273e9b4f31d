"""The rebinding counter (tensor/rebinding.py): every change of what an existing tensor is bound to moves it, and nothing else does."""

from __future__ import annotations

import ast
import pathlib
import re

import numpy as np
import pytest

import tracejit
from tracejit import nn
from tracejit.tensor import shield
from tracejit.tensor.rebinding import rebindings

SOURCE = pathlib.Path(tracejit.__file__).parent
SLOTS = {"_array", "_base", "_hooks", "_node", "_requires_grad", "_storage"}
CONSTRUCTORS = {  # they write to a tensor that they have just made, or, `storage_of` and `_fresh`, give it its first storage record
    ("compiled/executable.py", "_fresh"), ("capture/branching_loops.py", "_stand_ins"), ("capture/gathered_items.py", "_tensors_at"),
    ("capture/gathered_items.py", "at"), ("capture/freed_graphs.py", "with_position"),
    ("tensor/base.py", "data"), ("tensor/base.py", "_rebuild"), ("tensor/base.py", "wrap"), ("tensor/base.py", "storage_of"),
    ("tensor/sharing.py", "tensor_on"), ("tensor/shell.py", "view_as_dtype"), ("tensor/eager.py", "_linked"),
    ("tensor/eager.py", "_record_step"), ("tensor/eager.py", "_record_unary"), ("tensor/eager.py", "_record_binary"),
    ("tensor/eager.py", "_record"),
    ("tensor/eager.py", "_view"), ("tensor/eager.py", "_on_tape"),
}  # fmt: skip
NOT_COUNTED = {  # a view is looked at every time; hooks of modules, handles and a program's node are other things
    ("runtime/host.py", "__init__"), ("tensor/base.py", "refresh"), ("nn/module.py", "__init__"), ("tensor/hooks.py", "__init__"),
}  # fmt: skip


def written_slots(function):
    targets = [t for node in ast.walk(function) if isinstance(node, ast.Assign) for t in node.targets]
    targets += [node.target for node in ast.walk(function) if isinstance(node, (ast.AugAssign, ast.AnnAssign))]
    targets = [e for t in targets for e in (t.elts if isinstance(t, ast.Tuple) else (t,))]
    return {t.attr for t in targets if isinstance(t, ast.Attribute)} & SLOTS


def counts(function):
    return any(isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "rebound" for n in ast.walk(function))


def test_every_function_that_binds_an_existing_tensor_to_something_else_is_counted():
    silent = set()
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        text = path.read_text()
        if not any(slot in text for slot in SLOTS):
            continue
        for function in ast.walk(ast.parse(text)):
            if isinstance(function, ast.FunctionDef) and written_slots(function) and not counts(function):
                silent.add((name, function.name))
    assert silent == CONSTRUCTORS | NOT_COUNTED


class Other(nn.Parameter):
    pass


def write_on_the_tape(p):
    x = tracejit.ones(2)
    x.mul_(p)


def write_to_a_view_on_the_tape(p):
    tracejit.ones(2)[0:1].mul_(p[0:1])


CHANGES = {
    "data": lambda p: setattr(p, "data", tracejit.zeros(2)),
    "requires_grad": lambda p: p.requires_grad_(False),
    "requires_grad set": lambda p: setattr(p, "requires_grad", False),
    "hook": lambda p: p.register_hook(lambda g: g),
    "detach_": lambda p: p.detach_(),
    "class": lambda p: setattr(p, "__class__", Other),
    "__init__": lambda p: p.__init__(tracejit.zeros(3)),
    "Tensor.__init__": lambda p: tracejit.Tensor.__init__(p, [1.0]),
    "tape": write_on_the_tape,
    "tape of a root": write_to_a_view_on_the_tape,
    "shield": shield,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_moves_the_counter(change):
    p = nn.Parameter(tracejit.ones(2))
    before = rebindings()
    change(p)
    assert rebindings() != before


def eager_training_step(p, optimizer):
    (p * 2).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_training_computing_and_making_tensors_leave_the_counter_alone():
    p = nn.Parameter(tracejit.ones(2))
    optimizer = tracejit.optim.SGD([p], lr=0.1, momentum=0.9)
    eager_training_step(p, optimizer)
    before = rebindings()
    for _ in range(3):
        eager_training_step(p, optimizer)
        x = tracejit.tensor([1.0, 2.0])
        (x[0:1] + tracejit.from_numpy(np.ones(1, np.float32))).numpy()
        x.add_(1.0)
        x.grad = tracejit.ones(2)
    assert rebindings() == before


def test_what_a_tensor_class_says_of_itself_is_its_type():
    p = nn.Parameter(tracejit.ones(2))
    assert p.__class__ is nn.Parameter and isinstance(p, tracejit.Tensor) and not isinstance(p, Other)
    p.__class__ = Other
    assert type(p) is p.__class__ is Other
    with pytest.raises(TypeError):
        p.__class__ = int


def test_arrays_that_leave_or_enter_a_tensor_have_a_shape_of_their_own():
    given = np.zeros(4, np.float32)
    x = tracejit.from_numpy(given)
    given.shape = (2, 2)
    assert x.shape == (4,)
    taken = x.numpy()
    taken.shape = (2, 2)
    assert x.shape == (4,)
    taken[0, 0] = 1.0
    assert x[0].item() == given[0, 0] == 1.0


def test_a_shielded_tensor_is_out_of_reach_of_the_owner_of_its_memory():
    x = tracejit.ones(4)
    shield(x)
    owner = x.numpy().base
    owner.shape = (2, 2)
    assert x.shape == (4,) and x.numpy().base is owner
    before = rebindings()
    shield(x)
    assert rebindings() == before


def test_contents_are_marked_as_written_in_one_place():
    """Elsewhere `version += 1` would leave out the number that nodes compare."""
    positions = {
        (path.name, function.name)
        for path in SOURCE.rglob("*.py")
        if re.search(r"\.(version|written)\b", text := path.read_text())
        for function in ast.walk(ast.parse(text))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.AugAssign)
        and isinstance(node.target, ast.Attribute)
        and node.target.attr in ("version", "written")
    }
    assert positions == {("tape.py", "mark_written")}


def test_changes_and_nodes_are_numbered_together():
    x = tracejit.ones(2, requires_grad=True)
    y = (x * 2).exp()
    assert y.grad_fn.storages[0][0].written == 0 and y._version == 0
    y.add_(1.0)
    assert y._storage.written < y.grad_fn.sequence < (x * 2).grad_fn.sequence
    with tracejit.no_grad():
        y.add_(1.0)
    assert y._storage.written > y.grad_fn.sequence and y._version == 2
