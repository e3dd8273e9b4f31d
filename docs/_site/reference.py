"""The reference: one page for each public module, with each name of its `__all__` as its docstring tells of it.

A value that several modules name is described on the first page that has it; the others refer to that.
Start reading: `write`, `SECTIONS` (which modules have a page, in which order).
"""

from __future__ import annotations

import ast
import importlib
import inspect
import multiprocessing
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _site.docstrings import escaped, summary, to_markdown
from _site.pages import write_folder

SECTIONS = {
    "Tensors and functions": ["", "Tensor", "linalg", "special", "fft", "random", "array_api"],
    "Derivatives": ["autograd", "autograd.function", "autograd.functional", "autograd.graph", "autograd.anomaly", "func"],
    "The compiler": ["CompiledFunction", "compiler", "config", "cache", "ffi", "library", "testing"],
    "Networks and training": [
        "nn", "nn.functional", "nn.init", "nn.parallel", "nn.utils", "nn.utils.parametrize", "nn.utils.prune", "nn.utils.rnn", "optim",
        "optim.lr_scheduler", "optim.swa_utils", "amp", "utils.checkpoint",
    ],
    "Optimisation": ["optimize"],
    "Probability": ["distributions", "distributions.constraints", "distributions.transforms", "inference"],
    "Data and files": [
        "utils.data", "utils.tensorboard", "serialization", "hub", "vision.datasets", "vision.models", "vision.transforms", "vision.utils",
    ],
    "For programs written for PyTorch": [
        "compat", "accelerator", "backends.cuda", "backends.cudnn", "cuda", "cuda.amp", "distributed", "jit", "multiprocessing", "onnx",
        "profiler", "quasirandom",
    ],
}  # fmt: skip
"""Paths below the package, "" for itself: modules, and classes that have a page of their own."""

ELSEWHERE = {
    "data": "utils.data has its names",
    "functional": "nn.functional has its names",
    "control_flow": "the package has its names",
    "utils": "a package of modules that have pages",
    "backends": "a package of modules that have pages",
    "vision": "a package of modules that have pages",
    "version": "four texts, named after PyTorch's",
}
"""Public modules without a page, and why."""

_PYTHONS_OWN = {"multiprocessing": multiprocessing}


def title_of(path: str) -> str:
    """The whole name of what has a page."""
    return f"tracejit.{path}" if path else "tracejit"


def object_of(path: str) -> Any:
    """The module or class that has a page."""
    package = importlib.import_module("tracejit")
    parts = path.split(".") if path else []
    value: Any = package
    for count, part in enumerate(parts, 1):
        found = getattr(value, part, None)
        value = importlib.import_module(title_of(".".join(parts[:count]))) if found is None else found
    return value


def write(folder: Path) -> None:
    """Write all pages and their index into `folder`."""
    known: dict[int, str] = {}  # the names under which functions and classes are described, by their ids
    paths = [path for section in SECTIONS.values() for path in section]
    for path in paths:
        if isinstance(object_of(path), type):
            known[id(object_of(path))] = title_of(path)
    pages = {f"{title_of(path)}.md": _page(path, known) for path in paths}
    pages["index.md"] = _index()
    write_folder(folder, pages)


def _index() -> str:
    """The page that lists the modules."""
    lines = [
        "# Reference",
        "Every public name, with what its docstring says. Examples in it are run by the tests; where PyTorch has the name, its arguments, "
        "defaults and errors are PyTorch's, and [differences](../differences.md) lists what is not.",
    ]
    for section, paths in SECTIONS.items():
        rows = [f"* [`{title_of(path)}`]({title_of(path)}.md): {_first_sentence(object_of(path))}" for path in paths]
        lines += [f"## {section}", "\n".join(rows)]
        lines.append("```{toctree}\n:hidden:\n\n" + "\n".join(title_of(path) for path in paths) + "\n```")
    return "\n\n".join(lines) + "\n"


def _first_sentence(value: Any) -> str:
    """What a module or class is, in a line."""
    text = " ".join((inspect.getdoc(value) or "").strip().split("\n\n")[0].split())
    sentence = escaped(re.split(r"(?<=[.;])\s", re.sub(r"^tracejit\S*: ", "", text))[0].rstrip(";"))
    return sentence[:1].upper() + sentence[1:]


def _first_paragraph(module: Any) -> str:
    """What a module is, as far as it is for users."""
    text = summary(re.sub(r"^tracejit\S*: ", "", (module.__doc__ or "").strip()))
    return text[:1].upper() + text[1:]


def _page(path: str, known: dict[int, str]) -> str:
    """The page of a module, or of a class that has one."""
    owner, title = object_of(path), title_of(path)
    if isinstance(owner, type):
        head = f"# {escaped(title)}\n\n```{{py:currentmodule}} {title.rpartition('.')[0]}\n```\n\n"
        return head + _described(title, owner, 4, known) + "\n"
    own_pages = {title_of(path) for section in SECTIONS.values() for path in section}
    lines = [f"# {escaped(title)}", _first_paragraph(owner), f"```{{py:module}} {title}\n```"]
    for name, value in public_names(path):
        if getattr(value, "__name__", None) == name:  # rather than under another name that it has
            known.setdefault(id(value), f"{title}.{name}")
    groups: dict[str, list[str]] = {"Functions": [], "Classes": [], "Values": []}
    for name, value in public_names(path):
        group = "Classes" if isinstance(value, type) else "Functions" if _is_function(value) else "Values"
        full = f"{title}.{name}"
        if full in own_pages:
            groups[group].append(f"[`{full}`]({full}.md) has a page of its own.")
            continue
        if group != "Values" and known.get(id(value), full) != full:
            kind = "class" if group == "Classes" else "function"
            groups[group].append(_directive(3, kind, name + "()" * (kind == "function"), f"The same as `{known[id(value)]}`."))
            continue
        if group != "Values":
            known[id(value)] = full
        groups[group].append(_described(full, value, 4, known))
    for group, entries in groups.items():
        if entries:
            lines += [f"## {group}", *entries]
    return "\n\n".join(lines) + "\n"


