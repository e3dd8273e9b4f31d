"""What lies in lists and dictionaries that an instance leads to (capture/recording/cell.py, item_words of cpython/words.py)."""

from __future__ import annotations

import gc
import random
import weakref

import numpy as np
import pytest

import tracejit
from tracejit import nn
from tracejit.autograd.tape import Storage
from tracejit.capture.recording.cell import marks
from tracejit.cpython import words

pytestmark = pytest.mark.skipif(not words.supported(), reason="dictionaries of this Python have no versions")


def holds(table):
    return words.same()(words.table(table), b"")


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.__setitem__(1, object()), lambda c: c.append(0), lambda c: c.pop(), lambda c: c.insert(0, 0), lambda c: c.clear(),
        lambda c: c.reverse(), lambda c: c.__setitem__(slice(None), [0] * 3),
    ],
)  # fmt: skip
def test_words_of_a_list_move_when_what_was_read_changes(change):
    container = [object(), object(), object(), *range(4)]
    table = words.item_words([(container, None, None), (container, 1, container[1])])
    assert holds(table)
    container[3] = "not looked at"
    assert holds(table)
    change(container)
    assert not holds(table)


@pytest.mark.parametrize("kept", [0, 1, 17])
def test_words_of_an_item_move_when_its_list_becomes_shorter_in_place(kept):
    container = [object() for _ in range(20)]
    table = words.item_words([(container, 18, container[18])])
    del container[kept:]
    assert not holds(table)


def test_an_item_that_left_its_list_is_not_read_any_more():
    def scaled(owner, x):
        return owner.parts[2] * owner.p + owner.q + owner.r + x

    owner = Owner()
    owner.parts = [tracejit.ones(2) for _ in range(3)]
    owner.p, owner.q, owner.r = (tracejit.ones(2) for _ in range(3))
    compiled = tracejit.compile(scaled)
    for _ in range(4):
        compiled(owner, tracejit.ones(2))
    assert compiled.stats.compiled_calls == 3
    del owner.parts[2:]
    with pytest.raises(IndexError):
        compiled(owner, tracejit.ones(2))


class Owner:
    pass


KEY = nn.Parameter(tracejit.ones(1))


def many(container):
    for i in range(100):
        container[f"more {i}"] = i


@pytest.mark.parametrize("others", [(), (object(), 7), ("gone",)], ids=["strings", "mixed", "after a deletion"])
@pytest.mark.parametrize("name", ["name", KEY], ids=["string", "parameter"])
@pytest.mark.parametrize(
    "change",
    [
        lambda c, k: c.__setitem__(k, object()), lambda c, k: c.pop(k), lambda c, k: c.clear(), lambda c, k: many(c),
        lambda c, k: (c.__setitem__(k, c.pop(k)), c.__setitem__(k, 0)),
    ],
)  # fmt: skip
def test_words_of_a_dictionary_move_when_what_was_read_changes(others, name, change):
    container = {**dict.fromkeys(others, 0), name: object(), "last": 1}
    container.pop("gone", None)
    table = words.item_words([(container, name, container[name])])
    assert holds(table)
    container["last"] = "not looked at"
    assert holds(table)
    change(container, name)
    assert not holds(table)


def test_a_string_finds_its_key_whatever_object_it_is():
    container = {"".join(["a", "b"]): 5}
    assert holds(words.item_words([(container, "".join(["a", "b"]), 5)]))
    assert words.item_words([(container, object(), 5)]) == []


class Slotted:
    __slots__ = ("a", "b", "c", "d", "e", "f", "g")


