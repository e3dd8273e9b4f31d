"""Lists and deques from outside that calls add to and take from: read by fixed positions from their ends, whatever their lengths are."""

from __future__ import annotations

import array
import collections
import random

import pytest

import tracejit as T
from tracejit.config import override

CASES = {}
CALLS = 10


def case(paths=1, reason=None):
    """A maker of (function of a tensor and a number, what it changes), how many recordings its calls need, or why it is eager."""

    def register(make):
        CASES[make.__name__] = make, paths, reason
        return make

    return register


def shown(value):
    """A value as text: numbers with their types, tensors with their contents."""
    if isinstance(value, T.Tensor):
        return ["tensor", value.tolist()]
    if isinstance(value, dict):
        return [type(value).__name__, [(key, shown(item)) for key, item in value.items()]]
    if isinstance(value, list | tuple | collections.deque):
        return [type(value).__name__, getattr(value, "maxlen", None), [shown(item) for item in value]]
    return repr(value)


@case()
def the_length_is_an_operand():
    losses = []

    def f(x, n):
        losses.append(n)
        return x * len(losses)

    return f, losses


@case()
def the_last_is_what_the_call_has_put_there_and_those_before_it_are_read():
    losses = [1.0, 2.0]

    def f(x, n):
        losses.append(x.sum().item())
        return x * (losses[-1] - losses[-2]), sum(losses[-3:]) / 3

    return f, losses


@case(paths=2)
def the_length_decides():
    losses = [1.0]

    def f(x, n):
        losses.append(x.sum().item())
        return x * 2 if len(losses) % 2 == 0 else x

    return f, losses


@case(paths=3)
def no_improvement_for_some_calls():
    losses = []

    def f(x, n):
        losses.append(x.sum().item())
        if len(losses) > 3 and losses[-1] >= losses[-2]:
            return x * 2
        return x

    return f, losses


@case()
def tensors_of_the_last_calls():
    kept = [T.zeros(3), T.ones(3)]

    def f(x, n):
        kept.append(x * n)
        return T.stack(kept[-3:]).sum(0), kept[-2] + 1

    return f, kept


@case()
def one_list_by_two_names():
    losses = [1, 2]
    other = {"losses": losses}

    def f(x, n):
        losses.append(n)
        other["losses"].append(n + 1)
        losses.pop()
        return x * other["losses"][-1] + len(losses)

    return f, losses


@case()
def items_of_both_ends_are_replaced():
    items = [1, 2, 3, 4, 5]

    def f(x, n):
        items.append(n)
        items[0] += 1
        items[-2] *= 2
        items[-1] += 1
        return x * items[0] + items[-2] * items[-1] + items[1]

    return f, items


@case()
def a_stack_is_left_as_it_was():
    stack = [5.0]

    def f(x, n):
        stack.append(x * 2)
        y = stack[-1] + stack[0]
        stack.pop()
        return y, len(stack)

    return f, stack


@case()
def the_last_is_taken_and_put_back():
    stack = [1, 2, 3]

    def f(x, n):
        last = stack.pop()
        stack.append(last + 1)
        return x * stack[-1] + stack[-2]

    return f, stack


@case()
def the_first_is_taken():
    queue = list(range(40))

    def f(x, n):
        first = queue.pop(0)
        del queue[0]
        return x * first + queue[0] + len(queue)

    return f, queue


@case()
def something_is_put_in_front():
    items = [1.0]

    def f(x, n):
        items.insert(0, n)
        return x * items[0] + len(items) + items[-1]

    return f, items


@case()
def a_deque_without_a_limit():
    queue = collections.deque([1, 2, 3])

    def f(x, n):
        queue.append(n)
        queue.appendleft(n + 1)
        first = queue.popleft() + queue.popleft()
        return x * first + queue[-1] * len(queue)

    return f, queue


@case(paths=5)
def a_deque_is_recorded_for_each_length_until_it_is_full():
    window = collections.deque(maxlen=4)

    def f(x, n):
        window.append(x.sum().item())
        return sum(window) / len(window)

    return f, window


@case(paths=5)
def a_list_that_the_program_keeps_short():
    window = []

    def f(x, n):
        window.append(x.sum().item())
        if len(window) > 4:
            window.pop(0)
        return sum(window) / len(window)

    return f, window


@case()
def a_list_that_is_emptied_first():
    parts = [1, 2, 3]

    def f(x, n):
        parts.clear()
        parts.append(x * n)
        parts.append(x)
        return T.cat(parts), len(parts)

    return f, parts


