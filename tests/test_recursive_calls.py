"""Functions that call themselves, in pieces between their recursive calls: what they do, against the functions themselves; and when a
compiled function is taken to such pieces."""

from __future__ import annotations

import gc
import itertools
import linecache
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tests.test_branching_loops import assert_equal, outcome
from tracejit import nn
from tracejit.capture.syntax.recursive_calls import outline_between_calls
from tracejit.compiled.pieces import compile_between_calls

_files = itertools.count()
NOWHERE = 0, 0, 0, 0

Tree = Any
TREES: tuple[Tree, ...] = (3, (1, 2), ((1, 2), 3), (1, (2, 3)), ((1, 2), (3, 4)), (((1, 2), 3), (4, (5, 6))))


def defined(text: str, name: str = "f") -> Any:
    """The function of a program text, with a file that can be read."""
    file = f"{__file__}.{next(_files)}"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    namespace: dict[str, Any] = {"__name__": "program", "__file__": file}
    exec(compile(text, file, "exec", dont_inherit=True), namespace)
    return namespace[name]


# -- the same function
PYTHON = {
    "a call in an operand, after others": """
def f(tree, seen):
    if isinstance(tree, int):
        seen.append(tree * 2 + 1)
        return tree + 1 - 1
    left = tree[0] + 0 if isinstance(tree[0], int) else tree[0]
    return log(seen, "first") + f(left, seen) * log(seen, "second") - f(tree[1], seen)
def log(seen, what):
    seen.append(what)
    return len(seen)
""",
    "a call among keyword arguments, in an index and in a list": """
def f(tree, seen):
    if isinstance(tree, int):
        return tree
    values = [len(seen), f(tree[0], seen), len(seen)]
    return add(len(seen) + 1, b=f(tree[1], seen), c=values[f(0, seen)])
def add(a, b, c):
    return a + 10 * b + 100 * c
""",
    "calls in conditions, loops and comprehensions": """
def f(tree, seen):
    if isinstance(tree, int):
        return tree
    total = 0
    if f(tree[0], seen) + 1 > 2:
        total += f(tree[1], seen)
        seen.append(total * 2)
    elif f(tree[1], seen) > 1 and f(tree[0], seen) > 0:
        total -= len(seen) * 2 + 1
    for part in tree:
        seen.append(total + len(seen))
        if total > 20:
            break
        total += f(part, seen)
        if total % 2 == 1:
            continue
        total = total * 3 + 1
    while total > f(0, seen) + 50:
        total -= total // 2 + 1
    return total + sum([f(part, seen) for part in tree]) + (f(tree[0], seen) if total > 3 else len(seen) + 1)
""",
    "an operand that the call changes": """
def f(tree, seen):
    count = 1
    def inner(part):
        nonlocal count
        count = count * 2 + len(seen)
        return count + f(part, seen)
    if isinstance(tree, int):
        return tree * 2 + 1
    return count + inner(tree[0]) * count - inner(tree[1])
""",
    "a global variable that the call changes": """
def f(tree, seen):
    global count
    seen.append(len(seen) * 2)
    count = len(seen) + 1
    if isinstance(tree, int):
        return tree
    return count + f(tree[0], seen) * count - f(tree[1], seen)
""",
    "a variable that a generator assigns while the call consumes it": """
def f(tree, seen):
    if not isinstance(tree, tuple):
        return tree if isinstance(tree, int) else sum(tree) + 1
    part = len(seen) * 2 + 1
    parts = ((part := f(x, seen) * 2) for x in tree)
    return part + f(parts, seen) * part
""",
    "a variable that has no value yet": """
def f(tree, seen):
    seen.append(len(seen) * 2 + 1)
    if isinstance(tree, int):
        return tree
    if len(seen) > 4:
        total = len(seen) * 2 + 1
    if len(seen) > 6:
        total += f(tree[0], seen)
    return total + f(tree[0], seen) * f(tree[1], seen)
""",
    "a name that is assigned in the expression": """
def f(tree, seen):
    if isinstance(tree, int):
        return tree
    seen.append(len(seen) * 2)
    x = 1
    return x + (x := 5 + len(seen)) * f(tree[0], seen) + x
""",
    "a base case in the middle, with an else": """
def f(tree, seen):
    seen.append(len(seen) * 2)
    if isinstance(tree, int):
        result = tree * 2 + 1
    else:
        left, right = f(tree[0], seen), f(tree[1], seen)
        seen.append((left, right))
        result = left * 2 - right
    return result + len(seen)
""",
    "two functions that call each other": """
def f(tree, seen):
    if isinstance(tree, int):
        return tree * 3 + len(seen)
    seen.append(len(tree) + 1)
    return g(tree[0], seen) - g(tree[1], seen) * 2
def g(tree, seen):
    seen.append(len(seen) - 1)
    return f(tree, seen) + 1
""",
    "star arguments and defaults": """
def f(tree, *rest, seen=None, factor=2):
    seen, = rest if rest else (seen,)
    if isinstance(tree, int):
        return tree * factor + len(seen)
    seen.append(factor + 1)
    return f(tree[0], *rest, **{"seen": seen}) + f(tree[1], seen=seen, factor=factor + 1)
""",
    "an error in the middle": """
def f(tree, seen):
    seen.append(len(seen) + 1)
    if isinstance(tree, int):
        return 12 // (tree - 3) + len(seen)
    try:
        return f(tree[0], seen) + f(tree[1], seen) * 2
    except ZeroDivisionError:
        seen.append(len(seen) * 10)
        return -len(seen) + 1
""",
}


