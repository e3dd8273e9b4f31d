"""The import rule of docs/architecture.md, enforced by parsing every module of the package."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tracejit.cpython import c_api

PACKAGE = "tracejit"
ROOT = Path(__file__).resolve().parent.parent / PACKAGE

# From the bottom up; parts of one level may import each other as long as no two modules form a cycle.
EAGER_COLUMN = [
    {"config"},
    {"core"},
    {"ops"},
    {"autograd"},
    {
        "tensor",
        "random",
        "functions",
        "accelerator",
        "amp",
        "cuda",
        "backends",
        "distributed",
        "multiprocessing",
        "onnx",
        "profiler",
        "version",
    },
    {"fft", "functional", "linalg", "special"},
]
EAGER_COLUMN += [
    {"nn", "optim", "data", "distributions"},
    {
        "array_api",
        "control_flow",
        "func",
        "library",
        "vision",
        "utils",
        "serialization",
        "testing",
        "jit",
        "hub",
        "_utils",
        "_C",
        "quasirandom",
    },
]
COMPILER_COLUMN = [
    {"config"},
    {"core"},
    {"ir", "replay"},
    {"passes"},
    {"loops", "math"},
    {"lowering"},
    {"native"},
    {"cpython"},
    {"llvm"},
    {"runtime"},
]
MEETING = [
    {"capture"},
    {"executable", "tape_edges", "hot_entry", "backward_call", "eager_tape", "side_trace"},
    {"report", "dispatch", "ffi"},
    {"recorded_path"},
    {"accounts", "symbolic_paths", "pieces", "options"},
    {"diagnostics", "path_table"},
    {"promotion", "tier_policy"},
    {"recording_driver"},
    {"bridges", "export"},
    {"compile", "cache"},
    {"_dynamo", "shadow", "profile", "compiler"},
]
FACE = [
    {"inference", "optimize", "sklearn"},
]


def allowed_imports() -> dict[str, set[str]]:
    """Part of the package -> the parts it may import."""
    allowed: dict[str, set[str]] = {}
    for column in (EAGER_COLUMN, COMPILER_COLUMN):
        below: set[str] = set()
        for level in column:
            below = below | level
            for part in level:
                allowed[part] = allowed.get(part, set()) | below
    # Where the columns meet everything may be imported that a program can be made of; never nn, optim or data.
    below = set().union(*EAGER_COLUMN[:-1], *COMPILER_COLUMN)
    for level in MEETING:
        below = below | level
        for part in level:
            allowed[part] = below
    # What is built on everything else.
    below = set().union(*EAGER_COLUMN, *COMPILER_COLUMN, *MEETING)
    for level in FACE:
        below = below | level
        for part in level:
            allowed[part] = below
    allowed["compat"] = {"compat", "core", "config"}
    allowed["examples"] = {"examples"}
    allowed["__pyinstaller"] = {"__pyinstaller"}
    allowed["__main__"] = set().union(*EAGER_COLUMN, *COMPILER_COLUMN, *MEETING)
    allowed["__init__"] = set().union(*EAGER_COLUMN, *COMPILER_COLUMN, *MEETING, *FACE, {"examples"})
    return allowed


@cache
def nodes_of(source: str) -> tuple[ast.AST, ...]:
    """All nodes of a source, the module first: each test asks them something else."""
    return tuple(ast.walk(ast.parse(source)))


@pytest.fixture(scope="module", autouse=True)
def nodes_are_dropped() -> Iterator[None]:
    yield
    nodes_of.cache_clear()


def sources() -> dict[str, str]:
    """Dotted module name -> source, packages as name.__init__."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        found[".".join((PACKAGE, *path.relative_to(ROOT).with_suffix("").parts))] = path.read_text(encoding="utf-8")
    return found


def imported_modules(name: str, source: str, known: dict[str, str]) -> list[tuple[str, int]]:
    """The modules of the package that `source` imports, anywhere in it, with line numbers."""

    def module(dotted: str) -> str:
        return dotted if dotted in known else f"{dotted}.__init__"

    found = []
    for node in nodes_of(source):
        if isinstance(node, ast.Import):
            found += [(module(alias.name), node.lineno) for alias in node.names if alias.name.split(".")[0] == PACKAGE]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                parts = name.split(".")[: -node.level]
                base = ".".join([*parts, node.module] if node.module else parts)
            else:
                base = node.module or ""
            if base.split(".")[0] != PACKAGE:
                continue
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                is_module = inner in known or f"{inner}.__init__" in known
                found.append((module(inner if is_module else base), node.lineno))
    return found


