"""gradcheck and gradgradcheck: gradients compared with finite differences, entry by entry.

For functions of float64 tensors with few elements: each element of each input costs two evaluations, each element of each output
one backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracejit.autograd.api import grad, new_tensor

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]

Function = Callable[..., Any]


class GradcheckError(RuntimeError):
    """A gradient differs from its finite difference."""


def _as_tuple(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, tuple | list) else (x,)


def _is_differentiable(x: Any) -> bool:
    return hasattr(x, "requires_grad") and bool(x.requires_grad)


def _fresh(array: np.ndarray[Any, Any]) -> Any:
    return new_tensor(array).requires_grad_()


def _outputs(function: Function, inputs: Sequence[Any]) -> list[Any]:
    """The floating-point outputs."""
    return [y for y in _as_tuple(function(*inputs)) if hasattr(y, "dtype") and y.dtype.is_floating_point]


def _values(tensors: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    return [np.array(y.detach().numpy()) for y in tensors]


def _numerical(
    function: Function, arguments: list[Any], i: int, array: np.ndarray[Any, Any], eps: float
) -> list[np.ndarray[Any, Any]]:
    """Per output the matrix (elements of the input, elements of the output) of central differences."""
    rows: list[list[np.ndarray[Any, Any]]] = []
    for position in np.ndindex(*array.shape):
        ends = []
        for step in (eps, -eps):
            moved = array.copy()
            moved[position] += step
            ends.append(_values(_outputs(function, [*arguments[:i], _fresh(moved), *arguments[i + 1 :]])))
        rows.append([(a - b).reshape(-1) / (2.0 * eps) for a, b in zip(*ends, strict=True)])
    return [np.array(column) for column in zip(*rows, strict=True)]


def _analytical(outputs: list[Any], wanted: list[Any], k: int) -> list[np.ndarray[Any, Any]]:
    """Per input the matrix (elements of the input, elements of output k) of gradients."""
    y = outputs[k]
    columns: list[list[np.ndarray[Any, Any]]] = [[] for _ in wanted]
    for position in np.ndindex(*y.shape):
        unit = np.zeros(tuple(y.shape), y.dtype.numpy)
        unit[position] = 1.0
        if y.requires_grad:
            gradients = grad(y, wanted, new_tensor(unit), retain_graph=True, allow_unused=True)
        else:
            gradients = (None,) * len(wanted)
        for column, x, g in zip(columns, wanted, gradients, strict=True):
            if g is not None and tuple(g.shape) != tuple(x.shape):
                raise GradcheckError(f"gradcheck(): a gradient has shape {list(g.shape)}, its input {list(x.shape)}")
            column.append(np.zeros(x.numel()) if g is None else np.array(g.detach().numpy()).reshape(-1))
    return [np.array(c).T if c else np.zeros((x.numel(), 0)) for c, x in zip(columns, wanted, strict=True)]


def gradcheck(
    func: Function,
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Whether the gradients of `func` with respect to the inputs that require grad agree with central differences.

    A backward pass that is made twice must give gradients that differ by at most nondet_tol.  Every element is compared, whatever fast_mode
    says; gradients always have their inputs' dtypes, and there are no batched, undefined or masked ones to check.

    Raises NotImplementedError for check_forward_ad: there is no forward mode.
    Raises ValueError if no input requires grad; GradcheckError (unless `raise_exception` is false) where they do not agree."""
    if check_forward_ad:
        raise NotImplementedError("gradcheck(): check_forward_ad=True is not supported; there is no forward mode")
    arguments = list(_as_tuple(inputs))
    positions = [i for i, x in enumerate(arguments) if _is_differentiable(x)]
    if not positions:
        raise ValueError(
            "gradcheck(): expects at least one input tensor to require gradient, but none of them have requires_grad=True"
        )
    for i in positions:
        array = np.array(arguments[i].detach().numpy())
        arguments[i] = _fresh(array)
    outputs = _outputs(func, arguments)
    expected = {i: _numerical(func, arguments, i, np.array(arguments[i].detach().numpy()), eps) for i in positions}
    for k, y in enumerate(outputs):
        if not check_backward_ad:
            break
        differentiable = [arguments[i] for i in positions]
        actual = _analytical(outputs, differentiable, k)
        again = _analytical(outputs, differentiable, k)
        if any(not np.allclose(a, b, rtol=0.0, atol=nondet_tol, equal_nan=True) for a, b in zip(actual, again, strict=True)):
            if not raise_exception:
                return False
            raise GradcheckError(
                "gradcheck(): Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives "
                f"different values, although analytical gradient matches numerical gradient. The tolerance was {nondet_tol}."
            )
        for i, matrix in zip(positions, actual, strict=True):
            if not arguments[i].numel() or not y.numel():
                continue
            wanted = expected[i][k]
            if not np.allclose(matrix, wanted, rtol=rtol, atol=atol, equal_nan=True):
                if not raise_exception:
                    return False
                raise GradcheckError(
                    f"gradcheck(): the Jacobian of output {k} with respect to input {i} differs from finite differences by "
                    f"{np.nanmax(np.abs(matrix - wanted)):.3g}\nnumerical:\n{wanted}\nanalytical:\n{matrix}"
                )
    return True


def gradgradcheck(
    func: Function,
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Whether second derivatives agree with differences of first ones: gradcheck of the gradient as a function of inputs and cotangents.

    The options are those of gradcheck.  Raises NotImplementedError for check_fwd_over_rev.

    grad_outputs: the cotangents, one per floating-point output; random ones with a fixed seed if None."""
    if check_fwd_over_rev:
        raise NotImplementedError("gradgradcheck(): check_fwd_over_rev=True is not supported; there is no forward mode")
    if not check_rev_over_rev:
        return True
    arguments = list(_as_tuple(inputs))
    positions = [i for i, x in enumerate(arguments) if _is_differentiable(x)]
    outputs = _outputs(func, arguments)
    if grad_outputs is None:
        random = np.random.default_rng(0)
        cotangents = [_fresh(random.standard_normal(tuple(y.shape)).astype(y.dtype.numpy)) for y in outputs]
    else:
        cotangents = [_fresh(np.array(g.detach().numpy())) for g in _as_tuple(grad_outputs)]

    def first_derivative(*values: Any) -> tuple[Any, ...]:
        own, given = values[: len(arguments)], values[len(arguments) :]
        ys = _outputs(func, own)
        linked = [(y, g) for y, g in zip(ys, given, strict=True) if y.requires_grad]
        wanted = [own[i] for i in positions]
        gradients = grad([y for y, _ in linked], wanted, [g for _, g in linked], create_graph=True, allow_unused=True)
        return tuple(g for g in gradients if g is not None)

    return gradcheck(
        first_derivative,
        (*arguments, *cotangents),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
    )
