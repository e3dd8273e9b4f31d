"""Guards on modules and parameters that machine code checks (capture/recording/structure.py, cpython/words.py)."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest

import tracejit
from tracejit import nn
from tracejit.cpython import words

pytestmark = pytest.mark.skipif(not words.supported(), reason="dictionaries of this Python have no versions")


class Scale(nn.Module):
    def __init__(self, count: int = 3) -> None:
        super().__init__()
        for i in range(count):
            setattr(self, f"weight{i}", nn.Parameter(tracejit.full((2,), i + 1.0)))
        self.count = count
        self.factor = 2.0

    def forward(self, x):
        for i in range(self.count):
            x = x * getattr(self, f"weight{i}")
        return x * self.factor


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Scale(2)
        self.rest = nn.Sequential(Scale(1), Scale(2))

    def forward(self, x):
        return self.rest(self.first(x))


def apply(model, x):
    return model(x)


def replayed(model, x, *, times=3):
    """`apply` compiled, called until it is an entry that serves the calls."""
    compiled = tracejit.compile(apply)
    for _ in range(times):
        compiled(model, x)
    assert compiled.stats.traces == 1 and compiled.stats.compiled_calls >= 1
    return compiled


def state_of(compiled):
    return compiled._table.paths[0].run.__globals__["state_of"][0]


def assert_like_eager(compiled, model, x):
    for _ in range(2):
        expected, actual = model(x), compiled(model, x)
        assert actual.tolist() == expected.tolist()
        assert actual.requires_grad == expected.requires_grad


def test_the_checks_do_not_run_again_while_nothing_changes():
    model, x = Nested(), tracejit.ones(2)
    compiled = replayed(model, x)
    state = state_of(compiled)
    assert state[1] is not words.NEVER
    for _ in range(5):
        compiled(model, x)
    assert state_of(compiled) is state


def replace_parameter(model):
    model.first.weight0 = nn.Parameter(tracejit.full((2,), 7.0))


def replace_past_setattr(model):
    object.__setattr__(model.first, "weight0", nn.Parameter(tracejit.full((2,), 7.0)))


def replace_in_vars(model):
    vars(model.first)["weight0"] = nn.Parameter(tracejit.full((2,), 7.0))


def replace_in_kept_dictionary(model):
    model.kept["weight0"] = nn.Parameter(tracejit.full((2,), 7.0))


def replace_dictionary(model):
    model.first.__dict__ = {**model.first.__dict__, "factor": 5.0}


def replace_module(model):
    model.rest[0] = Scale(2)


def append_module(model):
    model.rest.append(Scale(2))


def delete_module(model):
    del model.rest[1]


def change_number(model):
    model.rest[1].factor = -3.0


def freeze(model):
    model.requires_grad_(False)


def freeze_one(model):
    model.first.weight1.requires_grad = False


def rebind(model):
    model.first.weight0.data = tracejit.full((2,), 9.0)


def rebind_to_another_shape(model):
    model.first.weight0.data = tracejit.full((1,), 9.0)


def write_in_place(model):
    with tracejit.no_grad():
        model.first.weight0.mul_(3.0)


def load(model):
    model.load_state_dict(Nested().state_dict(), assign=True)


def convert(model):
    model.double()


def change_class_of_parameter(model):
    model.first.weight0.__class__ = OtherParameter


def hook_module(model):
    model.first.register_forward_hook(lambda module, args, output: output * 10.0)


def shadow_forward(model):
    model.first.forward = lambda x: x * 11.0


def change_class_of_module(model):
    model.first.__class__ = Doubled


class OtherParameter(nn.Parameter):
    def __rmul__(self, other):
        return other - 1.0


class Doubled(Scale):
    def forward(self, x):
        return super().forward(x) * 2.0


CHANGES = [
    replace_parameter, replace_past_setattr, replace_in_vars, replace_in_kept_dictionary, replace_dictionary, replace_module, append_module,
    delete_module, change_number, freeze, freeze_one, rebind, rebind_to_another_shape, write_in_place, load, convert,
    change_class_of_parameter, hook_module, shadow_forward, change_class_of_module,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("gradients", [False, True])
def test_whatever_changes_a_model_is_noticed(change, gradients):
    model, x = Nested(), tracejit.ones(2)
    model.kept = vars(model.first)
    with tracejit.enable_grad() if gradients else tracejit.no_grad():
        compiled = replayed(model, x)
        change(model)
        assert_like_eager(compiled, model, x)


def test_a_changed_class_is_noticed():
    class Local(Scale):
        def forward(self, x):
            return super().forward(x) + 1.0

    model, x = Local(), tracejit.ones(2)
    compiled = replayed(model, x)
    Local.__getattribute__ = lambda self, name: 0.5 if name == "factor" else object.__getattribute__(self, name)
    assert_like_eager(compiled, model, x)
    del Local.__getattribute__
    assert_like_eager(compiled, model, x)
    Local.forward = lambda self, x: x - 4.0
    assert_like_eager(compiled, model, x)


def test_gradients_reach_the_present_parameters():
    model, x = Nested(), tracejit.ones(2)
    compiled = replayed(model, x)
    old = model.first.weight0
    replace_parameter(model)
    compiled(model, x).sum().backward()
    found = model.first.weight0.grad.tolist()
    model.zero_grad()
    model(x).sum().backward()
    assert found == model.first.weight0.grad.tolist() and old.grad is None


def test_a_write_after_the_forward_pass_is_noticed_by_double_backward_where_eager_notices_it():
    model, x = Scale(), tracejit.ones(2, requires_grad=True)
    compiled = replayed(model, x)
    for call in (Scale.forward, compiled):
        out = call(model, x).sum()
        with tracejit.no_grad():
            model.weight0.fill_(5.0)
        (found,) = tracejit.autograd.grad(out, [model.weight1], create_graph=True)  # does not enter the first product
        assert found.tolist() == [6.0, 6.0] and found.requires_grad
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            tracejit.autograd.grad(found.sum(), [x])
        with tracejit.no_grad():
            model.weight0.fill_(1.0)


def test_hooks_of_parameters_run_and_are_not_cached():
    model, x = Scale(), tracejit.ones(2)
    compiled = replayed(model, x)
    seen = []
    handle = model.weight0.register_hook(lambda g: seen.append(g.tolist()))
    compiled(model, x).sum().backward()
    assert len(seen) == 1 and state_of(compiled)[1] is words.NEVER
    handle.remove()
    assert_like_eager(compiled, model, x)


def test_models_take_turns():
    first, second, x = Nested(), Nested(), tracejit.ones(2)
    replace_parameter(second)
    compiled = replayed(first, x)
    for _ in range(3):
        assert_like_eager(compiled, second, x)
        assert_like_eager(compiled, first, x)
    assert compiled.stats.traces == 1


def test_a_parameter_that_is_also_the_argument_is_noticed():
    model = Scale()
    compiled = replayed(model, tracejit.ones(2))
    with tracejit.no_grad():
        compiled(model, tracejit.ones(2))
    assert_like_eager(compiled, model, model.weight1)


@pytest.mark.parametrize("gradients", [False, True])
def test_a_dead_model_is_not_kept_alive(gradients):
    model, x = Nested(), tracejit.ones(2)
    with tracejit.enable_grad() if gradients else tracejit.no_grad():
        compiled = replayed(model, x)
    assert state_of(compiled)[1] is not words.NEVER
    module, parameter = weakref.ref(model), weakref.ref(model.first.weight0)
    array = weakref.ref(model.first.weight0._array)
    del model
    gc.collect()
    assert module() is None and parameter() is None and array() is None
    assert_like_eager(compiled, Nested(), x)


def test_what_is_replaced_is_dropped_at_the_next_call():
    model, x = Nested(), tracejit.ones(2)
    compiled = replayed(model, x)
    array = weakref.ref(model.first.weight0._array)
    replace_parameter(model)
    compiled(model, x)
    gc.collect()
    assert array() is None


class Counting(Scale):
    def forward(self, x):
        self.calls = self.calls + 1
        return super().forward(x)


def test_a_module_that_counts_its_calls_is_checked_in_python():
    model, x = Counting(), tracejit.ones(2)
    model.calls = 0
    compiled = replayed(model, x)
    for _ in range(4):
        compiled(model, x)
    assert model.calls == 7


def test_a_model_changed_before_every_call_gives_eager_results():
    model, x = Nested(), tracejit.ones(2)
    compiled = replayed(model, x)
    for i in range(40):
        model.first.unrelated = i
        model.rest[0].weight0.data = tracejit.full((2,), float(i))
        assert compiled(model, x).tolist() == model(x).tolist()
    assert compiled.stats.traces == 1


def test_the_entry_does_not_grow_with_the_model():
    def lines(count):
        model, x = Scale(count), tracejit.ones(2)
        compiled = replayed(model, x)
        path = compiled._table.paths[0]
        text = path.recording.text(path.executable.body())
        return len(text[text.index("def entry") :].splitlines())

    assert lines(40) == lines(4)


def test_models_are_copied_and_pickled_as_before():
    model, x = Nested(), tracejit.ones(2)
    compiled = replayed(model, x)
    for other in (copy.deepcopy(model), copy.copy(model), pickle.loads(pickle.dumps(model))):
        replace_parameter(other)
        assert_like_eager(compiled, other, x)
        assert_like_eager(compiled, model, x)


def test_words_that_differ_are_told_apart():
    class Thing:
        pass

    thing = Thing()
    thing.a = 1
    table = words.table(words.instance_words(thing, thing.__dict__), words.block(id(thing.__dict__) + 16))
    assert words.same()(table, b"") is True
    thing.a = 1.5
    assert words.same()(table, b"") is False
    assert words.same()(words.NEVER, b"") is False and words.same()(words.table(()), b"") is True


def test_every_word_of_a_block_counts():
    numbers = tracejit.arange(4)
    address = numbers.data_ptr()
    table = words.table((), words.block(address))
    for i in range(4):
        assert words.same()(table, b"")
        numbers[i] += 1
        assert not words.same()(table, b"")
        numbers[i] -= 1