def part_of(module: str) -> str:
    """A folder or module of the package; in the folder of compiled functions each module is a part."""
    _, part, *inner = module.split(".")
    return inner[0] if part == "compiled" and inner else part


def wrong_directions(modules: dict[str, str]) -> list[str]:
    allowed = allowed_imports()
    wrong = []
    for name, source in modules.items():
        part = part_of(name)
        if part not in allowed:
            wrong.append(f"{name}: {part!r} has no place in the layers: give it one in docs/architecture.md and here")
            continue
        for target, line in imported_modules(name, source, modules):
            if target != f"{PACKAGE}.__init__" and part_of(target) not in allowed[part]:
                wrong.append(f"{name}:{line}: {part} imports {part_of(target)}, which is not below it")
            if target == f"{PACKAGE}.__init__":
                wrong.append(f"{name}:{line}: imports the public package instead of the module it needs")
    return wrong


def late_imports(modules: dict[str, str]) -> list[str]:
    found = []
    for name, source in modules.items():
        if name in (f"{PACKAGE}.core.lazy", f"{PACKAGE}.compat.importing"):  # other projects' modules late; an importer
            continue
        for function in nodes_of(source):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    found.append(f"{name}:{node.lineno}: import inside a function")
                elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "import_module":
                    found.append(f"{name}:{node.lineno}: import_module inside a function")
    return found


def without_types(source: str) -> str:
    """The source without what is imported for type checkers alone: types of two modules may refer to each other."""
    if "TYPE_CHECKING" not in source:
        return source
    tree = ast.parse(source)
    tree.body = [s for s in tree.body if not (isinstance(s, ast.If) and ast.unparse(s.test) == "TYPE_CHECKING")]
    return ast.unparse(tree)


def cycles(modules: dict[str, str]) -> list[str]:
    """One description per cycle found by walking the imports depth first."""
    found_by = {name: imported_modules(name, without_types(source), modules) for name, source in modules.items()}
    edges = {name: sorted({t for t, _ in targets} - {name}) for name, targets in found_by.items()}
    finished: set[str] = set()
    found: list[str] = []

    def visit(name: str, path: list[str]) -> None:
        if name in path:
            found.append(" -> ".join([*path[path.index(name) :], name]))
            return
        if name in finished:
            return
        for target in edges.get(name, []):
            visit(target, [*path, name])
        finished.add(name)

    for name in edges:
        visit(name, [])
    return found


def layouts_outside(modules: dict[str, str]) -> list[str]:
    """Where a module outside of cpython/ asks where objects of CPython keep what, or has a struct of C."""
    functions = {"never_free", "supported", "symbols", "unsupported"}
    of_layouts = set(c_api.__all__) - functions | {"Structure"}
    found = []
    for name, source in modules.items():
        if part_of(name) == "cpython":
            continue
        for node in nodes_of(source):
            if isinstance(node, ast.ImportFrom) and node.module == "tracejit.cpython.c_api":
                asked = {alias.name for alias in node.names} & of_layouts
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("c_api", "ctypes"):
                asked = {node.attr} & of_layouts
            else:
                asked = set()
            found += [f"{name}:{node.lineno}: {word} outside of cpython/" for word in sorted(asked)]
    return found


OF_ONE_INTERPRETER = {
    "__basicsize__", "__itemsize__", "_is_gil_enabled", "co_exceptiontable", "getrefcount", "gettotalrefcount", "hexversion", "pythonapi",
    "version_info",
}  # fmt: skip
READS_MEMORY = {"from_address", "string_at", "memmove", "memset"}
OF_THE_STABLE_INTERFACE = {"tracejit.core.capsules"}  # the same in each interpreter that has an interface of C
BY_VERSION_OF_THE_LANGUAGE = "capture"  # what a statement or a function of the standard library means there


