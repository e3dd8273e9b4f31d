"""Losses, as functions and as modules."""

from __future__ import annotations

import math

import numpy as np
import pytest
from against_torch import agree, classes, numbers

import tracejit
from tracejit import functional as F
from tracejit import nn

REDUCTIONS = ["mean", "sum", "none"]


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_regression_losses_agree_with_torch(reduction: str) -> None:
    x, y = numbers(4, 3), numbers(4, 3, seed=1)
    agree("mse_loss", x, y, reduction=reduction)
    agree("l1_loss", x, y, reduction=reduction)
    agree("smooth_l1_loss", x, y, reduction=reduction, beta=0.7)
    agree("smooth_l1_loss", x, y, reduction=reduction, beta=0.0)
    agree("huber_loss", x, y, reduction=reduction, delta=0.6)
    agree("gaussian_nll_loss", x, y, numbers(4, 3, seed=2, low=0.1), reduction=reduction, full=True)
    agree("poisson_nll_loss", x, numbers(4, 3, seed=2, low=0.0, high=5.0), reduction=reduction)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_agrees_with_torch(reduction: str, smoothing: float, weighted: bool) -> None:
    options = {"reduction": reduction, "label_smoothing": smoothing}
    weight = numbers(5, seed=9, low=0.1) if weighted else None

    def check(x: np.ndarray, y: np.ndarray, **more: object) -> None:
        torch = pytest.importorskip("torch")
        ours, theirs = tracejit.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        loss = F.cross_entropy(ours, tracejit.tensor(y), None if weight is None else tracejit.tensor(weight), **options, **more)
        expected = torch.nn.functional.cross_entropy(
            theirs, torch.tensor(y), None if weight is None else torch.tensor(weight), **options, **more
        )
        np.testing.assert_allclose(loss.detach().numpy(), expected.detach().numpy(), rtol=1e-12, atol=1e-12)
        loss.sum().backward()
        expected.sum().backward()
        np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-12, atol=1e-12)

    target = classes(6, count=5)
    check(numbers(6, 5), target)
    check(numbers(6, 5), target, ignore_index=int(target[0]))
    check(numbers(2, 5, 3, 2), classes(2, 3, 2, count=5), ignore_index=2)
    check(numbers(5), classes(count=5))
    probabilities = numbers(6, 5, seed=3, low=0.0, high=1.0)
    check(numbers(6, 5), probabilities / probabilities.sum(1, keepdims=True))


def test_cross_entropy_has_known_values() -> None:
    logits = tracejit.tensor([[0.0, 0.0], [1000.0, 0.0]], requires_grad=True)
    loss = F.cross_entropy(logits, tracejit.tensor([0, 1]), reduction="none")
    np.testing.assert_allclose(loss.detach().numpy(), [math.log(2), 1000.0], rtol=1e-6)
    F.cross_entropy(logits, tracejit.tensor([0, 1])).backward()
    np.testing.assert_allclose(logits.grad.numpy(), [[-0.25, 0.25], [0.5, -0.5]])


def test_targets_outside_the_classes_are_index_errors() -> None:
    logits = tracejit.zeros(2, 3)
    for bad in (3, -1):
        with pytest.raises(IndexError, match="out of range"):
            F.cross_entropy(logits, tracejit.tensor([0, bad]))


def test_ignored_targets_count_nothing_wherever_they_lie() -> None:
    logits = tracejit.tensor(numbers(3, 4), requires_grad=True)
    loss = F.cross_entropy(logits, tracejit.tensor([1, -100, 2]))
    loss.backward()
    two = F.cross_entropy(logits.detach()[[0, 2]], tracejit.tensor([1, 2]))
    assert loss.item() == pytest.approx(two.item(), rel=1e-14)
    assert not logits.grad[1].numpy().any()
    assert math.isnan(F.cross_entropy(logits, tracejit.tensor([-100] * 3)).item())


