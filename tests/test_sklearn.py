"""Modules as estimators of scikit-learn (tracejit/sklearn.py)."""

from __future__ import annotations

import doctest
import pickle
import sys
import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", minversion="1.6")

from sklearn.base import clone
from sklearn.datasets import load_iris, make_regression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import tracejit as T
import tracejit.sklearn
from tracejit import nn, optim
from tracejit.sklearn import Classifier, Regressor, perceptron

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])[Y]


def scaled_classifier(**options: Any) -> Any:
    return make_pipeline(StandardScaler(), Classifier(random_state=0, epochs=20, **options))


def linear(n_features: int, n_outputs: int) -> nn.Module:
    return nn.Linear(n_features, n_outputs)


def with_dropout(n_features: int, n_outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(n_features, 16), nn.Dropout(0.5), nn.Linear(16, n_outputs))


@pytest.mark.parametrize(("estimator", "least"), [(Classifier(), 50), (Regressor(), 50)], ids=["classifier", "regressor"])
def test_an_estimator_passes_all_checks_of_scikit_learn(estimator: Any, least: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, on_fail=None, on_skip=None)
    states = {r["check_name"]: r["status"] for r in results}
    wrong = [f"{r['check_name']}: {r['exception']}" for r in results if r["status"] not in ("passed", "skipped")]
    skipped = [name for name, status in states.items() if status == "skipped"]
    assert not wrong and len(results) >= least
    # One needs an environment variable of SciPy's, the others pandas.
    assert {*skipped} <= {"check_array_api_input", "check_classifier_data_not_an_array", "check_regressor_data_not_an_array"}


def test_a_pipeline_classifies_and_gives_probabilities() -> None:
    model = scaled_classifier().fit(X, NAMES)
    assert model.score(X, NAMES) > 0.95
    found = model.predict_proba(X[:5])
    assert found.shape == (5, 3) and np.allclose(found.sum(1), 1) and set(model.predict(X)) == set(NAMES)


def test_a_grid_is_searched() -> None:
    grid = {"classifier__module_options": [{"hidden": 2}, {"hidden": 16}], "classifier__lr": [1e-5, 0.02]}
    search = GridSearchCV(scaled_classifier(), grid, cv=3).fit(X, NAMES)
    assert search.best_params_["classifier__lr"] == 0.02 and search.best_score_ > 0.9


def test_targets_may_have_several_columns() -> None:
    features, targets = make_regression(100, 4, n_targets=2, random_state=0)
    targets = targets / targets.std(0)
    model = Regressor(linear, random_state=0, lr=0.05).fit(features, targets)
    assert model.predict(features).shape == (100, 2) and model.score(features, targets) > 0.99
    assert Regressor(linear, epochs=1).fit(features, targets[:, 0]).predict(features).shape == (100,)


def test_a_random_state_gives_the_same_fit_and_leaves_others_generators() -> None:
    T.manual_seed(3)
    np.random.seed(3)
    expected = T.rand(2).tolist(), np.random.rand()
    T.manual_seed(3)
    np.random.seed(3)
    fits = [Classifier(with_dropout, random_state=s, epochs=3).fit(X, Y).predict_proba(X) for s in (0, 0, 1)]
    assert np.allclose(fits[0], fits[1], rtol=1e-12, atol=0) and not np.allclose(fits[0], fits[2], rtol=1e-3)
    assert (T.rand(2).tolist(), np.random.rand()) == expected


def test_prediction_changes_nothing() -> None:
    model = Classifier(with_dropout, random_state=0, epochs=2).fit(X, Y)
    assert np.array_equal(model.predict_proba(X), model.predict_proba(X)) and not model.module_.training


@pytest.mark.parametrize("estimator", [Classifier(linear, epochs=2), Regressor(epochs=2)], ids=["classifier", "regressor"])
def test_a_fitted_estimator_is_pickled_and_goes_on(estimator: Any) -> None:
    model = clone(estimator).set_params(warm_start=True, random_state=0).fit(X, Y)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.fit(X, Y).n_iter_ == 4 and len(again.loss_curve_) == 4 and model.n_iter_ == 2
    model.fit(X, Y)
    assert np.allclose(again.predict(X), model.predict(X), rtol=1e-9)