@pytest.mark.parametrize("name", PYTHON)
def test_a_function_in_pieces_does_what_the_function_does(name: str) -> None:
    function = defined(PYTHON[name])
    functions = [x for name in ("f", "g") if (x := function.__globals__.get(name)) is not None]
    calls = {x.__code__: {(NOWHERE, "f"), (NOWHERE, "g"), (NOWHERE, "inner")} for x in functions}
    pieces = compile_between_calls(function, calls, "", lambda piece: piece)
    assert pieces is not None and pieces.parts
    for tree in TREES:
        seen: tuple[list[Any], list[Any]] = [], []
        expected, given = [_outcome(x, tree, y) for x, y in zip((function, pieces.function), seen, strict=True)]
        assert expected == given and seen[0] == seen[1], (tree, seen)


def _outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize(
    "text",
    [
        "def f(n):\n    if n: yield from f(n - 1)\n    yield n * 2 + 1\n",
        "def f(n):\n    x = n * 2 + 1\n    return f(n - 1) if n else locals()\n",
        "async def f(n):\n    return n * 2 + (await f(n - 1) if n else 1)\n",
    ],
)
def test_generators_and_functions_that_read_all_variables_are_not_in_pieces(text: str) -> None:
    function = defined(text)
    assert outline_between_calls(function.__code__, {(NOWHERE, "f")}, function.__globals__) is None


# -- compiled functions
def nuts(q: Any, draws: int) -> Any:
    """Trees of moves, in a direction that is drawn, until their ends turn."""

    def moved(q: Any, p: Any, step: float) -> Any:
        leaf = q.detach().requires_grad_()
        p = p - step * T.autograd.grad((leaf**2).sum() + 0.1 * (leaf**4).sum(), leaf)[0]
        return q + step * p, p

    def tree(q: Any, p: Any, step: float, depth: int) -> Any:
        if depth == 0:
            q, p = moved(q, p, step)
            return q, p, 1, bool((q * q).sum() < 9)
        q, p, count, going = tree(q, p, step, depth - 1)
        if going:
            q, p, more, going = tree(q, p, step, depth - 1)
            if T.rand(()) < more / (count + more):
                p = p * 0.99
            count += more
            going = going and bool((q * p).sum() > -2)
        return q, p, count, going

    counts = []
    for _ in range(draws):
        p, depth, going = T.randn(3), 0, True
        while going and depth < 4:
            q, p, count, going = tree(q, p, 0.1 if T.rand(()) < 0.5 else -0.1, depth)
            counts.append(count)
            depth += 1
    return q, counts


def encoder(weight: Any, words: Any, tree: Tree) -> Any:
    """A recursive network over nested tuples, whose function each call defines anew, and its gradients."""
    weight, words = weight.detach().requires_grad_(), words.detach().requires_grad_()

    def encode(node: Tree) -> Any:
        if isinstance(node, int):
            return T.tanh(words[node])
        left, right = encode(node[0]), encode(node[1])
        gate, value = (weight @ T.cat([left, right])).chunk(2)
        return gate.sigmoid() * value.tanh() + left * 0.5

    result = encode(tree)
    return (result.detach(), *T.autograd.grad((result * result).sum(), (weight, words)))


