"""`SummaryWriter` under the name of PyTorch's: what programs log, as lines of JSON.

Scalars, texts and hyperparameters go to `log_dir/events.jsonl`, an object per line.  Images, graphs and histograms are not written: a
warning says once."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["SummaryWriter"]


def _number(name: str, value: Any) -> float:
    """A number, or an array or tensor of one element, as a number.  Raises ValueError for more elements."""
    array = np.asarray(value.detach() if hasattr(value, "detach") else value)
    if array.size != 1:
        raise ValueError(f"SummaryWriter.{name}(): expected one number, got an array of shape {list(array.shape)}")
    return float(array.reshape(()))


class SummaryWriter:
    """Writes lines of JSON, not the event files of TensorBoard; `log_dir` is runs/<time> by default."""

    def __init__(self, log_dir: Any = None, comment: str = "", **options: Any) -> None:
        self.log_dir = str(log_dir) if log_dir else str(Path("runs") / (time.strftime("%Y%m%d-%H%M%S") + comment))
        path = Path(self.log_dir)
        path.mkdir(parents=True, exist_ok=True)
        self._file = open(path / "events.jsonl", "a", encoding="utf-8")  # noqa: SIM115  (closed by close())
        self._left_out: set[str] = set()

    def _write(self, kind: str, tag: str, value: Any, step: Any, **more: Any) -> None:
        line = {
            "kind": kind,
            "tag": tag,
            "value": value,
            "step": None if step is None else int(_number("add", step)),
            "time": time.time(),
            **more,
        }
        self._file.write(json.dumps(line) + "\n")

    def _leave_out(self, kind: str) -> None:
        if kind not in self._left_out:
            self._left_out.add(kind)
            warnings.warn(
                f"SummaryWriter.{kind}(): tracejit writes scalars, texts and hyperparameters only", UserWarning, stacklevel=3
            )

    def get_logdir(self) -> str:
        """Where it writes."""
        return self.log_dir

    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: Any = None, walltime: float | None = None, **options: Any
    ) -> None:
        """One number."""
        self._write("scalar", tag, _number("add_scalar", scalar_value), global_step)

    def add_scalars(self, main_tag: str, tag_scalar_dict: Any, global_step: Any = None, walltime: float | None = None) -> None:
        """Several numbers."""
        for tag, value in tag_scalar_dict.items():
            self._write("scalar", f"{main_tag}/{tag}", _number("add_scalars", value), global_step)

    def add_text(self, tag: str, text_string: str, global_step: Any = None, walltime: float | None = None) -> None:
        """A text."""
        self._write("text", tag, text_string, global_step)

    def add_hparams(self, hparam_dict: Any, metric_dict: Any, **options: Any) -> None:
        """Hyperparameters and what came of them."""
        self._write("hparams", "", {key: str(value) for key, value in hparam_dict.items()}, None)
        for key, value in metric_dict.items():
            self._write("scalar", key, _number("add_hparams", value), None)

    def add_image(self, tag: str, img_tensor: Any, *args: Any, **options: Any) -> None:
        """Writes nothing."""
        self._leave_out("add_image")

    def add_images(self, tag: str, img_tensor: Any, *args: Any, **options: Any) -> None:
        """Writes nothing."""
        self._leave_out("add_images")

    def add_figure(self, tag: str, figure: Any, *args: Any, **options: Any) -> None:
        """Writes nothing."""
        self._leave_out("add_figure")

    def add_histogram(self, tag: str, values: Any, *args: Any, **options: Any) -> None:
        """Writes nothing."""
        self._leave_out("add_histogram")

    def add_graph(self, model: Any, *args: Any, **options: Any) -> None:
        """Writes nothing."""
        self._leave_out("add_graph")

    def add_embedding(self, mat: Any, *args: Any, **options: Any) -> None:
        """Writes nothing."""
        self._leave_out("add_embedding")

    def flush(self) -> None:
        """Put on disk what was written."""
        self._file.flush()

    def close(self) -> None:
        """Write no more."""
        self._file.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