@case()
def a_list_that_is_emptied_afterwards():
    parts = []

    def f(x, n):
        parts.append(x * n)
        parts.append(x)
        y = T.cat(parts)
        parts.clear()
        return y

    return f, parts


@case(paths=2)
def an_index_that_is_too_large_is_an_error_as_long_as_it_is():
    items = []

    def f(x, n):
        items.append(n)
        try:
            return x * items[-3]
        except IndexError:
            return x

    return f, items


@case()
def lists_in_a_defaultdict():
    log = collections.defaultdict(list, loss=[0.5])

    def f(x, n):
        log["loss"].append(x.sum().item())
        return x * len(log["loss"]), log["loss"][-1], log["loss"][-2]

    return f, log


@case()
def a_list_class_of_the_program():
    class History(list):
        pass

    history = History([1])

    def f(x, n):
        history.append(n)
        return x * len(history) + history[-1] + history[-2]

    return f, history


@case()
def an_array_that_grows():
    losses = array.array("d", [1.0, 2.0])

    def f(x, n):
        losses.append(x.sum().item())
        return x * len(losses) + losses[-2], losses[-1] - losses[0]

    return f, losses


@case()
def items_of_arrays():
    numbers, counts = array.array("d", [1.0, 2.0, 3.0, 4.0]), array.array("l", [5, 6])

    def f(x, n):
        numbers[0] = x.sum().item()
        numbers[1] = n + 0.5
        return x * sum(numbers) + counts[-1], max(numbers), numbers.tolist(), [v + 1 for v in counts], len(counts)

    return f, numbers


@case(reason="container")
def an_array_that_converts_what_it_is_given():
    numbers = array.array("d", [1.0, 2.0])

    def f(x, n):
        numbers[0] = n
        return x * numbers[0]

    return f, numbers


@case(reason="container")
def a_slice_of_an_array():
    numbers = array.array("d", [1.0, 2.0])

    def f(x, n):
        return x * len(numbers[1:])

    return f, numbers


@case(reason="read_after_change")
def a_growing_list_as_a_whole():
    items = [1]

    def f(x, n):
        items.append(n)
        return [x * v for v in items][-1]

    return f, items


@case(paths=2)
def a_growing_set_and_dictionary():
    seen, table = {-1}, {"a": 1}

    def f(x, n):
        seen.add("x")
        table["b"] = n
        return x * len(seen) + len(table)

    return f, table


def driven(f, state):
    found = []
    for n in range(CALLS):
        found.append([shown(f(T.tensor([1.0, 2.0, 3.0]) * (n * 7 % 5), n)), shown(state)])
    return found