def test_warm_start_goes_on_where_it_was_and_without_it_fit_begins_anew() -> None:
    model = Regressor(linear, epochs=5, random_state=0, warm_start=True).fit(X, Y)
    first = model.module_
    assert model.fit(X, Y).module_ is first and model.loss_curve_[-1] < model.loss_curve_[0]
    assert model.set_params(warm_start=False).fit(X, Y).module_ is not first and model.n_iter_ == 5
    with pytest.raises(ValueError, match="warm_start expected the classes"):
        Classifier(epochs=1, warm_start=True).fit(X, Y).fit(X, NAMES)


def test_partial_fit_is_told_of_all_classes_first() -> None:
    model = Classifier(random_state=0, lr=0.02)
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        model.partial_fit(X, Y)
    for _ in range(30):
        for part in (slice(0, 150, 2), slice(1, 150, 2)):
            model.partial_fit(X[part], Y[part], classes=[0, 1, 2])
    assert model.score(X, Y) > 0.9 and model.n_iter_ == 60
    with pytest.raises(ValueError, match=r"y has the classes \[7\], which are not in classes"):
        model.partial_fit(X[:2], [0, 7])


def test_float32_is_trained_in_float32_and_the_rest_in_float64() -> None:
    for dtype, expected in ((np.float32, T.float32), (np.float64, T.float64), (int, T.float64)):
        model = Regressor(epochs=1).fit(X.astype(dtype), Y)
        assert model.module_[0].weight.dtype is expected and model.predict(X).dtype == expected.numpy


def test_frames_give_names_to_features() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c", "d"])
    model = Classifier(epochs=2, random_state=0).fit(frame, pandas.Series(NAMES))
    assert model.feature_names_in_.tolist() == ["a", "b", "c", "d"] and set(model.predict(frame)) <= set(NAMES)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.rename(columns={"a": "z"}))


def test_the_folds_of_a_cross_validation_are_recorded_once() -> None:
    tracejit.sklearn._step_of.cache_clear()
    cross_val_score(Classifier(random_state=0, epochs=2), X, Y, cv=3)
    tracejit.sklearn._step_of.cache_info()
    assert tracejit.sklearn._step_of.cache_info().currsize == 1
    model = Classifier(random_state=0, epochs=2).fit(X, Y)
    form = repr(model.module_), type(model.optimizer_), T.nn.functional.cross_entropy.__code__
    step = tracejit.sklearn._step_of(form)
    assert tracejit.sklearn._step_of.cache_info().currsize == 1
    assert step.stats.traces <= 3 < step.stats.compiled_calls  # one for each kind of size of the last batch


def test_optimizers_and_losses_may_be_chosen() -> None:
    model = Regressor(
        perceptron, module_options={"hidden": 4}, loss=T.nn.functional.l1_loss, optimizer=optim.SGD, optimizer_options={"momentum": 0.9},
        epochs=3, random_state=0,
    ).fit(X, Y)  # fmt: skip
    assert isinstance(model.optimizer_, optim.SGD) and model.optimizer_.param_groups[0]["momentum"] == 0.9
    assert model.module_[0].out_features == 4


def test_errors_say_what_was_wrong() -> None:
    with pytest.raises(ValueError, match="expected epochs to be an integer of at least 1, got 0"):
        Classifier(epochs=0).fit(X, Y)
    with pytest.raises(FloatingPointError, match=r"the loss is (inf|nan) in epoch \d+; scale the features"):
        Regressor(linear, optimizer=optim.SGD, lr=10.0, epochs=200).fit(X * 1e3, Y)


def test_the_module_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(sys.modules, "tracejit.sklearn")
    with pytest.raises(ImportError, match=r"pip install 'tracejit\[sklearn\]'"):
        __import__("tracejit.sklearn")


def test_the_examples_in_docstrings_do_what_they_show() -> None:
    results = doctest.testmod(tracejit.sklearn)
    assert results.attempted >= 8 and not results.failed