def test_words_of_slots_move_with_the_slots_they_name_and_with_no_others():
    slots = words.SlotWords(Slotted, (("a", "b", "d"), ("f",)), ("e",))
    thing = Slotted()
    thing.a = thing.e = thing.c = (1,)
    table_of_it = words.table(slots.pair(thing, "c", thing.c), slots.blocks(thing))
    assert words.same()(table_of_it, b"")
    thing.e = (2,)
    assert words.same()(table_of_it, b"")
    for name in ("a", "b", "c", "d", "f"):
        before = getattr(thing, name, None)
        setattr(thing, name, (3,))
        assert not words.same()(table_of_it, b""), name
        if before is None:
            delattr(thing, name)
        else:
            setattr(thing, name, before)
        assert words.same()(table_of_it, b""), name


@pytest.mark.parametrize(("blocks", "changing"), [((("a", "e"),), ()), ((("a",),), ("d",)), ((("b", "a"),), ())])
def test_a_block_that_shows_other_slots_than_it_must_is_refused(blocks, changing):
    with pytest.raises(RuntimeError, match="slots of Slotted: a block from"):
        words.SlotWords(Slotted, blocks, changing)


def test_storages_are_marked_as_the_tape_does():
    some = tuple([Storage() for _ in range(3)])
    for n in range(1, 400):
        marks()(some)
        assert {s.version for s in some} == {n}
        assert len({s.written for s in some}) == 1
    assert nn.Parameter(tracejit.ones(1)).exp().grad_fn.sequence > some[0].written > 0
    marks()(())