@pytest.mark.parametrize("hot", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_calls_that_change_what_they_read_are_eager_ones_and_are_replayed(name, hot):
    make, paths, reason = CASES[name]
    expected = driven(*make())
    with override(hot_calls=hot):
        f, state = make()
        compiled = T.compile(f)
        assert driven(compiled, state) == expected
    if reason is not None:
        assert reason in {r.code for r in compiled.reasons}
    else:
        assert compiled.stats.traces == paths and compiled.stats.compiled_calls == CALLS - paths, compiled.explain()


OPERATIONS = {
    "append": lambda items, n, i: items.append(n),
    "append late": lambda items, n, i: items.append(n),
    "extend": lambda items, n, i: items.extend([n, n + 1]),
    "pop": lambda items, n, i: items.pop(),
    "pop first": lambda items, n, i: items.pop(0) if isinstance(items, list) else items.popleft(),
    "delete last": lambda items, n, i: items.__delitem__(-1),
    "put first": lambda items, n, i: items.insert(0, n),
    "put last": lambda items, n, i: items.append(n) if isinstance(items, list) else items.appendleft(n),
    "clear": lambda items, n, i: items.clear(),
    "store": lambda items, n, i: items.__setitem__(i, n * 2),
    "read": lambda items, n, i: items[i],
    "slice": lambda items, n, i: list(items)[i:] if isinstance(items, collections.deque) else items[i:] if i < 0 else items[:i],
    "length": lambda items, n, i: len(items),
    "truth": lambda items, n, i: 1 if items else 0,
    "rotate": lambda items, n, i: items.reverse(),
}


def random_program(seed):
    rng = random.Random(seed)
    steps = [(rng.choice([*OPERATIONS, "read", "read", "slice"]), rng.randrange(-4, 4)) for _ in range(rng.randint(2, 7))]
    start, most = list(range(rng.choice([0, 1, 2, 3, 5]))), rng.choice([None, None, None, 3, 6])
    of_deque = most is not None or rng.random() < 0.2

    def f(x, n, items):
        found = []
        for name, position in steps:
            try:
                found.append(OPERATIONS[name](items, x.sum().item() if name == "append late" else n, position))
            except IndexError:
                found.append("no such item")
        return x * 2, found

    return f, lambda: collections.deque(start, most) if of_deque else list(start), seed


def run_random(f, make, seed):
    rng, items, found = random.Random(seed), make(), []
    for _ in range(8):
        found.append([shown(f(T.tensor([0.5, 1.0]) * rng.randrange(4), rng.randrange(-3, 3), items)), shown(items)])
        for _ in range(rng.randrange(3)):  # somebody else changes it, too
            rng.choice(
                [lambda: items.append(7), lambda: items.clear(), lambda: items and items.pop(), lambda: items.append(1.5)]
            )()
    return found


@pytest.mark.parametrize("seed", range(60))
def test_random_changes_of_lists_and_deques_are_those_of_eager_calls(seed):
    f, make, _ = random_program(seed)
    with override(hot_calls=seed % 2):
        assert run_random(T.compile(f), make, seed) == run_random(f, make, seed)


def test_a_list_that_became_another_kind_of_list_is_not_taken_for_the_recorded_one():
    kept = {"log": [1.0, 2.0]}

    def f(x):
        kept["log"].append(x.sum().item())
        return x * kept["log"][-2]

    compiled = T.compile(f)
    x = T.tensor([1.0, 2.0])
    for _ in range(3):
        compiled(x)
    assert compiled.stats.compiled_calls == 2
    kept["log"] = collections.deque([5.0], maxlen=1)
    with pytest.raises(IndexError):
        compiled(x)
    kept["log"] = [7]
    assert compiled(x).tolist() == [7.0, 14.0]


def test_an_array_of_another_type_is_not_taken_for_the_recorded_one():
    kept = [array.array("d", [1.0, 2.0])]

    def f(x, v):
        kept[0][0] = v
        return x * kept[0][1], kept[0][0]

    compiled = T.compile(f)
    for v in (1.1, 2.2, 3.3):
        assert compiled(T.ones(1), v)[1] == v
    assert compiled.stats.compiled_calls == 2
    kept[0] = array.array("f", [1.0, 2.0])
    assert compiled(T.ones(1), 1.1)[1] == kept[0][0] != 1.1
    kept[0] = array.array("q", [1, 2])
    with pytest.raises(TypeError):
        compiled(T.ones(1), 1.1)


def test_a_deque_of_another_length_is_not_taken_for_the_recorded_one():
    kept = [collections.deque([1.0, 2.0])]

    def f(x):
        kept[0].append(3.0)
        return x * kept[0][0] + len(kept[0])

    compiled = T.compile(f)
    for _ in range(3):
        compiled(T.ones(1))
    kept[0] = collections.deque([1.0, 2.0], maxlen=2)
    assert compiled(T.ones(1)).tolist() == [4.0]


@pytest.mark.parametrize("change", ["add", "store"])
def test_the_length_of_a_set_or_dictionary_is_right_where_the_call_adds_what_it_already_has(change):
    seen, table = {1}, {"a": 1}

    def f(x):
        if change == "add":
            seen.add(5)
            return x * len(seen)
        table["k"] = 1
        return x * len(table)

    compiled = T.compile(f)
    for member, key in ((1, "a"), (1, "a"), (5, "k"), (1, "a"), (5, "k")):
        seen.clear(), table.clear()
        seen.add(member)
        table[key] = 0
        assert compiled(T.ones(1)).tolist() == [1.0 if member == 5 else 2.0]


def test_nothing_is_put_into_a_list_by_a_call_that_leaves_or_raises():
    log = [1.0]

    def f(x, n):
        log.append(n)
        if x.sum() > 100:
            raise ValueError(f"call {len(log)}")
        return x * log[-2]

    compiled = T.compile(f)
    for n in range(3):
        compiled(T.ones(2), n * 1.0)
    with pytest.raises(ValueError, match="call 5"):
        compiled(T.ones(2) * 1000, 9.0)
    assert log == [1.0, 0.0, 1.0, 2.0, 9.0]
    assert compiled(T.ones(2), 4.0).tolist() == [9.0, 9.0]


def test_a_list_that_is_an_argument_is_the_one_that_the_function_knows():
    log = [1, 2]

    def f(x, items):
        log.append(5)
        return x * items[-1] + len(items)

    compiled = T.compile(f)
    other = [3, 4]
    for _ in range(3):
        assert compiled(T.ones(1), other).tolist() == [6.0]
    assert compiled(T.ones(1), log).tolist() == [5.0 + len(log)]
    assert compiled(T.ones(1), other).tolist() == [6.0]
