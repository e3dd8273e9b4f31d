"""Numbers, sizes and texts that leave the tensors, and what the program does with them.  See capture_programs.py."""

from __future__ import annotations

import json
import math
import operator

import numpy as np
from registered_programs import Box, program, x

import tracejit as T


@program()
def item_returned():
    def fn(a):
        return a.sum().item()

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4)), lambda f: f(x(1, 2))], None


@program()
def float_int_bool_of_tensors():
    def fn(a):
        return float(a.sum()), int(a.sum()), bool(a.sum() > 3)

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], None


@program()
def number_added_to_a_total():
    box = Box(total=0.0)

    def fn(a):
        box.total += a.sum().item()
        return a * 2

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], lambda: box.total


@program()
def number_in_a_list():
    log = []

    def fn(a):
        log.append(float(a.mean()))
        return a * 2

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], lambda: log


@program()
def shape_arithmetic():
    def fn(a):
        n, m = a.shape
        return a.reshape(m, n) * (n / m), a.numel() // 2, a.shape[-1] % 2, len(a), a.dim(), a.size(0), list(a.shape), a.ndim

    return fn, [lambda f: f(T.ones(2, 3)), lambda f: f(T.ones(4, 2))], None


@program()
def sizes_used_as_ranges_and_keys():
    table = {2: "two", 3: "three"}

    def fn(a):
        return [a[i] * i for i in range(a.shape[0])], table.get(a.shape[0], "many"), f"{tuple(a.shape)}"

    return fn, [lambda f: f(T.ones(2, 2)), lambda f: f(T.ones(3, 1)), lambda f: f(T.ones(5, 1))], None


@program()
def item_as_an_index():
    def fn(a, i):
        return a[i.item()], a[int(i)], a[i]

    return fn, [lambda f: f(x(1, 2, 3), T.tensor(0)), lambda f: f(x(1, 2, 3), T.tensor(2))], None


@program()
def tensor_as_a_list_index_and_range():
    names = ["p", "q", "r"]

    def fn(a, i):
        return a * len(range(i)), names[i], [0] * int(i)

    return fn, [lambda f: f(x(1), T.tensor(1)), lambda f: f(x(1), T.tensor(2))], None


@program()
def numpy_array_of_a_result():
    def fn(a):
        return (a * 2).detach().numpy().sum().item()

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], None


@program()
def array_protocol():
    def fn(a):
        return float(np.asarray(a * 2).max())

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], None


@program()
def tolist_and_iteration_of_numbers():
    def fn(a):
        return [v * 2 for v in a.tolist()], sum(v.item() for v in a)

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], None


@program()
def number_formatted_and_stored():
    box = Box(text="")

    def fn(a):
        box.text = f"{a.mean().item():.2f}"
        return a * 2

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], lambda: box.text


@program()
def tensor_formatted():
    def fn(a):
        return f"{a}", str(a.sum()), f"{a.sum():.3f}", repr(a.shape)

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], None


@program()
def comparison_chain_of_tensors():
    def fn(a):
        return a * 2 if 0 < a.sum() < 5 else -a

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4)), lambda f: f(x(-3, 1))], None


@program()
def loop_until_converged():
    def fn(a):
        n = 0
        while a.abs().max() > 0.5:
            a = a / 2
            n += 1
        return a, n

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(8, 1)), lambda f: f(x(0.1, 0.2))], None


@program()
def argmax_as_a_branch():
    fs = [lambda a: a * 2, lambda a: a + 10, lambda a: -a]

    def fn(a):
        return fs[int(a.argmax())](a)

    return fn, [lambda f: f(x(3, 2, 1)), lambda f: f(x(1, 2, 1)), lambda f: f(x(1, 2, 3))], None


@program()
def max_and_min_of_tensors_by_python():
    def fn(a, b):
        return max(a.sum(), b.sum()), min(a.sum(), 3.0), sorted([b.sum(), a.sum()])

    return fn, [lambda f: f(x(1, 2), x(5, 5)), lambda f: f(x(9, 2), x(5, 5))], None


@program()
def nonzero_count_used():
    def fn(a):
        n = int((a > 0).sum())
        return a.sum() / max(n, 1), n

    return fn, [lambda f: f(x(1, -2)), lambda f: f(x(3, 4)), lambda f: f(x(-3, -4))], None


@program()
def masked_selection_mean():
    def fn(a):
        s = a[a > 0]
        return s.mean() if len(s) else a.sum() * 0

    return fn, [lambda f: f(x(1, -2)), lambda f: f(x(3, 4)), lambda f: f(x(-3, -4))], None


