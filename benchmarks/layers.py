"""Rows about the eager engine alone: the layers that networks are made of, forward and backward.

Each runs the library's own composition of the layer, so what is measured is how many operations that is, and what each of them costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workload import Side, Transform, Workload, as_arrays

__all__ = ["ROWS"]

BATCH, LENGTH, CHANNELS, HEADS = 8, 64, 64, 4
STEPS, INPUTS, HIDDEN = 32, 32, 64
IMAGE = (16, 16, 16, 16)
FILTERS = 32
CLASSES = 512


def _normal(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def _fill(framework: Any, module: Any) -> Any:
    """The module with parameters that do not depend on the framework's generator."""
    with framework.no_grad():
        for i, parameter in enumerate(module.parameters()):
            scale = parameter.shape[-1] ** -0.5 if parameter.ndim > 1 else 0.1
            parameter.copy_(framework.tensor(_normal(*parameter.shape, seed=i + 1, scale=scale)))
    return module


def _trained(framework: Any, transform: Transform, module: Any, x: np.ndarray, forward: Callable[[Any, Any], Any]) -> Side:
    """forward(module, x), weighted and added up, and the gradients of x and of all parameters."""
    _fill(framework, module)
    given = framework.tensor(x).requires_grad_()
    parameters = list(module.parameters())
    weighting = framework.tensor(_normal(*forward(module, given).shape, seed=99))

    @transform
    def forward_and_backward() -> Any:
        given.grad = None
        for parameter in parameters:
            parameter.grad = None
        value = (forward(module, given) * weighting).sum()
        value.backward()
        return value

    return Side(
        forward_and_backward,
        lambda value: as_arrays((value, given.grad, *[p.grad for p in parameters])),
        forward_and_backward,
    )


def _scaled_products(framework: Any, transform: Transform) -> Side:
    q, k, v, weighting = (framework.tensor(_normal(BATCH, HEADS, LENGTH, CHANNELS // HEADS, seed=seed)) for seed in range(4))
    for x in (q, k, v):
        x.requires_grad_()

    @transform
    def forward_and_backward() -> Any:
        q.grad = k.grad = v.grad = None
        out = framework.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        value = (out * weighting).sum()
        value.backward()
        return value

    return Side(forward_and_backward, lambda value: as_arrays((value, q.grad, k.grad, v.grad)), forward_and_backward)


def _attention(framework: Any, transform: Transform) -> Side:
    module = framework.nn.MultiheadAttention(CHANNELS, HEADS, batch_first=True)
    x = _normal(BATCH, LENGTH, CHANNELS)
    return _trained(framework, transform, module, x, lambda m, given: m(given, given, given, need_weights=False)[0])


def _lstm(framework: Any, transform: Transform) -> Side:
    return _trained(
        framework, transform, framework.nn.LSTM(INPUTS, HIDDEN), _normal(STEPS, BATCH, INPUTS), lambda m, given: m(given)[0]
    )


def _convolution(framework: Any, transform: Transform) -> Side:
    nn = framework.nn
    module = nn.Sequential(nn.Conv2d(IMAGE[1], FILTERS, 3, padding=1, bias=False), nn.BatchNorm2d(FILTERS), nn.ReLU())
    return _trained(framework, transform, module, _normal(*IMAGE), lambda m, given: m(given))


def _dropout(framework: Any, transform: Transform) -> Side:
    x = framework.tensor(1 + np.abs(_normal(BATCH * LENGTH, CHANNELS))).requires_grad_()

    @transform
    def forward_and_backward() -> Any:
        x.grad = None
        out = framework.nn.functional.dropout(x, 0.5, True)
        out.sum().backward()
        return out

    def results(out: Any) -> list[np.ndarray]:
        """Which elements are kept differs between frameworks: what does not is how many, about, and what becomes of them."""
        dropped, values, gradient = as_arrays((out, x, x.grad))
        return [np.float32((dropped == 0).mean() + 1), dropped - values * gradient, np.unique(gradient)]

    return Side(forward_and_backward, results, forward_and_backward)


def _cross_entropy(framework: Any, transform: Transform) -> Side:
    logits = framework.tensor(_normal(BATCH * LENGTH, CLASSES)).requires_grad_()
    target = framework.tensor(np.random.default_rng(1).integers(0, CLASSES, BATCH * LENGTH))

    @transform
    def forward_and_backward() -> Any:
        logits.grad = None
        loss = framework.nn.functional.cross_entropy(logits, target)
        loss.backward()
        return loss

    return Side(forward_and_backward, lambda loss: as_arrays((loss, logits.grad)), forward_and_backward)


def _row(name: str, title: str, build: Any, peer_tolerance: float = 1e-3) -> Workload:
    inside = "nothing: the eager engine alone, forward and backward()"
    return Workload(f"eager_{name}", f"eager {title}", inside, build, peer_tolerance=peer_tolerance, compiled=False)


ROWS = (
    _row("scaled_products", f"scaled_dot_product_attention, {BATCH}x{HEADS}x{LENGTH}x{CHANNELS // HEADS}", _scaled_products),
    _row("attention", f"MultiheadAttention, {BATCH}x{LENGTH}x{CHANNELS}", _attention),
    _row("lstm", f"LSTM, {STEPS} steps of {BATCH}x{INPUTS}, {HIDDEN} hidden", _lstm),
    _row("convolution", f"Conv2d 3x3, BatchNorm2d and ReLU, {'x'.join(map(str, IMAGE))} to {FILTERS}", _convolution),
    _row("dropout", f"dropout, {BATCH * LENGTH}x{CHANNELS}", _dropout, 0.05),
    _row("cross_entropy", f"cross_entropy, {BATCH * LENGTH} of {CLASSES} classes", _cross_entropy),
)
