"""Messages name what the user called, what was given and what was expected; errors and warnings are of PyTorch's types: the table of
tests/mistakes.py."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from mistakes import MISTAKES

import tracejit
from tracejit.core.missing import nearest


def error_of(program: str, library: Any) -> Exception:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception) as raised:
            eval(program, {"torch": library})
    return raised.value


@pytest.mark.parametrize(("program", "kind", "words"), MISTAKES, ids=[program for program, _, _ in MISTAKES])
def test_mistakes_are_explained(program: str, kind: str, words: list[str]) -> None:
    error = error_of(program, tracejit)
    assert type(error).__name__ == kind
    for word in words:
        assert any(alternative in str(error) for alternative in word.split("|")), f"{word!r} is missing in {error}"
    assert len(str(error)) < 300


def test_mistakes_are_of_the_types_that_pytorch_raises() -> None:
    torch = pytest.importorskip("torch")
    different = []
    for program, kind, _ in MISTAKES:
        theirs = type(error_of(program, torch)).__name__.lstrip("_") if "lu_slove" not in program else kind
        if theirs != kind:
            different.append((program, kind, theirs))
    assert not different
    assert len(MISTAKES) >= 60


@pytest.mark.parametrize("wait", [False, True])
def test_mistakes_are_explained_in_compiled_calls(wait: bool) -> None:
    loss = tracejit.compile(tracejit.nn.CrossEntropyLoss(), wait=True)
    rows = tracejit.compile(tracejit.nn.Embedding(4, 2), wait=True)
    for target in ([0, 1], [2, 0], [0, 2]) if wait else ():
        loss(tracejit.ones(2, 3), tracejit.tensor(target)), rows(tracejit.tensor(target))
    with pytest.raises(IndexError, match=r"cross_entropy\(\): target 7 is out of range"):
        loss(tracejit.ones(2, 3), tracejit.tensor([0, 7]))
    with pytest.raises(IndexError, match=r"embedding\(\): index 4 is out of range"):
        rows(tracejit.tensor([0, 4]))


def warnings_of(function: Any) -> list[tuple[str, str]]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        function()
    return [(w.category.__name__, str(w.message)) for w in told if w.filename == __file__]


def read_gradient(library: Any, retained: bool) -> None:
    x = library.ones(2, requires_grad=True)
    y = x * 2
    if retained:
        y.retain_grad()
    y.sum().backward()
    y.grad, x.grad, y.detach().grad


def step_both(library: Any, first: str) -> None:
    model = library.nn.Linear(2, 2)
    optimizer = library.optim.SGD(model.parameters(), lr=0.1)
    scheduler = library.optim.lr_scheduler.StepLR(optimizer, 3)
    for _ in range(3):
        model(library.ones(1, 2)).sum().backward()
        for step in (scheduler, optimizer) if first == "scheduler" else (optimizer, scheduler):
            step.step()


CASES: list[tuple[Any, Any, str]] = [
    (read_gradient, False, "retain_grad"),
    (read_gradient, True, ""),
    (step_both, "scheduler", "optimizer.step()"),
    (step_both, "optimizer", ""),
]


@pytest.mark.parametrize(("function", "how", "word"), CASES)
def test_warnings_of_training_are_given(function: Any, how: Any, word: str) -> None:
    told = warnings_of(lambda: function(tracejit, how))
    assert [kind for kind, _ in told] == (["UserWarning"] if word else [])
    assert all(word in text for _, text in told)


def test_warnings_of_training_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    for function, how, _ in CASES:
        ours, theirs = (warnings_of(lambda library=library: function(library, how)) for library in (tracejit, torch))  # type: ignore[misc]
        assert [kind for kind, _ in ours] == [kind for kind, _ in theirs]


@pytest.mark.parametrize("first", ["scheduler", "optimizer"])
def test_compiled_training_steps_warn_of_the_order_once_and_record_nothing_for_it(first: str) -> None:
    model = tracejit.nn.Linear(2, 2)
    optimizer = tracejit.optim.SGD(model.parameters(), lr=0.1)
    scheduler = tracejit.optim.lr_scheduler.StepLR(optimizer, 30)

    @tracejit.compile(wait=True)
    def step(x: Any) -> Any:
        model(x).sum().backward()
        for one in (scheduler, optimizer) if first == "scheduler" else (optimizer, scheduler):
            one.step()
        optimizer.zero_grad()

    told = warnings_of(lambda: [step(tracejit.ones(1, 2)) for _ in range(4)])
    assert [kind for kind, _ in told] == (["UserWarning"] if first == "scheduler" else [])
    assert step.stats.compiled_calls == 3 and scheduler.last_epoch == 4


def test_names_are_near_if_a_slip_of_the_fingers_explains_them() -> None:
    assert nearest("geqrf", dir(tracejit)) == "nothing here has a name like it"
    names = [
        "Linear",
        "Conv2d",
        "ConvTranspose2d",
        "cross_entropy",
        "binary_cross_entropy",
        "erf",
        "ger",
        "batch_norm",
        "_linear",
    ]
    for name, near in {
        "Linaer": "Linear",
        "linear": "Linear",
        "cross_entrpy": "cross_entropy",
        "batchnorm": "batch_norm",
    }.items():
        assert nearest(name, names) == f"the nearest names are {near}"
    assert nearest("ConvT", names) == "the nearest names are ConvTranspose2d"
    for name in ("geqrf", "ctc", "x", "entropy"):
        assert nearest(name, names) == "nothing here has a name like it"
