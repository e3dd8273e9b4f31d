"""The world around a function: objects that it reads and changes, and what is done to them between calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.fuzz.arguments import literal_number
from tests.fuzz.maker import Maker, Parameter, TensorSpec
from tests.fuzz.objects import instance, tensor_changes, tensor_text
from tracejit import Tensor

__all__ = ["furnish", "variants"]

Writer = Callable[[Maker], None]


def furnish(m: Maker) -> None:
    """Some objects."""
    for _ in range(m.choose.choice([0, 0, 1, 1, 1, 2, 2, 3])):
        m.weighted(THINGS)(m)


def global_number(m: Maker) -> None:
    name = m.name("k")
    m.outside(f"{name} = {literal_number(m)}", name=name)
    m.declared.append(name)
    m.world.changes += [f"{name} = {literal_number(m)}", f"{name} = {name} + 1"]
    m.world.effects += [f"{name} = {name} + 1", f"{name} *= 2"]


def global_flag(m: Maker) -> None:
    name = m.name("flag")
    m.outside(f"{name} = {m.chance(0.5)}", name=name)
    m.declared.append(name)
    m.world.changes += [f"{name} = not {name}", f"{name} = {name} + 1"]


def global_tensor(m: Maker) -> None:
    name = m.name("w")
    m.outside(f"{name} = {tensor_text(m)}", name=name)
    m.declared.append(name)
    tensor_changes(m, name)
    m.world.changes += [f"{name} = {tensor_text(m)}", f"{name} = {name}.detach() * 2"]
    m.world.effects += [f"{name} = {name}.detach() + 1", f"{name}.data.mul_(0.5)"]


def list_of_things(m: Maker) -> None:
    name = m.name("items")
    items = m.pick([f"{tensor_text(m)}, {tensor_text(m)}", tensor_text(m), "1.5, 2", f"{tensor_text(m)}, 2.0", ""])
    m.outside(f"{name} = [{items}]", name=name)
    m.world.changes += [
        f"{name}.append({tensor_text(m)})",
        f"{name}.append(2.5)",
        f"{name}.clear()",
        f"{name}.reverse()",
        f"{name}[:] = [{tensor_text(m)}, 3]",
    ]
    m.world.effects += [
        f"{name}.append({{x}})",
        f"{name}.append({{n}})",
        f"{name}[:] = [{{x}}]",
        f"{name}.insert(0, {{n}})",
        f"{name} and {name}.pop()",
    ]


def history(m: Maker) -> None:
    name = m.name("log")
    m.outside(f"{name} = []", name=name)
    m.declared.append(name)
    m.world.effects += [
        f"{name}.append({{x}})",
        f"{name}.append({{n}})",
        f"{name}.append({{x}}.shape)",
        f"{name}.extend([{{n}}, 1])",
        f"{name} += [{{x}}.detach()]",
    ]
    m.world.changes += [f"{name}.clear()"]


def table(m: Maker) -> None:
    name = m.name("table")
    m.outside(f"{name} = {{'k': {literal_number(m)}, 'w': {tensor_text(m)}}}", name=name)
    m.world.changes += [
        f"{name}['k'] = {literal_number(m)}",
        f"{name}['w'] = {tensor_text(m)}",
        f"{name}['new'] = 1",
        f"{name}.pop('new', None)",
    ]
    m.world.effects += [
        f"{name}['k'] = {{n}}",
        f"{name}['w'] = {{x}}",
        f"{name}['n'] = {name}.get('n', 0) + 1",
        f"{name}.update(k={{n}})",
        f"{name}.setdefault('first', {{x}})",
    ]


def reached_otherwise(m: Maker) -> None:
    """A bound method that is kept somewhere; an attribute that a descriptor computes; a view of a tensor; a method of a C object."""
    objects = [n for n in m.world.observed if hasattr(m.env.get(n), "scale") and callable(m.env[n].scale)]
    views = [n for n in m.world.observed if isinstance(m.env.get(n), Tensor) and m.env[n].ndim]
    lists = [n for n in m.world.observed if isinstance(m.env.get(n), list)]
    name = m.name("kept")
    if objects and m.chance(0.6):
        method = f"{m.pick(objects)}.scale"
        ways = [
            f"{name} = {method}",
            f"{name} = [{method}]",
            f"{name} = {{'m': {method}}}",
            f"{name} = lambda x, m={method}: m(x)",
        ]
        m.outside(m.pick(ways), name=name)
    elif views and m.chance(0.6):
        if m.outside(f"{name} = {m.pick(views)}{m.pick(['[0]', '[1:]', '.t()', '.view(-1)', '.detach()', ''])}", name=name):
            tensor_changes(m, name)
    elif lists:
        text = m.pick(lists)
        if m.outside(f"{name} = {text}.append"):
            m.world.effects += [f"{name}({{x}})", f"{name}({{n}})"]
    else:
        state = [
            f"class State{name}:",
            f"    value = {literal_number(m)}",
            "    def __get__(self, instance, owner=None):",
            "        return self.value",
        ]
        lines = [*state, f"class Owner{name}:", f"    k = State{name}()", f"{name} = Owner{name}()"]
        if m.outside(*lines, name=name):
            m.numbers.append(f"{name}.k")
            m.world.changes.append(f"State{name}.value = {literal_number(m)}")


def named_tuple(m: Maker) -> None:
    name = m.name("pair")
    m.outside(
        "import collections",
        f"Pair{name} = collections.namedtuple('Pair{name}', 'w n')",
        f"{name} = Pair{name}({tensor_text(m)}, {literal_number(m)})",
        name=name,
    )
    m.declared.append(name)
    m.world.changes += [f"{name} = {name}._replace(n={literal_number(m)})"]


def helper(m: Maker) -> None:
    """A function of the module."""
    name = m.name("help")
    text = m.pick(
        [
            [f"def {name}(x, k=2):", "    return x * k"],
            [f"def {name}(x):", "    if x.ndim > 1:", "        return x.sum(-1)", "    return x + 1"],
            [f"{name} = lambda x: (x * x).tanh()"],
            ["import functools", f"{name} = functools.partial(T.clamp, max=0.7)"],
            [
                f"def make_{name}(k):",
                f"    def {name}(x):",
                "        nonlocal k",
                "        k = k + 1",
                "        return x * k",
                f"    return {name}",
                f"{name} = make_{name}(1)",
            ],
        ]
    )
    if m.outside(*text, name=name):
        m.declared.append(name)
        m.world.changes += [f"{name} = lambda x: x - 1"]
        if name in m.world.observed:
            m.world.observed.remove(name)


def module(m: Maker) -> None:
    """A module of nn, with parameters, in training or not."""
    name = m.name("net")
    size = m.pick([s for s in m.sizes if s] or [3])
    text = m.pick(
        [
            f"T.nn.Linear({size}, 3)",
            f"T.nn.Sequential(T.nn.Linear({size}, 4), T.nn.{m.pick(['ReLU', 'Tanh', 'GELU', 'Sigmoid'])}(), T.nn.Linear(4, 2))",
            f"T.nn.LayerNorm({size})",
            f"T.nn.Sequential(T.nn.Linear({size}, 3), T.nn.Dropout(0.5))",
            f"T.nn.BatchNorm1d({size})",
            f"T.nn.Linear({size}, {size}, bias=False)",
        ]
    )
    if not m.outside("T.manual_seed(1)", f"{name} = {text}", name=name):
        return
    if m.chance(0.2):
        m.outside(f"{name}.register_forward_hook(lambda module, inputs, output: output * 2)")
    if "Dropout" in text or "BatchNorm" in text:
        m.not_replayed("random draws, gradients of outside")
    m.for_torch = False  # initialisation draws other numbers there
    m.world.changes += [
        f"{name}.eval()",
        f"{name}.train()",
        f"{name}.zero_grad()",
        f"for p in {name}.parameters():\n    p.data.mul_(0.5)",
        f"for p in {name}.parameters():\n    p.requires_grad_(not p.requires_grad)",
    ]
    m.parameter_of((m.pick([2, 3]), size), "float32")


def generator(m: Maker) -> None:
    """A stream of random numbers of its own."""
    name = m.name("stream")
    if m.outside(f"{name} = T.Generator().manual_seed({m.choose.randrange(9)})", name=name):
        m.for_torch = False
        m.world.changes += [f"{name}.manual_seed(3)", f"{name} = T.Generator().manual_seed(4)", "T.manual_seed(5)", "T.rand(3)"]


def optimizer(m: Maker) -> None:
    """A model, an optimizer, and a step as an effect."""
    size = m.pick([s for s in m.sizes if s] or [3])
    net, opt = m.name("net"), m.name("opt")
    rule = m.pick(
        [
            f"T.optim.SGD({net}.parameters(), lr=0.1)",
            f"T.optim.SGD({net}.parameters(), lr=0.1, momentum=0.9)",
            f"T.optim.Adam({net}.parameters(), lr=0.01)",
            f"T.optim.AdamW({net}.parameters())",
        ]
    )
    if not m.outside("T.manual_seed(1)", f"{net} = T.nn.Linear({size}, 2)", f"{opt} = {rule}", name=net):
        return
    m.for_torch = False
    a = m.parameter_of((3, size), "float32", "plain")
    loss = m.name("v")
    lines = [
        f"{loss} = ({net}({a}) ** 2).{m.pick(['mean', 'sum'])}()",
        f"{opt}.zero_grad()",
        f"{loss}.backward()",
        f"{opt}.step()",
    ]
    m.world.effects += ["\n".join(lines)] * 6
    m.world.changes += [
        f"for group in {opt}.param_groups:\n    group['lr'] *= 0.5",
        f"{opt}.zero_grad()",
        f"{net}.weight.requires_grad_(False)",
    ]


THINGS: Sequence[tuple[float, Writer]] = (
    (3, global_number), (1, global_flag), (3, global_tensor), (2, list_of_things), (3, history), (2, table), (5, instance),
    (1, named_tuple), (1.5, helper), (1.5, module), (0.8, optimizer), (1.5, reached_otherwise), (0.8, generator),
)  # fmt: skip


# -- arguments of other calls
def variants(m: Maker, parameters: Sequence[Parameter]) -> list[Parameter]:
    """Arguments for a further call: the same with other numbers, or changed in shape, dtype, layout, gradient, or by sharing memory."""
    kind = m.weighted(
        [
            (5, "numbers"),
            (3, "shape"),
            (1.2, "dtype"),
            (2, "layout"),
            (2, "grad"),
            (2, "plain values"),
            (1, "shared"),
            (0.7, "kind"),
            (1.5, "same"),
        ]
    )
    made = [replace(p) for p in parameters]
    tensors = [p for p in made if p.spec is not None and not p.is_fixed]
    if kind == "shape" and tensors:
        _resize(m, tensors)
    for p in made:
        spec = p.spec
        if spec is None:
            if kind == "plain values" and p.others:
                p.text = m.pick(p.others)
            continue
        if kind != "same":
            spec = _with(spec, seed=m.choose.randrange(1, 90))
        if kind == "dtype" and not p.is_fixed and m.chance(0.5):
            spec = _with(spec, dtype=m.dtype())
        if kind == "layout" and m.chance(0.6):
            spec = _with(
                spec, layout=m.pick(["plain", "transposed", "strided", "expanded", "offset", "last_strided", "leaf_view"])
            )
        if kind == "grad" and m.chance(0.6):
            spec = _with(spec, grad=not spec.grad)
        if kind == "kind" and not isinstance(spec.kind, int):
            spec = _with(spec, kind=m.pick(["special", "wide", "positive", "plain", "unit"]))
        p.spec = spec
    if kind == "shared" and len(tensors) > 1:
        m.not_replayed("arguments that share memory")
        one, other = m.choose.sample(tensors, 2)
        if made.index(one) > made.index(other):
            one, other = other, one
        other.spec, other.text = (
            None,
            m.pick(
                [
                    one.name,
                    one.name,
                    f"{one.name}.detach()",
                    f"{one.name}.t()",
                    f"{one.name}[0:]",
                    f"{one.name}.view(-1)",
                    f"{one.name}[..., 1:]",
                ]
            ),
        )
    return made


def _resize(m: Maker, tensors: list[Parameter]) -> None:
    """One size changed in all tensors that have it; or one of one tensor."""
    sizes = sorted({s for p in tensors for s in (p.spec.shape if p.spec else ()) if s > 1})
    if not sizes:
        return
    old, new = m.pick(sizes), m.pick([1, 2, 3, 4, 6, 0, 8])
    only = m.pick(tensors) if m.chance(0.3) else None
    for p in tensors:
        if p.spec and only in (None, p):
            p.spec = _with(p.spec, shape=tuple(new if s == old else s for s in p.spec.shape))


def _with(spec: TensorSpec, **changes: object) -> TensorSpec:
    return TensorSpec(**{**spec.__dict__, **changes})