@program()
def early_stop_by_best():
    box = Box(best=float("inf"), bad=0)

    def fn(a):
        loss = (a * a).sum()
        v = loss.item()
        if v < box.best:
            box.best, box.bad = v, 0
        else:
            box.bad += 1
        return loss, box.bad

    def go(f):
        box.best, box.bad = float("inf"), 0
        return [f(v) for v in (x(3, 4), x(1, 2), x(2, 2))]

    return fn, [go, go], lambda: vars(box)


@program()
def isnan_check():
    def fn(a):
        if T.isnan(a).any():
            raise ValueError("nan")
        return a * 2

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(float("nan"), 2))], None


@program()
def number_from_item_into_graph():
    def fn(a):
        s = a.max().item()
        return a / s, a * math.sqrt(s)

    return fn, [lambda f: f(x(1, 4)), lambda f: f(x(3, 9))], None


@program()
def full_and_arange_by_items():
    def fn(a, n):
        return T.arange(int(n)) * 1.0, T.full((2,), a.sum().item()), T.zeros(int(n)).shape

    return fn, [lambda f: f(x(1, 2), T.tensor(3)), lambda f: f(x(1, 2), T.tensor(4))], None


@program()
def dictionary_of_numbers_returned():
    def fn(a):
        found = (a * a).mean()
        return {"loss": found.item(), "max": a.max().item(), "n": a.numel(), "t": found}

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], None


@program()
def json_of_numbers():
    def fn(a):
        return a * 2, json.dumps({"m": a.mean().item()})

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], None


@program()
def stride_storage_and_flags():
    def fn(a):
        return (
            a * 1,
            a.stride(),
            a.is_contiguous(),
            a.requires_grad,
            a.dtype,
            a.is_leaf,
        )

    return fn, [lambda f: f(T.ones(2, 3)), lambda f: f(T.ones(3, 2).T), lambda f: f(T.ones(2, 3).requires_grad_())], None


@program(reason="tensor_state")
def position_in_the_storage():
    def fn(a):
        return a * 1, a.storage_offset()

    return fn, [lambda f: f(T.ones(3)), lambda f: f(T.ones(5)[2:]), lambda f: f(T.ones(4)[1:])], None


@program(reason="unknown_call")
def index_of_tensor_by_operator():
    def fn(a, i):
        return a * operator.index(i), hex(i), round(a.sum().item(), 1)

    return fn, [lambda f: f(x(1), T.tensor(3)), lambda f: f(x(1), T.tensor(4))], None


@program()
def divmod_and_math_of_items():
    def fn(a):
        v = a.sum().item()
        return divmod(v, 2), math.floor(v), math.isclose(v, 3.0), v // 1, abs(-v), a * v

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4.5))], None


@program()
def numpy_function_of_tensor():
    def fn(a):
        return float(np.mean(a.numpy())), np.float32(a.sum().item()), a * 2

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4))], None


@program()
def tensor_in_conditions_of_comprehensions():
    def fn(a):
        return [v * 2 for v in a if v > 1], any(v > 2 for v in a), all(a > 0)

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(3, 4)), lambda f: f(x(-1, 0))], None


@program()
def tensor_equality_in_lists():
    def fn(a, b):
        return a in [b], [a, b].index(b) if a is not b else 0, a.sum() == b.sum()

    return fn, [lambda f: f(x(1), x(1)), lambda f: f(x(1), x(2))], None


@program()
def assert_on_values():
    def fn(a):
        assert a.sum() > 0, f"sum {a.sum().item()}"
        return a * 2

    return fn, [lambda f: f(x(1, 2)), lambda f: f(x(-1, -2)), lambda f: f(x(5, 2))], None


@program()
def hash_and_id_of_tensors():
    cache = {}

    def fn(a):
        cache.setdefault("n", 0)
        cache["n"] += 1
        return a * len({id(a), id(a)}), a is a

    return fn, [lambda f: f(x(1)), lambda f: f(x(2))], lambda: cache


@program()
def item_of_written_tensor():
    n = T.tensor(0)

    def fn(a):
        n.add_(1)
        return a * n.item()

    def go(f):
        n.zero_()
        return f(x(1)), f(x(1))

    return fn, [go, go], lambda: n.item()


@program()
def bool_of_state_tensor_steers_effects():
    flag = T.tensor(False)
    log = []

    def fn(a):
        if flag:
            log.append("on")
            a = a * 10
        else:
            log.append("off")
        flag.logical_not_()
        return a

    return fn, [lambda f: f(x(1)), lambda f: f(x(1)), lambda f: f(x(1))], lambda: log
