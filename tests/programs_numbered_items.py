"""Items of containers at numbers that are others in each call, and what numbers are compared with.  See capture_programs.py."""

from __future__ import annotations

from collections import deque

import numpy as np
from registered_programs import Box, program

import tracejit as T


def counted(f):
    """Calls with a tensor."""
    return [f(T.ones(2) * k) for k in range(1, 9)]


@program()
def a_dictionary_whose_key_is_a_counter():
    box, rates, rows = Box(step=0), {k: k / 4 for k in range(20)}, [T.ones(2) * k for k in range(4)]

    def fn(x):
        box.step += 1
        return (
            x * rates[box.step],
            rates.get(box.step, 1.0),
            rates.get(box.step + 15, -1.0),
            rows[box.step % 4] + rows[-(box.step % 3) - 1],
        )

    return fn, [counted], lambda: box.step


@program()
def batches_in_a_list_that_are_taken_in_turn():
    box, batches = Box(step=0), [(T.ones(2) * k, np.arange(3) + k, k, f"{k % 2}") for k in range(5)]

    def fn(x):
        rows, numbers, label, name = batches[box.step % len(batches)]
        box.step += 1
        return x * rows + T.tensor(numbers).sum(), label, name

    return fn, [counted], lambda: box.step


@program()
def an_item_that_the_call_changes_before_and_after_it_is_read():
    box, rates, queue = Box(step=0), {k: k / 4 for k in range(4)}, deque([1.0, 2.0, 3.0], maxlen=3)

    def fn(x):
        first = rates[box.step]
        rates[3] = first + 1
        queue.append(first)
        second = rates[box.step], queue[box.step % 3]
        box.step = (box.step + 1) % 4
        return x * first, second

    return fn, [counted], lambda: (rates, queue)


@program()
def a_key_that_is_missing_at_times():
    box, rates = Box(step=0), {0: 1.0, 2: 3.0, 5: 7.0}

    def fn(x):
        box.step += 1
        try:
            return x * rates[box.step - 1]
        except KeyError as error:
            return -x, str(error)

    return fn, [counted], lambda: box.step


@program()
def an_item_of_another_type_at_times():
    box, items = Box(step=0), [1.0, 2, T.ones(2), None, T.ones(2, requires_grad=True), (T.ones(1), 2)]

    def fn(x):
        box.step += 1
        item = items[box.step % 6]
        return x * (item if item is not None and not isinstance(item, tuple) else 3)

    return fn, [counted, counted], lambda: box.step


@program()
def the_same_tensor_at_two_numbers():
    row = T.ones(2)
    box, rows = Box(step=0), [row, T.zeros(2), row, row]

    def fn(x):
        box.step += 1
        one, other = rows[box.step % 4], rows[(box.step + 1) % 4]
        one.add_(x)
        return one is other, one + other

    return fn, [counted], lambda: (rows, box.step)


@program()
def membership_of_a_counter_in_sets():
    box, milestones = Box(step=0), {3, 5}

    def fn(x):
        box.step += 1
        return (
            x * 2 if box.step in {2, 4.0} else x,
            box.step in milestones,
            box.step in frozenset((1, 7)),
            box.step not in {-1, 8},
        )

    return fn, [counted], lambda: box.step


@program()
def lengths_and_truth_of_objects_of_the_program():
    class Memory:
        def __init__(self):
            self.items = []

        def __len__(self):
            return len(self.items)

    class Flag:
        on = 0

        def __bool__(self):
            return self.on % 3 == 0

    memory, flag = Memory(), Flag()

    def fn(x):
        memory.items.append(x.sum().item())
        flag.on += 1
        return x * len(memory) if len(memory) > 4 else x, bool(flag), 1 if not flag else 2, 3 if memory else 4

    return fn, [counted], lambda: (memory.items, flag.on)


@program()
def a_length_that_is_none():
    class Odd:
        length = 2

        def __len__(self):
            return self.length

    odd = Odd()

    def fn(x):
        odd.length = odd.length - 1 if odd.length > -1 else 2
        try:
            return x * len(odd)
        except ValueError as error:
            return x, str(error)

    return fn, [counted], lambda: odd.length
