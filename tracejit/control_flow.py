"""Control flow as functions: `cond`, `while_loop`, `scan` and `map`, after PyTorch's (torch.cond, torch.while_loop and
torch._higher_order_ops) and, for `length`, JAX's lax.scan.

They are what their docstrings say in Python, so the tape, and with it gradients of any order, are those of the loop written out, and a
recording follows the functions that they are given as it follows any other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tracejit.core.interpreter import state
from tracejit.core.shapes import size_range
from tracejit.core.tree import flatten, unflatten
from tracejit.ops.public.movement import stack
from tracejit.tensor import Tensor
from tracejit.utils.checkpoint import checkpoint

__all__ = ["cond", "map", "scan", "while_loop"]


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: tuple[Any, ...] | list[Any] = ()) -> Any:
    """true_fn(*operands) if pred, else false_fn(*operands); the other one is not called.

    pred: a bool, or a tensor of one element.  Gradients follow the branch that was taken.

    Raises TypeError where `operands` is no tuple or list or a branch is no function, RuntimeError for a tensor of more than one element."""
    _require_callable("cond", true_fn=true_fn, false_fn=false_fn)
    if not isinstance(operands, tuple | list):
        raise TypeError(f"cond(): operands must be a tuple or list, got {type(operands).__name__}")
    return true_fn(*operands) if _truth("cond", "pred", pred) else false_fn(*operands)


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: tuple[Any, ...] | list[Any]) -> Any:
    """`while cond_fn(*carried): carried = body_fn(*carried)`, from `carried_inputs` on; the last `carried`.

    carried_inputs: tensors, numbers, or tuples, lists and dictionaries of them.  body_fn returns as many, of the same structure, shapes and
    dtypes.  cond_fn returns a bool or a tensor of one element.  The result has the structure of carried_inputs; tensors among them that are
    carried to the end are copied, so no result is one of them.
    Compiled, a loop that carries tensors alone, none of which requires grad, is one loop of the program, however many steps it takes.

    Raises TypeError for another structure, and RuntimeError for another shape or dtype, than the last iteration's."""
    _require_callable("while_loop", cond_fn=cond_fn, body_fn=body_fn)
    if not isinstance(carried_inputs, tuple | list):
        raise TypeError(f"while_loop(): carried_inputs must be a tuple or list, got {type(carried_inputs).__name__}")
    given, structure = flatten(tuple(carried_inputs))

    def arranged(leaves: list[Any]) -> Any:
        return state.top.built(unflatten(structure, leaves))

    def condition(leaves: list[Any]) -> Any:
        return _one_element("while_loop", "the result of cond_fn", state.top.call(cond_fn, *arranged(leaves)))

    def step(leaves: list[Any]) -> list[Any]:
        found = state.top.call(body_fn, *arranged(leaves))
        if not isinstance(found, tuple | list):
            raise TypeError(f"while_loop(): body_fn must return a tuple or list like carried_inputs, got {type(found).__name__}")
        others, other = flatten(tuple(found))
        _require_same("while_loop", "what body_fn returns", (leaves, structure), (others, other))
        return others

    found = state.top.run_while_loop(condition, step, given)
    own = [x.clone() if isinstance(x, Tensor) and any(x is y for y in given) else x for x in found]
    return unflatten(flatten(carried_inputs)[1], own)


def scan(
    combine_fn: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    *,
    dim: int = 0,
    reverse: bool = False,
    checkpoint_every: int | None = None,
) -> tuple[Any, Any]:
    """carry, y = combine_fn(carry, x) for each slice x of xs along `dim`, from the carry `init` on: (the last carry, all y stacked).

    init: a tensor, or a tuple, list or dictionary of tensors; each carry has its structure, shapes and dtypes.  xs: tensors with one size
    along `dim`, likewise; None with `length`, then x is None.  y: tensors, stacked along a new first dimension, in the order of xs; or
    None, then there are none.
    reverse: from the last slice to the first.
    checkpoint_every: of the forward pass only each so-manyth carry is kept for the backward pass, which computes the others again
    (Griewank and Walther, Algorithm 799: Revolve, 2000, with one level): the memory of n steps is that of n / k carries and k steps.

    Raises TypeError for other structures and functions, ValueError for xs without slices or of different sizes, for a length that is not
    theirs, or `checkpoint_every` below 1, RuntimeError for a carry of another shape or dtype."""
    _require_callable("scan", combine_fn=combine_fn)
    if checkpoint_every is not None and (type(checkpoint_every) is not int or checkpoint_every < 1):
        raise ValueError(f"scan(): checkpoint_every must be an integer of at least 1, or None, got {checkpoint_every!r}")

    def combine(carry: Any, x: Any) -> tuple[Any, Any]:
        pair = state.top.call(combine_fn, carry, x)
        if not (isinstance(pair, tuple) and len(pair) == 2):
            raise TypeError(f"scan(): combine_fn must return a tuple (carry, y), got {_structure(pair)}")
        _require_alike("scan", "the carry that combine_fn returns", carry, pair[0])
        return pair

    return _looped("scan", "y", combine, init, xs, length, dim, reverse, checkpoint_every)


