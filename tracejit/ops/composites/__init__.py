"""Primitives that stand for several: one step of eager mode, and of its tape, for a whole layer.

Each block has the body that NumPy evaluates with few passes over memory, the expansion that programs compute, and a vjp.  A
rule that is given bare arrays may take a way of its own through memory; given anything else it is written with primitives, so
it holds to any order.  Composites stay whole in a graph as long as gradients may be taken of it, since they save what eager
mode's nodes save; then the pass `expand` replaces them.

Functions of one element (pointwise.py, with `@fused` of ../fused.py) and windows (windows.py) are composites in eager mode
alone: a recording has their primitives.

Must not know: modules and their parameters, the tape.
Start reading: softmax.py, pointwise.py, then attention.py.
"""

from tracejit.ops.composites import (
    attention,
    convolution,
    leading,
    normalisation,
    norms,
    pointwise,
    products,
    recurrent,
    recurrent_units,
    softmax,
    windows,
)

__all__ = [
    "attention", "convolution", "leading", "normalisation", "norms", "pointwise", "products", "recurrent", "recurrent_units", "softmax",
    "windows",
]  # fmt: skip
