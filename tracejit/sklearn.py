"""Modules as estimators of scikit-learn: `Classifier` and `Regressor`, for pipelines, grid search and cross-validation.

An estimator makes its Module when it is fitted, with a factory that is told the numbers of features and outputs, and trains it
on mini-batches by a compiled step.  A step is compiled once for each form of Module, optimizer and loss, and serves all
estimators of this form: the folds of a cross-validation are recorded once.

Arrays of float32 are trained and predicted on in float32, everything else in float64.  With an integer `random_state` a fit
gives the same numbers each time; random numbers of the caller, NumPy's and this library's, are left as they are.

Needs scikit-learn, the extra `sklearn`; importing this module imports it.

Must not know: how steps are recorded; what scikit-learn does with an estimator.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from tracejit.autograd.grad_mode import no_grad
from tracejit.compiled.compile import compile
from tracejit.core.dtypes import float32, float64
from tracejit.core.progress import Progress
from tracejit.functional import cross_entropy, mse_loss, softmax
from tracejit.nn import Linear, Module, ReLU, Sequential
from tracejit.optim import Adam
from tracejit.random import fork_rng, manual_seed
from tracejit.tensor import from_numpy

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        f"tracejit.sklearn needs scikit-learn 1.6 or later ({error}); install it with: pip install 'tracejit[sklearn]'"
    ) from error

__all__ = ["Classifier", "Regressor", "perceptron"]

FORMS = 64
"""For how many forms of Module, optimizer and loss compiled steps are kept."""


def perceptron(n_features: int, n_outputs: int, hidden: int = 32) -> Module:
    """The Module that an estimator has by default: one hidden layer of `hidden` units with ReLU.

    Example:

        >>> import tracejit.sklearn
        >>> tracejit.sklearn.perceptron(4, 3, hidden=8)
        Sequential(
          (0): Linear(in_features=4, out_features=8, bias=True)
          (1): ReLU()
          (2): Linear(in_features=8, out_features=3, bias=True)
        )"""
    return Sequential(Linear(n_features, hidden), ReLU(), Linear(hidden, n_outputs))


@functools.lru_cache(maxsize=FORMS)
def _step_of(form: tuple[Any, ...]) -> Callable[..., Any]:
    """The compiled step for Modules, optimizers and losses of one form; they are arguments of each call."""

    @compile
    def step(module: Any, optimizer: Any, loss: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        value = loss(module(x), y)
        value.backward()
        optimizer.step()
        return value.detach()

    return step


class _Estimator(BaseEstimator):  # type: ignore[misc]
    """What both have in common: parameters, and the training of a Module."""

    _targets: ClassVar[Mapping[str, bool]] = {}
    """What scikit-learn's validation is told of targets."""
    module_: Any
    optimizer_: Any
    n_iter_: int
    loss_curve_: list[float]
    _random_state: Any

    def __init__(
        self,
        module: Callable[..., Module] = perceptron,
        *,
        module_options: Mapping[str, Any] | None = None,
        loss: Callable[[Any, Any], Any] | None = None,
        optimizer: Callable[..., Any] = Adam,
        lr: float = 0.01,
        optimizer_options: Mapping[str, Any] | None = None,
        epochs: int = 100,
        batch_size: int = 32,
        warm_start: bool = False,
        random_state: Any = None,
        quiet: bool = False,
    ) -> None:
        self.module = module
        self.module_options = module_options
        self.loss = loss
        self.optimizer = optimizer
        self.lr = lr
        self.optimizer_options = optimizer_options
        self.epochs = epochs
        self.batch_size = batch_size
        self.warm_start = warm_start
        self.random_state = random_state
        self.quiet = quiet

    def _samples(self, X: Any, *, reset: bool) -> Any:
        """Features as an array of float64 or float32, a row for each sample."""
        return validate_data(self, X, dtype=(np.float64, np.float32), order="C", reset=reset)

    def _samples_and_targets(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
        """Features as an array of float64 or float32, and targets."""
        return validate_data(
            self, X, y, dtype=(np.float64, np.float32), order="C", reset=reset, **self._targets
        )  # fmt: skip

    def _check_parameters(self) -> None:
        for name in ("epochs", "batch_size"):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"{type(self).__name__}: expected {name} to be an integer of at least 1, got {value!r}")

    def _train(self, X: Any, target: Any, n_outputs: int, loss: Callable[[Any, Any], Any], epochs: int, *, fresh: bool) -> None:
        """Train for some epochs, a new Module if `fresh`."""
        if fresh:
            self._random_state = check_random_state(self.random_state)
        random = self._random_state
        with fork_rng(), Progress(f"{type(self).__name__}.fit", total=epochs, unit="epoch", quiet=self.quiet) as progress:
            manual_seed(int(random.randint(2**31)))
            if fresh:
                made = self.module(X.shape[1], n_outputs, **(self.module_options or {}))
                self.module_ = made.to(float32 if X.dtype == np.float32 else float64)
                self.optimizer_ = self.optimizer(self.module_.parameters(), lr=self.lr, **(self.optimizer_options or {}))
                self.n_iter_, self.loss_curve_ = 0, []
            X = X.astype(self._dtype(), copy=False)
            if target.dtype.kind == "f":
                target = target.astype(self._dtype(), copy=False)
            chosen = self.loss if self.loss is not None else loss
            step = _step_of((repr(self.module_), type(self.optimizer_), getattr(chosen, "__code__", type(chosen))))
            self.module_.train()
            for _ in range(epochs):
                self.loss_curve_.append(self._epoch(step, chosen, X, target, random.permutation(len(X))))
                self.n_iter_ += 1
                progress.step(f"loss = {self.loss_curve_[-1]:.4g}")
            self.module_.eval()

    def _epoch(self, step: Callable[..., Any], loss: Any, X: Any, target: Any, order: Any) -> float:
        """One pass over the samples; returns the mean loss.  Raises FloatingPointError where it is not finite."""
        total = 0.0
        for begin in range(0, len(order), self.batch_size):
            rows = order[begin : begin + self.batch_size]
            value = step(self.module_, self.optimizer_, loss, from_numpy(X[rows]), from_numpy(target[rows]))
            total += value.item() * len(rows)
        if not math.isfinite(total):
            raise FloatingPointError(
                f"{type(self).__name__}: the loss is {total} in epoch {self.n_iter_ + 1}; scale the features "
                f"(sklearn.preprocessing.StandardScaler), or lower lr (it is {self.lr})"
            )
        return total / len(order)

    def _dtype(self) -> Any:
        """The dtype of the Module that was trained."""
        return next(iter(self.module_.parameters())).dtype.numpy

    def _outputs(self, X: Any) -> Any:
        """What the Module gives for samples, as a tensor."""
        check_is_fitted(self)
        given = self._samples(X, reset=False)
        with no_grad():
            return self.module_(from_numpy(np.array(given, self._dtype(), order="C")))


