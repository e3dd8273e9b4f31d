"""docs/what-is-compiled.md: each row of its table runs eagerly and compiled, and is recorded, or eager for the reason, as it says."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import tracejit
from tracejit.capture.values.array_likes import ARRAY_LIKES, ArrayLikeModel

PAGE = Path(__file__).parents[1] / "docs" / "what-is-compiled.md"
SURROUNDINGS = """\
import array, copy, csv, functools, heapq, inspect, io, json, logging, math, os, random, sys, tempfile, threading, time
from collections import namedtuple
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import tracejit
from tracejit import autograd, data, eye, from_numpy, func, linalg, manual_seed, nn, no_grad, optim, randint, randn, save, stack, tensor

tracejit.manual_seed(0)
random.seed(0)
logger = logging.getLogger("rows")
w = tracejit.full((3,), 0.5, requires_grad=True)
model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
optimizer = optim.SGD(model.parameters(), lr=0.1)
losses = []


class Box:
    made = 0

    def __init__(self):
        self.total, self.seen, self.names, self.best = 0.0, None, {1}, []


box = Box()
d = {"count": 0, "array": np.ones(3, "f4"), "items": [tracejit.ones(2), tracejit.zeros(2)]}
d.update(row=tracejit.ones(2, 3)[0], table=tracejit.zeros(9, 3), log=np.zeros(9), places=[0, 2], flags=[True, False, True])
d.update(price=Decimal("0.5"), day=date(2020, 1, 1))


class Column:  # it has a model, as columns of packages have
    def __array__(self, dtype=None, copy=None):
        return np.array([1.0, 2.0, 3.0], dtype)

    def __len__(self):
        return 3

    def to_numpy(self):
        return np.asarray(self)

    def smoothed(self):
        return [1.5, 2.0, 2.5]


d["prices"] = Column()
lstm = nn.LSTM(3, 2)
leaf = tracejit.ones(3, requires_grad=True)
d["cast"] = leaf.to(tracejit.float64)
numbers = array.array("d", [0.5])
iterator = iter(range(100))
file = io.StringIO()
writer = csv.writer(file)
lock = threading.Lock()
path = os.path.join(tempfile.mkdtemp(), "saved.pt")
loader = data.DataLoader(data.TensorDataset(tracejit.ones(5, 3)), batch_size=2, shuffle=True)


@dataclass
class Point:
    x: object
    n: int


Row = namedtuple("Row", "loss step")


def helper(x):
    return x.exp() - 1


@functools.lru_cache
def cached(k):
    return tracejit.ones(3) * k


@functools.lru_cache
def flat(shape):
    return (math.prod(shape),)


@tracejit.compile
def compiled(x):
    return x * 3


@contextmanager
def labelled(name):
    yield name


def moved(point):
    match point:
        case Point(x=x, n=int(k)) if k >= 0:
            return x + k


def observed():
    state = [w, w.grad, leaf.grad, *model.parameters(), losses, box.total, box.seen]
    state += [Box.made, sorted(map(str, box.names)), sorted(d), d["count"], d.get("last")]
    return state, d["row"], d["table"], d["log"].tolist(), tracejit.get_rng_state()


def step(x, n):
    out = None
"""


def table() -> list[tuple[str, str, str]]:
    """(statements, what runs for real, recordings) of each row."""
    rows = []
    for line in PAGE.read_text().splitlines():
        found = re.fullmatch(r"\| `(.+)` \| (.+) \| (.+) \| (\d+|eager) \|", line)
        if found:
            rows.append((found[1], found[3], found[4]))
    return rows


def loaded(path: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plain(value: Any) -> Any:
    """Numbers, texts and containers, to be compared."""
    if isinstance(value, tracejit.Tensor):
        return pytest.approx(value.detach().numpy(), rel=1e-5) if value.dtype.is_floating_point else value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "__next__"):
        return [plain(item) for item in value]
    if type(value).__name__ == "Point":
        return ["Point", plain(value.x), value.n]
    return pytest.approx(value, rel=1e-5) if isinstance(value, float) else value


def run(module: Any, step: Any) -> tuple[list[Any], Any]:
    tracejit.manual_seed(1)
    results = [step(tracejit.tensor([0.5, 1.0, 1.5]) * k, k) for k in range(1, 5)]
    return results, module.observed()


@pytest.mark.parametrize("row", table(), ids=[row[0] for row in table()])
def test_a_row_of_the_table_is_captured_as_it_says(
    row: tuple[str, str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    statements, runs, recordings = row
    column = ArrayLikeModel(
        "written_compiled", "Column", frozenset({"__len__"}), frozenset({"to_numpy"}), lambda value, name: True
    )
    ARRAY_LIKES.append(column)
    path = tmp_path / "written.py"
    path.write_text(SURROUNDINGS + "".join(f"    {line}\n" for line in statements.split("; ")) + "    return out\n")
    try:
        eager = loaded(path, "written_eager")
        expected = run(eager, eager.step)
        said = capsys.readouterr().out
        module = loaded(path, "written_compiled")
        step = tracejit.compile(module.step)
        actual = run(module, step)
    finally:
        ARRAY_LIKES.remove(column)
        sys.modules.pop("written_eager", None)
        sys.modules.pop("written_compiled", None)
    assert same(actual, expected) and capsys.readouterr().out == said
    if recordings == "eager":
        assert step.stats.compiled_calls == 0 and {f"nothing: `{reason.code}`" for reason in step.reasons} == {runs}, (
            step.explain()
        )
    else:
        assert not step.reasons and step.stats.traces == int(recordings), step.explain()


def same(actual: Any, expected: Any) -> bool:
    return bool(unwrapped(actual) == plain(expected))


def unwrapped(value: Any) -> Any:
    """Like `plain`, exact."""
    if isinstance(value, tracejit.Tensor):
        return value.detach().numpy() if value.dtype.is_floating_point else value.tolist()
    if isinstance(value, (list, tuple)) or hasattr(value, "__next__"):
        return [unwrapped(item) for item in value]
    return ["Point", unwrapped(value.x), value.n] if type(value).__name__ == "Point" else value


def test_the_table_has_rows_and_both_kinds_of_them() -> None:
    kinds = [recordings for _, _, recordings in table()]
    assert len(kinds) > 35 and kinds.count("eager") > 5 and kinds.count("1") > 20


def test_every_reason_of_the_page_is_in_the_catalogue() -> None:
    from tracejit.capture import CATALOGUE

    named = [line for line in PAGE.read_text().splitlines() if re.match(r"\| `[a-z_]+`(, `[a-z_]+`)* \| ", line)]
    assert len(named) > 5
    for line in named:
        for code in re.findall(r"`([a-z_]+)`", line.split("|")[1]):
            assert code in CATALOGUE