class Branching(nn.Module):
    """The same as a module that calls its own method, and itself."""

    def __init__(self) -> None:
        super().__init__()
        self.joined = nn.Linear(8, 4)

    def forward(self, node: Tree, words: Any) -> Any:
        if isinstance(node, int):
            return words[node].tanh() * 0.5
        left = self.left(node, words)
        return self.joined(T.cat([left, self(node[1], words)])).tanh() + left

    def left(self, node: Tree, words: Any) -> Any:
        state = self(node[0], words)
        return state * 0.5 + state.mean()


def random_tree(random: Any, leaves: int) -> Tree:
    if leaves == 1:
        return int(random.integers(8))
    left = int(random.integers(1, leaves))
    return random_tree(random, left), random_tree(random, leaves - left)


def trees(k: int) -> Tree:
    return random_tree(np.random.default_rng(k), 6)


def normal(k: int, *shape: int) -> Any:
    return T.tensor(np.random.default_rng(k).normal(size=shape).astype(np.float32))


CALLS = 24
PROGRAMS: dict[str, tuple[Callable[[], Callable[..., Any]], Callable[[int], tuple[Any, ...]], int]] = {
    "trees of moves": (lambda: nuts, lambda k: (T.ones(3), 12), 40),
    "a network over tuples": (lambda: encoder, lambda k: (normal(0, 8, 8), normal(1, 8, 4), trees(k)), 4),
    "a module": (lambda: (T.manual_seed(0), Branching())[1], lambda k: (trees(k), normal(1, 8, 4)), 8),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_recursion_that_differs_from_call_to_call_is_in_pieces(name: str) -> None:
    build, given, most = PROGRAMS[name]
    function, compiled = build(), T.compile(build(), wait=True)
    for k in range(CALLS):
        assert_equal(outcome(function, given(k), k), outcome(compiled, given(k), k))
    pieces = compiled._table.pieces
    assert pieces is not None and compiled.stats.piecewise_calls >= CALLS - 8, compiled.explain()
    assert "what is between recursive calls is compiled" in " ".join(compiled.explain().split())
    compiled_parts = [part for part in pieces.parts if 2 * part.stats.compiled_calls > part.stats.calls]
    assert compiled_parts and max(part.stats.traces for part in compiled_parts) <= most, compiled.explain()
    assert sum(part.stats.compiled_calls for part in compiled_parts) >= 4 * CALLS


def test_the_results_of_pieces_have_the_gradients_of_the_function() -> None:
    model, compiled = [PROGRAMS["a module"][0]() for _ in range(2)]
    run = T.compile(compiled, wait=True)
    for k in range(12):
        gradients = []
        for function, module in ((model, model), (run, compiled)):
            words = normal(1, 8, 4).requires_grad_()
            (function(trees(k), words) ** 2).sum().backward()
            gradients.append([words.grad, *[parameter.grad for parameter in module.parameters()]])
            module.zero_grad()
        for expected, found in zip(*gradients, strict=True):
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)
    assert run._table.pieces is not None


def test_a_recursion_that_is_the_same_in_each_call_stays_whole() -> None:
    def transformed(x: Any, scale: Any) -> Any:
        if x.shape[0] == 1:
            return x * scale
        even, odd = transformed(x[::2], scale), transformed(x[1::2], scale)
        return T.cat([even + odd, even - odd])

    def by_kind(x: Any, kind: str) -> Any:
        return transformed(x, {"a": 1.0, "b": 2.0, "c": -1.0, "d": 0.5}[kind])

    compiled = T.compile(by_kind, wait=True)
    for k in range(CALLS):
        assert_equal(outcome(by_kind, (normal(k, 8), "abcd"[k % 4]), k), outcome(compiled, (normal(k, 8), "abcd"[k % 4]), k))
    assert compiled._table.pieces is None and compiled.stats.traces <= 4, compiled.explain()