class Net(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        values = np.random.default_rng(seed).standard_normal((3, 4)).astype(np.float32)
        self.a, self.b, self.c = [nn.Parameter(tracejit.tensor(v)) for v in values]

    def forward(self, x):
        return ((x * self.a).sin() + self.b * self.c).square().sum()


def loop(net, optimizer, x):
    loss = net(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def only_step(net, optimizer, x):
    optimizer.step()


def change_rate(net, optimizer, dice):
    optimizer.param_groups[0]["lr"] *= dice.choice((0.5, 2.0, 1.25))


def change_betas(net, optimizer, dice):
    for group in optimizer.param_groups:
        if "betas" in group:
            group["betas"] = (dice.choice((0.8, 0.9)), 0.99)
        if "momentum" in group:
            group["momentum"] = dice.choice((0.5, 0.9))


def add_group(net, optimizer, dice):
    if len(optimizer.param_groups) < 3:
        group = optimizer.param_groups[0]
        moved = group["params"].pop()
        optimizer.state.pop(moved, None)
        optimizer.add_param_group({"params": [moved], "lr": 0.02})


def reload(net, optimizer, dice):
    optimizer.load_state_dict(optimizer.state_dict())


def replace_state(net, optimizer, dice):
    for state in optimizer.state.values():
        for key, value in state.items():
            if isinstance(value, tracejit.Tensor):
                state[key] = value.clone()


def rebuild_state(net, optimizer, dice):
    optimizer.state = {p: dict(reversed(list(state.items()))) for p, state in reversed(list(optimizer.state.items()))}


def forget_state(net, optimizer, dice):
    optimizer.state.pop(net.a, None)


def set_step(net, optimizer, dice):
    for state in optimizer.state.values():
        if "step" in state:
            state["step"] = dice.randrange(1, 50)
            if dice.random() < 0.5:
                break


def grow_dictionaries(net, optimizer, dice):
    for d in (optimizer.state, optimizer.param_groups[0], *optimizer.state.values()):
        many(d)
        for i in range(100):
            del d[f"more {i}"]


def replace_parameter(net, optimizer, dice):
    old, net.b = net.b, nn.Parameter(net.b.detach().clone())
    optimizer.state.pop(old, None)
    for group in optimizer.param_groups:
        group["params"][:] = [net.b if p is old else p for p in group["params"]]


def set_data(net, optimizer, dice):
    net.c.data = net.c.data.clone()


def freeze(net, optimizer, dice):
    net.a.requires_grad_(not net.a.requires_grad)


def write(net, optimizer, dice):
    with tracejit.no_grad():
        net.b.mul_(0.5)


def nothing(net, optimizer, dice):
    pass


CHANGES = [
    change_rate, change_betas, add_group, reload, replace_state, rebuild_state, forget_state, set_step, grow_dictionaries,
    replace_parameter, set_data, freeze, write, nothing, nothing, nothing,
]  # fmt: skip

OPTIMIZERS = {
    "adam": lambda p: tracejit.optim.Adam(p, lr=0.01),
    "adamw amsgrad": lambda p: tracejit.optim.AdamW(p, lr=0.01, amsgrad=True),
    "momentum": lambda p: tracejit.optim.SGD(p, lr=0.01, momentum=0.9),
}


@pytest.mark.parametrize("step", [loop, only_step])
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
@pytest.mark.parametrize("seed", range(2))
def test_whatever_happens_to_an_optimizer_between_steps_compiled_equals_eager(step, make, seed):
    nets, dices = [Net(seed), Net(seed)], [random.Random(seed), random.Random(seed)]
    optimizers = [make(list(net.parameters())) for net in nets]
    compiled = tracejit.compile(step)
    x = tracejit.tensor([0.5, -1.0, 2.0, 0.1])
    for turn in range(30):
        for net, optimizer, dice, function in zip(nets, optimizers, dices, (compiled, step), strict=True):
            if turn > 2:
                dice.choice(CHANGES)(net, optimizer, dice)
            for _ in range(2):
                if step is only_step:
                    optimizer.zero_grad()
                    net(x).backward()
                function(net, optimizer, x)
        for p, q in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
            np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=2e-4, atol=2e-5)
        states = [[s for p in net.parameters() if (s := o.state.get(p))] for net, o in zip(nets, optimizers, strict=True)]
        for mine, other in zip(*states, strict=True):
            assert list(mine) == list(other) and mine.get("step") == other.get("step")
    assert compiled.stats.compiled_calls > 10


def test_a_step_looks_at_no_parameter_while_nothing_changes():
    net = Net(0)
    optimizer = tracejit.optim.Adam(net.parameters(), lr=0.01)
    compiled = tracejit.compile(loop)
    x = tracejit.ones(4)
    for _ in range(4):
        compiled(net, optimizer, x)
    state_of = compiled._table.paths[-1].run.__globals__["state_of"]
    before = state_of[0]
    for i in range(5):
        optimizer.param_groups[0]["lr"] = 0.01 / (i + 1)
        compiled(net, optimizer, x)
    assert state_of[0] is before and before[1] is not words.NEVER
    optimizer.state[net.a]["exp_avg"] = tracejit.zeros(4)
    compiled(net, optimizer, x)
    assert state_of[0] is not before


def test_a_dead_model_and_its_optimizer_are_not_kept_alive():
    compiled = tracejit.compile(loop)
    net = Net(0)
    optimizer = tracejit.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(5):
        compiled(net, optimizer, tracejit.ones(4))
    gone = [weakref.ref(net), weakref.ref(optimizer), weakref.ref(net.a)]
    del net, optimizer
    gc.collect()
    assert [r() for r in gone] == [None] * 3


def test_a_model_in_a_list_that_leads_back_to_its_owner_is_not_kept_alive():
    class Child:
        def __init__(self, owner):
            self.owner, self.weight = owner, nn.Parameter(tracejit.ones(2))

    class Owner:
        def __init__(self):
            self.children = [Child(self), Child(self)]
            self.names = ["x", "y"]

    def function(owner, x):
        for child in owner.children:
            x = x * child.weight * len(owner.names)
        return x

    compiled, owner, x = tracejit.compile(function), Owner(), tracejit.ones(2)
    for _ in range(5):
        assert compiled(owner, x).tolist() == function(owner, x).tolist()
    owner.children[0].weight.data = tracejit.full((2,), 3.0)
    owner.children.append(Child(owner))
    for _ in range(3):
        assert compiled(owner, x).tolist() == function(owner, x).tolist()
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None
