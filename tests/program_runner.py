"""`program_runner.py STEPS script ROOTS [arguments]`: a public program, with torch meaning this library, broken off after some steps.

What programs need besides PyTorch stands in: plots are not drawn, environments of reinforcement learning answer at random, MNIST is random
numbers, and texts are what Python ships with.  The program itself is unchanged."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import random
import sys
import types
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, ClassVar
from unittest.mock import MagicMock

import numpy as np

from tracejit import optim
from tracejit.compat.__main__ import main
from tracejit.vision import datasets

DRAWN = ("matplotlib", "mpl_toolkits", "requests", "tensorboardX", "termcolor", "visdom")
FINISHED = "the program ran"


class Enough(BaseException):
    """The steps that were asked for are done."""


class Drawing(types.ModuleType):
    """A module whose functions take anything and draw nothing."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = MagicMock(name=name)
        if name in ("plot", "subplots"):  # whose results programs take apart
            made.return_value = (MagicMock(),) * (2 if name == "subplots" else 1)
        return self.__dict__.setdefault(name, made)


class Drawings(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if fullname.split(".")[0] in DRAWN else None

    def create_module(self, spec: Any) -> Any:
        return Drawing(spec.name)

    def exec_module(self, module: Any) -> None:
        del module  # there is nothing in it


class Space:
    def __init__(self, n: int | None, shape: tuple[int, ...]) -> None:
        self.n, self.shape = n, shape
        self.low, self.high = np.full(shape, -2.0, "f4"), np.full(shape, 2.0, "f4")
        self.draws = np.random.default_rng(0)

    def sample(self) -> Any:
        return self.draws.uniform(self.low, self.high).astype("f4") if self.n is None else int(self.draws.integers(self.n))


class Environment:
    """Random observations, an end every twenty steps."""

    def __init__(self, name: str) -> None:
        continuous = "Pendulum" in name
        self.action_space = Space(None, (1,)) if continuous else Space(2, ())
        self.observation_space = Space(None, (3,) if continuous else (4,))
        self.draws, self.time = np.random.default_rng(1), 0
        self.unwrapped, self.spec = self, types.SimpleNamespace(reward_threshold=-1.0)

    def observation(self) -> Any:
        return self.draws.standard_normal(self.observation_space.shape).astype("f4")

    def reset(self, **options: Any) -> Any:
        self.time = 0
        return self.observation(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return self.observation(), 1.0, self.time % 20 == 0, False, {}

    def render(self, *args: Any, **options: Any) -> None:
        self.time += 0

    close = seed = render


class Images:
    """What TensorFlow's tutorials gave for MNIST."""

    def __init__(self, count: int) -> None:
        self.draws = np.random.default_rng(0)
        self.images = self.draws.uniform(0, 1, (count, 784)).astype("f4")
        self.labels = np.eye(10, dtype="f4")[self.draws.integers(0, 10, count)]

    def next_batch(self, size: int) -> Any:
        rows = self.draws.integers(0, len(self.images), size)
        return self.images[rows], self.labels[rows]


def write_data(path: Path) -> None:
    """A file for a program that brings none: text that Python ships with, or (.bin) its characters as numbers of 16 bits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(topics[name] for name in sorted(topics))[:60000].encode("ascii", "ignore")
    path.write_bytes(np.frombuffer(text, np.uint8).astype(np.uint16).tobytes() if path.suffix == ".bin" else text)


def stand_in() -> None:
    """Put the stand-ins where programs import them from."""
    sys.meta_path.insert(0, Drawings())
    for name in ("gym", "gymnasium"):
        module: Any = types.ModuleType(name)
        module.make = lambda name, **options: Environment(name)
        sys.modules[name] = module
    unidecode: Any = types.ModuleType("unidecode")
    unidecode.unidecode = lambda text: text.encode("ascii", "ignore").decode()
    sys.modules["unidecode"] = unidecode
    above: Any = None
    for name in ("tensorflow", "tensorflow.examples", "tensorflow.examples.tutorials", "tensorflow.examples.tutorials.mnist"):
        module = sys.modules[name] = types.ModuleType(name)
        module.__path__ = []
        if above is not None:
            setattr(above, name.rpartition(".")[2], module)
        above = module
    parts = types.SimpleNamespace(train=Images(1000), test=Images(100), validation=Images(100))
    above.input_data = types.SimpleNamespace(read_data_sets=lambda *args, **options: parts)
    read = datasets.MNIST.__init__

    def initialise(self: Any, root: Any, *args: Any, **options: Any) -> None:
        folder, draws = Path(root) / type(self).__name__ / "raw", np.random.default_rng(0)
        folder.mkdir(parents=True, exist_ok=True)
        for part, count in (("train", 2560), ("t10k", 320)):
            arrays = {"images-idx3": draws.integers(0, 256, (count, 28, 28)), "labels-idx1": draws.integers(0, 10, count)}
            for kind, array in arrays.items():
                head = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
                (folder / f"{part}-{kind}-ubyte").write_bytes(head + array.astype("u1").tobytes())
        read(self, root, *args, **options)

    datasets.MNIST.__init__ = initialise  # type: ignore[method-assign]


def count_steps(limit: int) -> None:
    """Break off after so many steps of all optimizers together."""
    done = [0]
    for kind in vars(optim).values():
        if isinstance(kind, type) and "step" in vars(kind):
            _counted(kind, done, limit)


def _counted(kind: Any, done: list[int], limit: int) -> None:
    step = kind.step

    def counted(self: Any, *args: Any, **options: Any) -> Any:
        out = step(self, *args, **options)
        done[0] += 1
        if done[0] >= limit:
            raise Enough
        return out

    kind.step = counted


if __name__ == "__main__":
    limit, script = int(sys.argv[1]), Path(sys.argv[2]).resolve()
    sys.path += [str(script.parent), str(script.parent.parent), *sys.argv[3].split(os.pathsep)]
    stand_in()
    count_steps(limit)
    random.seed(0)
    np.random.seed(0)
    os.chdir(script.parent)
    try:
        main([str(script.name), *sys.argv[4:]])
    except Enough:
        print(f"after {limit} steps", end=" ")
    except SystemExit as leaving:
        if leaving.code not in (None, 0):  # False, too, is 0
            raise
    print(FINISHED)