def test_two_trees_that_take_turns_have_a_program_each() -> None:
    compiled = T.compile(encoder, wait=True)
    for k in range(CALLS):
        arguments = normal(0, 8, 8), normal(1, 8, 4), trees(k % 2)
        assert_equal(outcome(encoder, arguments, k), outcome(compiled, arguments, k))
    assert (compiled.stats.traces, compiled.stats.compiled_calls) == (2, CALLS - 2), compiled.explain()


def test_a_few_shapes_of_a_recursion_have_a_program_each() -> None:
    weight = normal(0, 4, 4)

    def network(x: Any, depth: int) -> Any:
        return network((weight @ x).tanh(), depth - 1) + x if depth else x.sin()

    compiled = T.compile(network, wait=True)
    for k in range(CALLS):
        assert_equal(outcome(network, (normal(k, 4), 1 + k % 5), k), outcome(compiled, (normal(k, 4), 1 + k % 5), k))
    assert (compiled.stats.traces, compiled.stats.compiled_calls) == (5, CALLS - 5), compiled.explain()


def test_pieces_read_the_variables_that_their_function_has_now() -> None:
    def run(tree: Tree, x: Any) -> Any:
        scale = 1.0

        def changed(y: Any) -> Any:
            nonlocal scale
            scale = scale + 0.25
            return y + 1

        def visit(node: Tree) -> Any:
            if isinstance(node, int):
                y = changed(x * node)
                return y * scale + T.sin(y)
            left = visit(node[0])
            right = visit(node[1])
            return (left * scale - right).tanh() * scale

        return visit(tree), scale

    compiled = T.compile(run, wait=True)
    for k in range(CALLS):
        assert_equal(outcome(run, (trees(k), normal(k, 3)), k), outcome(compiled, (trees(k), normal(k, 3)), k))
    assert compiled._table.pieces is not None


def test_an_error_in_a_piece_is_that_of_the_function() -> None:
    def visit(node: Tree, x: Any) -> Any:
        if isinstance(node, int):
            y = x * node + 1
            if y.sum() > 26:
                raise ValueError(f"too large: {node}")
            return y.tanh()
        left, right = visit(node[0], x), visit(node[1], x)
        return left * 2 + right.sin()

    compiled = T.compile(visit, wait=True)
    raised = 0
    for k in range(CALLS):
        expected, given = [outcome(f, (trees(k), 2 * T.ones(2)), k) for f in (visit, compiled)]
        assert_equal(expected, given)
        raised += "too large" in repr(expected)
    assert raised and compiled._table.pieces is not None


def test_pieces_keep_nothing_alive_that_a_call_has_defined() -> None:
    def run(tree: Tree, x: Any) -> Any:
        held = x * 2

        def visit(node: Tree) -> Any:
            if isinstance(node, int):
                return (held * node).tanh() + 1
            left = visit(node[0])
            right = visit(node[1])
            return left * 2 + right.sin()

        return visit(tree), held

    compiled = T.compile(run, wait=True)
    alive = [weakref.ref(compiled(trees(k), T.ones(2))[1]) for k in range(12)]
    assert compiled._table.pieces is not None
    gc.collect()
    assert [reference for reference in alive if reference() is not None] == []


def test_a_function_that_is_defined_again_is_the_new_one() -> None:
    text = "import tracejit as T\ndef f(node, x):\n    if isinstance(node, int):\n        return (x * node).tanh() + 1\n"
    text += "    left = f(node[0], x)\n    right = f(node[1], x)\n    return left.sin() * 2 + right\n"
    function = defined(text)
    compiled = T.compile(function, wait=True)
    for k in range(12):
        assert_equal(outcome(function, (trees(k), T.ones(2)), k), outcome(compiled, (trees(k), T.ones(2)), k))
    assert compiled._table.pieces is not None
    function.__globals__["f"] = lambda node, x: x * 7
    assert_equal(outcome(function, (trees(9), T.ones(2)), 9), outcome(compiled, (trees(9), T.ones(2)), 9))


def called(function: Callable[..., Any], given: Callable[[int], tuple[Any, ...]], name: str = "") -> Any:
    """The compiled function, after calls that gave what the function gives.  name: by which it calls itself, of its globals."""
    compiled = T.compile(function, wait=True)
    for k in range(CALLS):
        expected = outcome(function, given(k), k)
        if name:
            function.__globals__[name] = compiled
        assert_equal(expected, outcome(compiled, given(k), k))
        if name:
            function.__globals__[name] = function
    return compiled