_PARAMETERS = """
    Parameters, which are only stored; `fit` uses them:
    module: module(n_features, n_outputs, **module_options) makes the Module, which gives a tensor (samples, outputs) for one of
    (samples, features).  For pickling, a function or class of a module, no lambda.
    loss: loss(output, target), a tensor without dimensions; None: {loss}.
    optimizer, lr, optimizer_options: optimizer(parameters, lr=lr, **optimizer_options), called once for each Module.
    epochs: passes over the samples in `fit`, in an order drawn anew.  batch_size: samples in a step; the last has what is left.
    warm_start: `fit` goes on with the Module that there is.  random_state: None, an integer, or a numpy.random.RandomState.
    quiet: no bar after half a second of training (drawn where tqdm is installed).

    Attributes after `fit`: module_, optimizer_, n_iter_ (epochs made), loss_curve_ (mean loss of each), n_features_in_, and
    feature_names_in_ where the features had names{more}.

    There are no weights of samples.  `partial_fit` makes one pass over what it is given.

    Raises what scikit-learn's validation raises; FloatingPointError where the loss is not finite.
"""


class Classifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    __doc__ = f"""A Module that tells classes apart, as an estimator of scikit-learn: `fit`, `predict`, `predict_proba`, `score` ...

    The Module's outputs are logits, one for each class.  Targets may be of any type that scikit-learn takes for classes.
{_PARAMETERS.format(loss="cross entropy, whose targets are numbers of classes", more=", classes_")}
    Example:

        >>> import numpy as np
        >>> from tracejit.sklearn import Classifier
        >>> X = np.array([[0.0], [1.0], [9.0], [10.0]])
        >>> model = Classifier(random_state=0).fit(X, ["low", "low", "high", "high"])
        >>> model.predict([[0.5], [9.5]]).tolist()
        ['low', 'high']
    """

    classes_: Any

    def fit(self, X: Any, y: Any) -> Classifier:
        """Train on samples in rows (n_samples, n_features) and their classes (n_samples)."""
        self._check_parameters()
        X, y = self._samples_and_targets(X, y, reset=True)
        check_classification_targets(y)
        fresh = not (self.warm_start and hasattr(self, "module_"))
        classes = np.unique(y)
        if not fresh and not np.array_equal(classes, self.classes_):
            raise ValueError(f"Classifier.fit(): with warm_start expected the classes {self.classes_}, got {classes}")
        self.classes_ = classes
        self._train(X, np.searchsorted(classes, y), len(classes), cross_entropy, self.epochs, fresh=fresh)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Classifier:
        """Train for one pass over these samples.  `classes`: all there will be; needed in the first call."""
        self._check_parameters()
        fresh = not hasattr(self, "module_")
        if fresh and classes is None:
            raise ValueError("Classifier.partial_fit(): classes must be passed on the first call to partial_fit.")
        X, y = self._samples_and_targets(X, y, reset=fresh)
        check_classification_targets(y)
        if fresh:
            self.classes_ = np.unique(classes)
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(f"Classifier.partial_fit(): y has the classes {unknown}, which are not in classes {self.classes_}")
        self._train(X, np.searchsorted(self.classes_, y), len(self.classes_), cross_entropy, 1, fresh=fresh)
        return self

    def predict_proba(self, X: Any) -> Any:
        """The probability of each class (columns, in the order of classes_) for each sample: an array (n_samples, n_classes)."""
        return softmax(self._outputs(X), 1).numpy()

    def predict(self, X: Any) -> Any:
        """The most probable class of each sample: an array (n_samples)."""
        most = self._outputs(X).numpy().argmax(1)
        return self.classes_[most]


class Regressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    __doc__ = f"""A Module that gives numbers, as an estimator of scikit-learn: `fit`, `predict`, `score` ...

    The Module's outputs are the numbers: one for targets (n_samples), several for targets (n_samples, n_outputs).
{_PARAMETERS.format(loss="mean squared error", more="")}
    Example:

        >>> import numpy as np
        >>> from tracejit.sklearn import Regressor
        >>> X = np.linspace(-1, 1, 50)[:, None]
        >>> model = Regressor(random_state=0).fit(X, 2 * X[:, 0] + 1)
        >>> model.predict([[0.5]]).round(1).tolist()
        [2.0]
    """

    _target: tuple[int, int]  # dimensions of the targets, numbers for a sample
    _targets: ClassVar[Mapping[str, bool]] = {"multi_output": True, "y_numeric": True}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output, tags.target_tags.multi_output = True, True
        return tags

    def _fitted(self, X: Any, y: Any, epochs: int, *, fresh: bool, reset: bool) -> Regressor:
        self._check_parameters()
        X, y = self._samples_and_targets(X, y, reset=reset)
        columns = np.asarray(y, X.dtype).reshape(len(X), -1)
        if not fresh and (y.ndim, columns.shape[1]) != self._target:
            raise ValueError(f"Regressor: expected targets as before, {self._target[1]} a sample, got shape {y.shape}")
        self._target = y.ndim, columns.shape[1]
        self._train(X, columns, columns.shape[1], mse_loss, epochs, fresh=fresh)
        return self

    def fit(self, X: Any, y: Any) -> Regressor:
        """Train on samples in rows (n_samples, n_features) and their targets (n_samples) or (n_samples, n_outputs)."""
        return self._fitted(X, y, self.epochs, fresh=not (self.warm_start and hasattr(self, "module_")), reset=True)

    def partial_fit(self, X: Any, y: Any) -> Regressor:
        """Train for one pass over these samples."""
        fresh = not hasattr(self, "module_")
        return self._fitted(X, y, 1, fresh=fresh, reset=fresh)

    def predict(self, X: Any) -> Any:
        """The numbers for each sample: an array in the form of the targets."""
        found = self._outputs(X).numpy()
        return found[:, 0] if self._target[0] == 1 else found
