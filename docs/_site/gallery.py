"""The gallery: one page for each program in examples/, with what its docstring says, its source, and a picture where there is one.

Start reading: `write`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

from _site.pages import write_folder

TITLES = {
    "first_steps": "First steps",
    "digits_training": "Handwritten digits",
    "digits_cnn": "Handwritten digits with a convolutional network",
    "vae": "A variational autoencoder",
    "time_series_lstm": "A time series with an LSTM and LBFGS",
    "characters": "Characters: RNN, GRU, transformer",
    "gpt": "A small GPT",
    "rnn_loop": "A recurrent network as a Python loop",
    "conditional_net": "A network that branches",
    "cartpole": "A policy gradient on a cart-pole",
    "custom_function": "A function with a gradient of its own",
    "mixed_precision": "Mixed precision",
    "gradient_accumulation": "Gradients of parts of a batch",
}
"""Titles, in the order of the gallery; other programs follow, by name."""


def write(examples: Path, folder: Path, draw: Callable[[str, Path, Path], str | None]) -> None:
    """Write a page for each program of `examples`, and their index, into `folder`.

    draw(name, file, folder) draws the picture of a program into `folder` and returns its caption, or None.
    """
    found = {file.stem: file for file in sorted(examples.glob("*.py"))}
    names = [name for name in TITLES if name in found] + [name for name in found if name not in TITLES]
    trees = {name: ast.parse(found[name].read_text(encoding="utf-8")) for name in names}
    docstrings = {name: ast.get_docstring(tree) or "" for name, tree in trees.items()}
    starts = {name: tree.body[1].lineno for name, tree in trees.items()}  # after the docstring
    folder.mkdir(exist_ok=True)
    captions = {name: draw(name, found[name], folder) for name in names}
    pages = {f"{name}.md": _page(name, docstrings[name], captions[name], starts[name]) for name in names}
    rows = [f"* [{_title(name)}]({name}.md): {' '.join(docstrings[name].split(chr(10) * 2)[0].split())}" for name in names]
    pages["index.md"] = "\n\n".join(
        [
            "# Gallery",
            "Programs in `examples/`. Each runs with `python examples/NAME.py`, and the tests run all of them.",
            "\n".join(rows),
            "```{toctree}\n:hidden:\n\n" + "\n".join(names) + "\n```\n",
        ]
    )
    write_folder(folder, pages)


def _title(name: str) -> str:
    """The title of a program's page."""
    return TITLES.get(name, name.replace("_", " ").capitalize())


def _page(name: str, docstring: str, caption: str | None, start: int) -> str:
    """The page of a program."""
    picture = [] if caption is None else [f"![{_title(name)}]({name}.svg)", caption]
    source = f"```{{literalinclude}} ../../examples/{name}.py\n:language: python\n:lines: {start}-\n```\n"
    return "\n\n".join([f"# {_title(name)}", docstring, *picture, source])