def test_shapes_and_dtypes_of_targets_are_checked() -> None:
    logits = tracejit.zeros(2, 3)
    for function in (F.cross_entropy, F.nll_loss):
        with pytest.raises(ValueError, match=r"batch_size \(2\) to match target batch_size \(3\)"):
            function(logits, tracejit.tensor([0, 1, 2]))
    with pytest.raises(RuntimeError, match=r"target of shape \[2\]"):
        F.cross_entropy(logits, tracejit.zeros(2, 1, dtype=tracejit.int64))
    with pytest.raises(RuntimeError, match="Found dtype int64 but expected float32"):
        F.binary_cross_entropy(tracejit.tensor([0.5]), tracejit.tensor([1]))
    for bad in (3, -1):
        with pytest.raises(RuntimeError, match="Class values must be non-negative and smaller"):
            F.one_hot(tracejit.tensor([bad]), 3)
    with pytest.raises(RuntimeError, match="to be int64, got float32"):
        F.cross_entropy(logits, tracejit.zeros(2))
    with pytest.raises(RuntimeError, match="floating-point target for class probabilities"):
        F.cross_entropy(logits, tracejit.zeros(2, 3, dtype=tracejit.int64))
    with pytest.raises(RuntimeError, match="one element for each of the 3 classes"):
        F.nll_loss(logits, tracejit.tensor([0, 1]), tracejit.ones(2))
    with pytest.raises(RuntimeError, match="label_smoothing must be between"):
        F.cross_entropy(logits, tracejit.tensor([0, 1]), label_smoothing=1.5)
    with pytest.raises(ValueError, match="not a valid value for reduction"):
        F.mse_loss(logits, logits, reduction="average")


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nll_loss_agrees_with_torch(reduction: str) -> None:
    agree("nll_loss", numbers(4, 3), classes(4, count=3), reduction=reduction)
    agree("nll_loss", numbers(2, 3, 5), classes(2, 5, count=3), reduction=reduction, ignore_index=1)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_losses_agree_with_torch(reduction: str) -> None:
    target = numbers(4, 3, seed=1, low=0.0, high=1.0)
    agree("binary_cross_entropy_with_logits", numbers(4, 3), target, reduction=reduction)
    agree("binary_cross_entropy", numbers(4, 3, seed=2, low=0.05, high=0.95), target, reduction=reduction)
    agree("soft_margin_loss", numbers(4, 3), np.sign(numbers(4, 3, seed=2)), reduction=reduction, gradients=False)


def test_binary_cross_entropy_of_logits_is_stable_and_takes_weights() -> None:
    logits = tracejit.tensor([1e4, -1e4, 0.0], requires_grad=True)
    target = tracejit.tensor([0.0, 1.0, 1.0])
    loss = F.binary_cross_entropy_with_logits(logits, target, pos_weight=tracejit.tensor(2.0), reduction="none")
    loss.sum().backward()
    np.testing.assert_allclose(loss.detach().numpy(), [1e4, 2e4, 2 * math.log(2)], rtol=1e-6)
    np.testing.assert_allclose(logits.grad.numpy(), [1.0, -2.0, -1.0], rtol=1e-6)
    with pytest.raises(ValueError, match="shape of input"):
        F.binary_cross_entropy_with_logits(logits, tracejit.zeros(2))


def test_binary_cross_entropy_of_certain_probabilities_is_bounded() -> None:
    p = tracejit.tensor([0.0, 1.0, 0.0], requires_grad=True)
    loss = F.binary_cross_entropy(p, tracejit.tensor([1.0, 0.0, 0.0]), reduction="none")
    loss.sum().backward()
    assert loss.tolist() == [100.0, 100.0, 0.0]
    assert np.isfinite(p.grad.numpy()).all()


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize("reduction", [*REDUCTIONS, "batchmean"])
def test_kl_div_agrees_with_torch(reduction: str) -> None:
    target = numbers(4, 3, seed=1, low=0.0, high=1.0)
    target[0, 0] = 0.0
    agree("kl_div", numbers(4, 3), numbers(4, 3, seed=1), reduction=reduction, log_target=True)
    x = numbers(4, 3)
    torch = pytest.importorskip("torch")
    ours = F.kl_div(tracejit.tensor(x), tracejit.tensor(target), reduction=reduction)
    theirs = torch.nn.functional.kl_div(torch.tensor(x), torch.tensor(target), reduction=reduction)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-12)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_margin_losses_agree_with_torch(reduction: str) -> None:
    signs = np.sign(numbers(4, seed=5))
    a, b, c = numbers(4, 3), numbers(4, 3, seed=1), numbers(4, 3, seed=2)
    agree("margin_ranking_loss", a[:, 0], b[:, 0], signs, margin=0.2, reduction=reduction, gradients=False)
    agree("hinge_embedding_loss", a[:, 0], signs, margin=0.5, reduction=reduction, gradients=False)
    agree("cosine_embedding_loss", a, b, signs, margin=0.1, reduction=reduction, gradients=False)
    agree("multi_margin_loss", a, classes(4, count=3), p=2, margin=0.8, reduction=reduction)
    agree("triplet_margin_loss", a, b, c, margin=0.7, swap=True, reduction=reduction)