def map(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """f(x, *args) for each slice x of xs along the first dimension, stacked along a new first one.

    xs: a tensor, or a tuple, list or dictionary of tensors with one size there; what f returns likewise.

    Raises TypeError for other structures and functions, ValueError for xs without slices or of different sizes."""
    _require_callable("map", f=f)

    def combine(carry: Any, x: Any) -> tuple[Any, Any]:
        return carry, state.top.call(f, x, *args)

    return _looped("map", "what f returns", combine, (), xs, None, 0, False, None)[1]


def _looped(
    name: str,
    what: str,
    combine: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    length: int | None,
    dim: int,
    reverse: bool,
    every: int | None,
) -> tuple[Any, Any]:
    """`scan`.  what: an error calls what is collected so."""
    sliced, count = _sliced(name, xs, length, dim)
    carried, of_carry = flatten(init)
    of_slices = flatten(xs)[1]
    first: list[Any] = []  # what the first step collected

    def step(carried: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
        x = None if xs is None else state.top.built(unflatten(of_slices, slices))
        carry, y = combine(state.top.built(unflatten(of_carry, carried)), x)
        y = () if y is None else y
        if first:
            _require_alike(name, f"{what} in a later step", first[0], y)
        else:
            _require_tensors(name, what, y)
            first.append(y)
        return flatten(carry)[0], flatten(y)[0]

    found = state.top.run_scan(step, carried, sliced, count, reverse) if all(isinstance(x, Tensor) for x in carried) else None
    carried, ys = _written_out(step, carried, sliced, count, reverse, every) if found is None else found
    return unflatten(of_carry, carried), unflatten(flatten(first[0])[1], ys) if ys else None


def _written_out(
    step: Callable[..., Any], carried: list[Any], sliced: list[Any], count: int, reverse: bool, every: int | None
) -> tuple[list[Any], list[Any]]:
    """The loop step by step; every: only the carry before each so-manyth is kept for the backward pass."""
    parts = [x.unbind(0) for x in sliced]
    order = list(size_range(0, count))[:: -1 if reverse else 1]
    rows: list[list[Any]] = []
    for start in size_range(0, count, every or count):
        numbers = order[start : start + (every or count)]
        run = _some_steps if every is None else functools.partial(checkpoint, _some_steps, use_reentrant=False)
        carried, some = run(step, carried, parts, numbers)
        rows += some
    return carried, [stack(list(column)) for column in zip(*(rows[::-1] if reverse else rows), strict=True)]


def _some_steps(
    step: Callable[..., Any], carried: list[Any], parts: list[Any], numbers: Sequence[int]
) -> tuple[list[Any], list[list[Any]]]:
    found = []
    for i in numbers:
        carried, collected = step(carried, [part[i] for part in parts])
        found.append(collected)
    return carried, found


def _require_callable(name: str, **functions: Any) -> None:
    for argument, function in functions.items():
        if not callable(function):
            raise TypeError(f"{name}(): {argument} must be a function, got {type(function).__name__}")


def _truth(name: str, what: str, value: Any) -> bool:
    return bool(_one_element(name, what, value))


def _one_element(name: str, what: str, value: Any) -> Any:
    """A truth value, or a tensor that has one: the conversion refuses those of more elements."""
    if not isinstance(value, Tensor | bool | int | float):
        raise TypeError(f"{name}(): {what} must be a bool or a tensor of one element, got {type(value).__name__}")
    return value


def _sliced(name: str, xs: Any, length: int | None, dim: int) -> tuple[list[Any], int]:
    """The tensors of xs with the dimension in front of which slices are taken, and how many slices there are."""
    if xs is None:
        if length is None:
            raise TypeError(f"{name}(): expected xs, or a length where there are none")
        if length < 1:
            raise ValueError(f"{name}(): length must be at least 1, got {length}")
        return [], length
    leaves = flatten(xs)[0]
    _require_tensors(name, "xs", xs)
    if any(x.ndim == 0 for x in leaves):
        raise ValueError(f"{name}(): xs must have a dimension to take slices of, got a tensor without dimensions")
    sizes = {x.shape[dim] for x in leaves}
    if len(sizes) != 1:
        raise ValueError(f"{name}(): all of xs must have one size along dimension {dim}, got {sorted(sizes)}")
    (count,) = sizes
    if length is not None and length != count:
        raise ValueError(f"{name}(): length is {length}, and xs have {count} slices along dimension {dim}")
    if not count:
        raise ValueError(f"{name}(): xs have no slices along dimension {dim}, so it is not known what the results look like")
    return [x.movedim(dim, 0) if dim else x for x in leaves], count


def _require_tensors(name: str, what: str, value: Any) -> None:
    for leaf in flatten(value)[0]:
        if not isinstance(leaf, Tensor):
            raise TypeError(
                f"{name}(): {what} must be tensors, or tuples, lists or dictionaries of them, got {type(leaf).__name__}"
            )


def _require_alike(name: str, what: str, expected: Any, found: Any) -> None:
    """Of one structure, shapes and dtypes."""
    _require_same(name, what, flatten(expected), flatten(found))


def _require_same(name: str, what: str, expected: tuple[list[Any], Any], found: tuple[list[Any], Any]) -> None:
    """The same of leaves and structures."""
    (leaves, structure), (others, other) = expected, found
    of_tensors = [isinstance(x, Tensor) for x in leaves]
    if structure != other or of_tensors != [isinstance(y, Tensor) for y in others]:
        wanted, got = _structure(unflatten(structure, leaves)), _structure(unflatten(other, others))
        raise TypeError(f"{name}(): {what} must have the structure {wanted}, got {got}")
    for x, y in zip(leaves, others, strict=True):
        if isinstance(x, Tensor) and (x.shape != y.shape or x.dtype is not y.dtype):
            raise RuntimeError(
                f"{name}(): {what} must keep shape and dtype, expected {list(x.shape)} of {x.dtype}, got {list(y.shape)} of {y.dtype}"
            )


def _structure(value: Any) -> str:
    """For messages."""
    if isinstance(value, dict):
        return "{" + ", ".join([f"{key!r}: {_structure(inner)}" for key, inner in value.items()]) + "}"
    if isinstance(value, tuple | list):
        inside = ", ".join([_structure(inner) for inner in value])
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' if len(value) == 1 else ''})"
    return type(value).__name__
