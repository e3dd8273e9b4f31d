"""Pictures of the gallery: each draws what functions of one example compute.  They are made in a build, within a second or two.

Start reading: `PICTURES`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt

import tracejit

SETTINGS = {"svg.hashsalt": "tracejit", "figure.figsize": (7, 3), "axes.spines.top": False, "axes.spines.right": False}
"""Of matplotlib; the salt makes the same picture the same file."""


def module_of(file: Path) -> Any:
    """The module of an example, which is in no package."""
    specification = importlib.util.spec_from_file_location(f"gallery_{file.stem}", file)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def derivatives_of_the_curve(example: Any, axes: Any) -> str:
    """The curve of the example, with two derivatives; the caption."""
    x = tracejit.linspace(-5, 5, 300).requires_grad_()
    (slope,) = tracejit.autograd.grad(example.curve(x), x, create_graph=True)
    (curvature,) = tracejit.autograd.grad(slope.sum(), x)
    values = [example.curve(part).item() for part in x.detach()]
    for label, y in (("curve", values), ("first derivative", slope.detach()), ("second derivative", curvature)):
        axes.plot(x.detach().numpy(), tracejit.as_tensor(y).numpy(), label=label)
    return "The function of the example and its derivatives, all by `autograd.grad`."


def polynomial_with_its_gradient(example: Any, axes: Any) -> str:
    """The polynomial, with the gradient that its own backward pass gives; the caption."""
    x = tracejit.linspace(-1.1, 1.1, 200).requires_grad_()
    y = example.LegendrePolynomial3.apply(x)
    y.sum().backward()
    axes.plot(x.detach().numpy(), y.detach().numpy(), label="value")
    axes.plot(x.detach().numpy(), x.grad.numpy(), label="gradient")
    return "The polynomial of the example, and the gradient that its own `backward` gives."


def two_branches(example: Any, axes: Any) -> str:
    """What the network gives along a line, by the branch that it takes; the caption."""
    tracejit.manual_seed(0)
    model = example.ConditionalNet()
    direction = tracejit.randn(1, 8)
    places = tracejit.linspace(-3, 3, 241)
    with tracejit.no_grad():
        outputs = [model(place * direction)[0, 0].item() for place in places]
        positive = [bool(model.first(place * direction).sum() > 0) for place in places]
    for branch, label in ((True, "first branch: tanh(h)"), (False, "second branch: -h")):
        chosen = [(p, y) for p, y, taken in zip(places.tolist(), outputs, positive, strict=True) if taken is branch]
        axes.plot(*zip(*chosen, strict=True), ".", markersize=3, label=label)
    return "What the network of the example gives for inputs on a line. Both branches are compiled."


PICTURES: dict[str, Callable[[Any, Any], str]] = {
    "first_steps": derivatives_of_the_curve,
    "custom_function": polynomial_with_its_gradient,
    "conditional_net": two_branches,
}
"""What draws the picture of an example."""


def draw(name: str, file: Path, folder: Path) -> str | None:
    """Draw the picture of an example into `folder`, as name.svg; the caption, None where there is no picture."""
    if name not in PICTURES:
        return None
    with matplotlib.rc_context(SETTINGS):
        figure, axes = plt.subplots(layout="constrained")
        caption = PICTURES[name](module_of(file), axes)
        axes.legend(frameon=False)
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        plt.close(figure)
    return caption