CRITERIA = [
    ("CrossEntropyLoss", {"label_smoothing": 0.1}, "classes"), ("NLLLoss", {"ignore_index": 1}, "classes"), ("MSELoss", {}, "numbers"),
    ("L1Loss", {"reduction": "sum"}, "numbers"), ("SmoothL1Loss", {"beta": 0.5}, "numbers"), ("HuberLoss", {"delta": 0.5}, "numbers"),
    ("BCEWithLogitsLoss", {}, "share"), ("KLDivLoss", {"reduction": "batchmean"}, "share"), ("PoissonNLLLoss", {}, "share"),
    ("SoftMarginLoss", {}, "signs"), ("HingeEmbeddingLoss", {"margin": 0.5}, "signs"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options", "target"), CRITERIA, ids=[c[0] for c in CRITERIA])
def test_modules_of_losses_agree_with_torch(name: str, options: dict[str, object], target: str) -> None:
    torch = pytest.importorskip("torch")
    y = {
        "classes": classes(4, count=3), "numbers": numbers(4, 3, seed=1), "share": numbers(4, 3, seed=1, low=0.1, high=1.0),
        "signs": np.sign(numbers(4, 3, seed=1)),
    }[target]  # fmt: skip
    x = numbers(4, 3)
    ours = getattr(nn, name)(**options)(tracejit.tensor(x), tracejit.tensor(y))
    theirs = getattr(torch.nn, name)(**options)(torch.tensor(x), torch.tensor(y))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-12)


def test_weights_of_losses_are_buffers() -> None:
    criterion = nn.CrossEntropyLoss(tracejit.tensor([1.0, 2.0]))
    assert list(criterion.state_dict()) == ["weight"]
    assert criterion.double().weight.dtype is tracejit.float64
    assert nn.CrossEntropyLoss().weight is None
    assert list(nn.BCEWithLogitsLoss(pos_weight=tracejit.ones(2)).state_dict()) == ["pos_weight"]


def test_ctc_agrees_with_torch() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    steps, batch, count, longest = 9, 4, 5, 4
    logits = rng.normal(size=(steps, batch, count))
    labels = rng.integers(1, count, (batch, longest))
    labels[1, :2] = 2  # repeated: a blank must stand between
    inputs, wanted = [9, 7, 9, 8], [4, 3, 0, 1]
    flat = np.concatenate([row[:n] for row, n in zip(labels, wanted, strict=True)])
    for targets in (labels, flat):
        for reduction in ("mean", "sum", "none"):
            for as_tensors in (False, True):
                found = []
                for f in (tracejit, torch):
                    x = f.tensor(logits, requires_grad=True)
                    lengths = [f.tensor(n) if as_tensors else tuple(n) for n in (inputs, wanted)]
                    logp = f.nn.functional.log_softmax(x, 2)
                    logp.retain_grad()
                    loss = f.nn.CTCLoss(reduction=reduction)(logp, f.tensor(targets), *lengths)
                    loss.sum().backward()
                    found.append((loss.detach().numpy(), x.grad.numpy(), logp.grad.numpy()))
                for ours, theirs in zip(*found, strict=True):
                    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def test_ctc_of_targets_that_do_not_fit_is_infinite_or_zero() -> None:
    torch = pytest.importorskip("torch")
    logits = np.random.default_rng(0).normal(size=(3, 2, 4))
    for zero in (False, True):
        found = []
        for f in (tracejit, torch):
            x = f.tensor(logits, requires_grad=True)
            logp = f.nn.functional.log_softmax(x, 2)
            loss = f.nn.functional.ctc_loss(
                logp, f.tensor([[1, 1, 1], [1, 2, 3]]), (3, 3), (3, 3), reduction="none", zero_infinity=zero
            )
            if zero:
                loss.sum().backward()
                found.append((loss.detach().numpy(), x.grad.numpy()))
            else:
                found.append((loss.detach().numpy(),))
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def test_losses_take_the_old_arguments_and_torchs_positions() -> None:
    torch = pytest.importorskip("torch")
    x, y = np.array([[0.2, -0.3], [0.5, 0.1]]), np.array([[0.1, 0.4], [1.0, 0.0]])
    c = np.array([0, 1])
    for f in (tracejit, torch):
        F = f.nn.functional
        a, b, k = f.tensor(x), f.tensor(y), f.tensor(c)
        found = [
            F.mse_loss(a, b, False), F.mse_loss(a, b, None, False).sum(), f.nn.MSELoss(size_average=False)(a, b),
            f.nn.MSELoss(reduce=False)(a, b).sum(), F.nll_loss(a, k, None, False), F.cross_entropy(a, k, None, None, 1, None, "sum"),
            f.nn.CrossEntropyLoss(None, False, 0)(a, k), F.kl_div(a, b, False), F.smooth_l1_loss(a, b, None, None, "sum", 0.3),
            F.poisson_nll_loss(a, b, True, False, False), F.huber_loss(a, b, "sum", 0.2), F.multi_margin_loss(a, k, 2, 0.5),
            f.nn.BCEWithLogitsLoss(f.tensor(y), False)(a, b), f.nn.NLLLoss2d()(a, k), F.gaussian_nll_loss(a, b, f.tensor(y + 1), True),
        ]  # fmt: skip
        if f is tracejit:
            ours = [v.item() for v in found]
    np.testing.assert_allclose(ours, [v.item() for v in found], rtol=1e-12)


def test_losses_of_several_labels_agree_with_torch() -> None:
    scores, labels = numbers(3, 4), np.array([[3, 0, -1, 1], [-1, 0, 1, 2], [1, 2, 0, 3]])
    for reduction in ("mean", "sum", "none"):
        agree("multilabel_margin_loss", scores, labels, reduction=reduction)
        agree("multilabel_soft_margin_loss", scores, (scores > 0).astype("int64"), reduction=reduction)
        agree(
            "triplet_margin_with_distance_loss",
            scores,
            numbers(3, 4, seed=1),
            numbers(3, 4, seed=2),
            reduction=reduction,
            swap=True,
        )
    agree("multilabel_margin_loss", scores[0], labels[0])