def interpreters_told_apart(modules: dict[str, str]) -> list[str]:
    """Where a module outside of cpython/ asks which interpreter runs, calls its C interface, or reads memory at an object's address."""
    found: list[tuple[str, int, str]] = []
    for name, source in modules.items():
        if part_of(name) == "cpython" or name in OF_THE_STABLE_INTERFACE:
            continue
        for node in nodes_of(source):
            if isinstance(node, ast.Attribute) and node.attr in OF_ONE_INTERPRETER:
                if node.attr != "version_info" or part_of(name) != BY_VERSION_OF_THE_LANGUAGE:
                    found.append((name, node.lineno, node.attr))
            elif isinstance(node, ast.Constant) and node.value in ("Py_GIL_DISABLED", *OF_ONE_INTERPRETER):
                found.append((name, node.lineno, str(node.value)))
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in READS_MEMORY:
                names = {inner.id for given in node.args for inner in ast.walk(given) if isinstance(inner, ast.Name)}
                if "id" in names:
                    found.append((name, node.lineno, "memory of an object read"))
    return [f"{name}:{line}: {what} outside of cpython/" for name, line, what in sorted(found)]


def test_imports_point_down() -> None:
    wrong = wrong_directions(sources())
    assert not wrong, "\n".join(wrong)


def test_no_import_hides_in_a_function() -> None:
    found = late_imports(sources())
    assert not found, "\n".join(found)


def test_no_modules_import_each_other_in_a_circle() -> None:
    found = cycles(sources())
    assert not found, "\n".join(found)


def test_only_one_folder_knows_how_objects_lie_in_memory() -> None:
    assert layouts_outside(sources()) == []
    bad = {
        "tracejit.llvm.a": "from tracejit.cpython.c_api import SIZE, supported\nclass A(ctypes.Structure): pass\nc_api.slot_offsets(A)"
    }
    assert layouts_outside(bad) == [
        f"tracejit.llvm.a:{line}: {word} outside of cpython/"
        for line, word in ((1, "SIZE"), (2, "Structure"), (3, "slot_offsets"))
    ]


def test_only_one_folder_tells_interpreters_apart() -> None:
    assert interpreters_told_apart(sources()) == []
    bad = {
        "tracejit.core.a": "import sys\nif sys.version_info < (3, 12): pass\nctypes.c_int64.from_address(id(x) + 8)\nctypes.pythonapi.f()",
        "tracejit.capture.b": "import sys\nif sys.version_info < (3, 12): pass\nsysconfig.get_config_var('Py_GIL_DISABLED')",
    }
    assert interpreters_told_apart(bad) == [
        "tracejit.capture.b:3: Py_GIL_DISABLED outside of cpython/",
        "tracejit.core.a:2: version_info outside of cpython/",
        "tracejit.core.a:3: memory of an object read outside of cpython/",
        "tracejit.core.a:4: pythonapi outside of cpython/",
    ]


def test_cpython_stands_between_native_and_llvm() -> None:
    allowed = allowed_imports()
    assert "cpython" in allowed["llvm"] and "llvm" not in allowed["cpython"]
    assert "native" in allowed["cpython"] and allowed["native"].isdisjoint({"cpython", "llvm", "runtime"})


def test_every_module_says_what_it_is_for() -> None:
    assert [name for name, source in sources().items() if source.strip() and ast.get_docstring(nodes_of(source)[0]) is None] == []


def test_the_rules_catch_what_they_are_for() -> None:
    bad = {
        "tracejit.__init__": "",
        "tracejit.core.__init__": "",
        "tracejit.core.a": "from tracejit.core import b",
        "tracejit.core.b": "def f():\n    import tracejit.core.a\n",
        "tracejit.ir.__init__": "",
        "tracejit.ir.graph": "from tracejit.core import a\nfrom ..nn import layer",
        "tracejit.nn.__init__": "",
        "tracejit.nn.layer": "from tracejit import tensor",
    }
    assert wrong_directions(bad) == [
        "tracejit.ir.graph:2: ir imports nn, which is not below it",
        "tracejit.nn.layer:1: imports the public package instead of the module it needs",
    ]
    assert late_imports(bad) == ["tracejit.core.b:2: import inside a function"]
    assert cycles(bad) == ["tracejit.core.a -> tracejit.core.b -> tracejit.core.a"]