def public_names(path: str) -> Iterator[tuple[str, Any]]:
    """The names of a module's `__all__` that its page describes, and their values: no modules, and nothing that is Python's own."""
    owner, own = object_of(path), _PYTHONS_OWN.get(path)
    for name in sorted(set(owner.__all__), key=str.lower):
        value = getattr(owner, name)
        if not isinstance(value, types.ModuleType) and (own is None or not hasattr(own, name)):
            yield name, value


def _described(full: str, value: Any, depth: int, known: dict[int, str]) -> str:
    """The description of a class, function or value."""
    name = full.rpartition(".")[2]
    if isinstance(value, type):
        signature = _signature(value)
        body = [to_markdown(inspect.getdoc(value) or "", _parameters(value))]
        bases = [f"`{known[id(base)]}`" for base in value.__bases__ if id(base) in known]
        if bases:
            body.append(f"Derives from {', '.join(bases)}, which describes the methods that are not listed here.")
        for member, static in _members(value, known):
            body.append(_member(member, static, depth - 1))
        return _directive(depth, "class", name + signature, "\n\n".join(filter(None, body)))
    if _is_function(value):
        text = to_markdown(inspect.getdoc(value) or "", _parameters(value))
        return _directive(depth, "function", name + _signature(value), text)
    shown = repr(value)
    is_plain = len(shown) < 200 and not any(part in shown for part in (" at 0x", "`", "\n"))
    text = f"`{shown}`" if is_plain else f"A value of type `{type(value).__name__}`."
    return _directive(depth, "data", name, f"{text}\n\n{to_markdown(inspect.getdoc(value) or '')}" if callable(value) else text)


def _is_function(value: Any) -> bool:
    """Whether a value is described as a function: one that can be called and has a name, unlike an object that can be called."""
    return callable(value) and hasattr(value, "__name__")


def _members(owner: type, known: dict[int, str]) -> Iterator[tuple[str, Any]]:
    """The methods and properties that a class has of its own, and no documented base has; all of them where the class has a page."""
    has_page = any(path and object_of(path) is owner for section in SECTIONS.values() for path in section)
    names = dir(owner) if has_page else list(vars(owner))
    bases = [base for base in owner.__mro__[1:] if id(base) in known]
    for name in sorted(names, key=str.lower):
        if name.startswith("_") or any(name in vars(base) for base in bases):
            continue
        static = inspect.getattr_static(owner, name)
        if isinstance(static, type) or not inspect.getdoc(static):
            continue
        if isinstance(static, property) or callable(static) or isinstance(static, classmethod | staticmethod):
            yield name, static


def _member(name: str, static: Any, depth: int) -> str:
    """The description of a method or property."""
    if isinstance(static, property):
        return _directive(depth, "property", name, to_markdown(inspect.getdoc(static) or ""))
    function = static.__func__ if isinstance(static, classmethod | staticmethod) else static
    option = f":{type(static).__name__}:\n" if isinstance(static, classmethod | staticmethod) else ""
    signature = _signature(function, bound=not isinstance(static, staticmethod))
    text = to_markdown(inspect.getdoc(function) or "", _parameters(function))
    return _directive(depth, "method", name + signature, text, option)


def _directive(depth: int, kind: str, signature: str, text: str, option: str = "") -> str:
    """A description for Sphinx; `depth` colons are more than those of what is inside."""
    colons = ":" * (depth + 1)
    return f"{colons}{{py:{kind}}} {signature}\n{option}\n{text}\n{colons}"


def _parameters(value: Any) -> set[str]:
    """The names of the parameters, as far as Python knows them."""
    try:
        return set(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        return set()


def _signature(value: Any, bound: bool = False) -> str:
    """The parameters with types and defaults, as they are written in the source."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(*args, **kwargs)"
    parameters = list(signature.parameters.values())
    if bound and parameters:
        parameters = parameters[1:]
    changed = [p.replace(annotation=_annotation(p.annotation), default=_default(p.default)) for p in parameters]
    returned = inspect.Signature.empty if isinstance(value, type) else _annotation(signature.return_annotation)
    return str(signature.replace(parameters=changed, return_annotation=returned))


class _Text:
    """A text that a signature shows as it is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _annotation(annotation: Any) -> Any:
    """A type as it is written; none where it says nothing."""
    if annotation is inspect.Signature.empty:
        return annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return inspect.Signature.empty if text in ("Any", "typing.Any", "None") else _Text(text.strip("'\""))


def _default(value: Any) -> Any:
    """A default as Python would read it, `...` where that is not possible."""
    if value is inspect.Parameter.empty:
        return value
    text = repr(value)
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        text = getattr(value, "__name__", "...")
    return _Text(text)
