"""Statements about gradients and the state of tensors."""

from __future__ import annotations

from tests.fuzz.expressions import expression, number
from tests.fuzz.maker import Maker

__all__ = ["fresh_gradient", "gradient", "hook", "tensor_state"]


def tensor_state(m: Maker) -> None:
    """requires_grad, data, attributes, gradients of a tensor."""
    x = m.tensor(lambda t: t.dtype.is_floating_point) or m.floating()
    m.emit(
        m.pick(
            [
                f"{x}.requires_grad_()",
                f"{x}.tag = {number(m)}",
                f"{x}.data = {x}.data * 2",
                f"{x}.grad = None",
                f"{x}.data.add_(1)",
                f"{x}.data.copy_({x}.data * 0.5)",
                f"{x}.detach_()",
                f"{x}.requires_grad = False",
                f"{x}.grad = T.ones_like({x}).detach()",
            ]
        )
    )
    m.not_replayed("state of a tensor")


def gradient(m: Maker) -> None:
    """autograd.grad or backward() in the function."""
    x = m.tensor(lambda t: t.requires_grad and t.numel() > 0)
    leaf = m.tensor(lambda t: t.requires_grad and t.is_leaf)
    if x is None or leaf is None:
        return
    if m.chance(0.6):
        graph = m.pick(["", ", create_graph=True", ", retain_graph=True"])
        name = m.name("v")
        if (
            m.emit(f"({name},) = T.autograd.grad(({x} * {x}).sum(), [{leaf}], allow_unused=True{graph})")
            and m.env[name] is not None
        ):
            m.names.append(name)
    else:
        m.emit(f"({x} * 2).sum().backward({m.pick(['', 'retain_graph=True'])})")
        if m.chance(0.5):
            m.emit(f"with T.no_grad():\n    {leaf} -= 0.1 * {leaf}.grad")
            m.emit(f"{leaf}.grad = None")
    m.not_replayed("gradients of outside")


def fresh_gradient(m: Maker) -> None:
    """The gradient of an expression at a leaf made inside."""
    x = m.tensor(lambda t: t.dtype.is_floating_point) or m.floating()
    leaf, name = m.name("v"), m.name("v")
    lines = [f"{leaf} = {x}.detach().requires_grad_()"]

    def inner() -> None:
        m.runs(lines[0])
        m.names.append(leaf)
        m.assign(expression(m))
        m.assign(expression(m))
        m.lines.append(
            f"({name},) = T.autograd.grad({expression(m)}.sum() + ({leaf} * {leaf}).sum(), [{leaf}]{m.pick(['', ', create_graph=True'])})"
        )

    lines += m.block(inner, conditional=False)
    if m.emit(*lines):
        m.names += [leaf, name]


def hook(m: Maker) -> None:
    x = m.tensor(lambda t: t.requires_grad)
    if x is not None:
        m.emit(
            m.pick([f"{x}.register_hook(lambda g: {m.pick(['g * 2', 'None', 'g + 1', 'g.clamp(-1, 1)'])})", f"{x}.retain_grad()"])
        )
        m.not_replayed("hooks")
