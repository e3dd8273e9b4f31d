"""Random functions and random passes through them (gradient_programs.py): compiled functions against eager mode, eager mode against
PyTorch.

`python tests/test_gradient_programs.py FROM TO` runs more of them by hand."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from gradient_programs import Scenario, difference, source

import tracejit as T
from tracejit.config import override

TOLERANCE = 1e-9
SCENARIOS = 3
CALLS = 7  # one is recorded, some run as Python, then as machine code


def function(seed: int, directory: Path, smooth: bool = False, outside: bool = False) -> Any:
    """Function number `seed`, in a file of its own."""
    path = directory / f"program_{seed}.py"
    path.write_text(source(seed, smooth, outside))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.f


def compiled_differs(seed: int, directory: Path, outside: bool = False) -> str | None:
    """Where a compiled function is not what eager mode is."""
    f = function(seed, directory, outside=outside)
    for number in range(SCENARIOS):
        scenario = Scenario(seed * 10 + number, outside=outside)
        expected = scenario.run(T, lambda x, y, z, n: f(T, x, y, z, n))
        with override(hot_calls=3):
            compiled = T.compile(lambda x, y, z, n: f(T, x, y, z, n))
            for call in range(CALLS):
                found = difference(expected, scenario.run(T, compiled), TOLERANCE)
                if found is not None:
                    return f"function {seed}, scenario {number}, call {call}: {found}\n{source(seed, outside=outside)}"
    return None


def torch_differs(torch: Any, seed: int, directory: Path) -> str | None:
    """Where eager mode is not what PyTorch is, up to the first error about what was saved: PyTorch saves more."""
    f = function(seed, directory, smooth=True)
    for number in range(SCENARIOS):
        scenario = Scenario(seed * 10 + number, plain=True)
        ours = scenario.run(T, lambda x, y, z, n: f(T, x, y, z, n))
        theirs = scenario.run(torch, lambda x, y, z, n: f(torch, x, y, z, n))
        end = next((i for i, note in enumerate(theirs) if str(note[1]) == "raises" and note[3] in ("freed", "changed")), None)
        found = difference(ours[:end], theirs[:end], TOLERANCE)
        if found is not None:
            return f"function {seed}, scenario {number}: {found}\n{source(seed, smooth=True)}"
    return None


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_gradients_through_compiled_functions_are_those_of_eager_mode(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 10):
        assert (found := compiled_differs(seed, tmp_path)) is None, found


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_gradients_through_what_compiled_functions_wrote_to_are_those_of_eager_mode(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 10):
        assert (found := compiled_differs(seed, tmp_path, outside=True)) is None, found


def test_gradients_of_eager_mode_are_those_of_pytorch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    for seed in range(150):
        assert (found := torch_differs(torch, seed, tmp_path)) is None, found


def test_the_comparison_can_tell_a_wrong_gradient_from_a_right_one(tmp_path: Path) -> None:
    told = 0
    for seed in range(10):
        f, scenario = function(seed, tmp_path), Scenario(seed)
        right = scenario.run(T, lambda x, y, z, n: f(T, x, y, z, n))
        wrong = scenario.run(T, lambda x, y, z, n: f(T, x * 1.0000001, y, z, n))
        assert difference(right, right, TOLERANCE) is None
        told += difference(right, wrong, TOLERANCE) is not None
    assert told > 5


def main() -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        for seed in range(int(sys.argv[1]), int(sys.argv[2])):
            for outside in (False, True):
                if (found := compiled_differs(seed, Path(directory), outside)) is not None:
                    print(found, flush=True)


if __name__ == "__main__":
    main()