def test_recursive_calls_of_what_has_another_name_are_between_pieces() -> None:
    weight = normal(3, 4, 4)

    def leaf(node: Tree, x: Any) -> Any:
        return (x * node + 0.1).sin()

    def pair(node: Tree, x: Any) -> Any:
        return (weight @ table[type(node[0])](node[0], x)).tanh() + table[type(node[1])](node[1], x).sin() * 0.3

    table = {int: leaf, tuple: pair}

    def whole(node: Tree, x: Any) -> Any:
        return table[type(node)](node, x)

    compiled = called(whole, lambda k: ((trees(k), trees(k + 99)), normal(k, 4)))
    parts = compiled._table.pieces.parts
    assert parts and all(part.stats.traces <= 2 and part.stats.compiled_calls > 2 * CALLS for part in parts), compiled.explain()


def test_a_function_that_calls_itself_by_its_compiled_name_goes_on_in_its_pieces() -> None:
    text = "def f(node, x):\n    if isinstance(node, int):\n        return (x * node).tanh() + 1\n"
    text += "    left = f(node[0], x)\n    right = f(node[1], x)\n    return left.sin() * 2 + right\n"
    compiled = called(defined(text), lambda k: (trees(k), normal(k, 3)), "f")
    assert compiled._table.pieces is not None
    assert compiled.stats.calls <= 2 * CALLS, compiled.explain()  # 11 calls in each would be 11 * CALLS
    assert all(part.stats.compiled_calls > 2 * CALLS for part in compiled._table.pieces.parts)


def test_a_recursion_by_the_compiled_name_may_be_as_deep_as_in_eager_mode() -> None:
    text = "def f(n, x):\n    if n == 0:\n        return x\n    return f(n - 1, x * 0.99 + 1).tanh() + x * 0.01\n"
    compiled = called(defined(text), lambda k: (40 + k if k < CALLS - 2 else 700, normal(k, 3)), "f")
    assert compiled._table.pieces is not None and compiled.stats.piecewise_calls >= CALLS - 10, compiled.explain()


def test_pieces_that_compute_nothing_with_tensors_are_left_to_python() -> None:
    def merged(a: list[Any], b: list[Any]) -> list[Any]:
        out = []
        while a and b:
            out.append(a.pop(0) if a[0] <= b[0] else b.pop(0))
        return out + a + b

    def sort(values: list[Any]) -> list[Any]:
        if len(values) <= 1:
            return values
        middle = len(values) // 2
        return merged(sort(values[:middle]), sort(values[middle:]))

    compiled = called(sort, lambda k: (list(normal(k, 9)),))
    assert compiled._table.pieces is not None
    assert compiled.stats.direct_calls and compiled.stats.piecewise_calls <= CALLS // 2, compiled.explain()


def test_pieces_read_nonlocal_variables_to_which_their_function_assigns() -> None:
    def run(tree: Tree, x: Any) -> Any:
        total, count = T.zeros(3), 0

        def visit(node: Tree) -> Any:
            nonlocal total, count
            if isinstance(node, int):
                total = total + x * node
                count += 1
                return x.sin() * node + total
            left = visit(node[0])
            right = visit(node[1])
            return (left - right * 0.5 + total).tanh() * count

        return visit(tree), total, count

    compiled = called(run, lambda k: (trees(k), normal(k, 3)))
    (part, *_) = compiled._table.pieces.parts
    assert part.stats.compiled_calls > 2 * CALLS, compiled.explain()


def test_a_recursion_of_lambdas_has_no_pieces_and_explain_says_why() -> None:
    def run(tree: Tree, x: Any) -> Any:
        visit = lambda node: x * node if isinstance(node, int) else (visit(node[0]) + visit(node[1]).tanh()) * 0.5
        return visit(tree)

    compiled = called(run, lambda k: (trees(k), normal(k, 3)))
    assert compiled._table.pieces is not None and compiled.stats.piecewise_calls == 1 and compiled.stats.direct_calls
    assert "lambdas, generators and comprehensions are not cut" in " ".join(compiled.explain().split())
