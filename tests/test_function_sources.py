"""capture/function_sources.py and capture/syntax/sources.py: functions are compiled wherever they live, if their source can be had."""

from __future__ import annotations

import contextlib
import functools
import importlib
import linecache
import os
import pickle
import re
import subprocess
import sys
import textwrap
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import tracejit as T
from tracejit.capture.syntax.locate import NotConvertible, locate
from tracejit.capture.syntax.sources import _commands, sources

ROOT = Path(T.__file__).parent.parent
PROGRAM = """
import tracejit as T
from dataclasses import dataclass

@dataclass
class Config:
    scale: float

    def __eq__(self, other):
        return self.scale != other.scale

def helper(x, k):
    return (x * k).tanh()

class Net(T.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = T.nn.Linear(3, 3)
        self.__private = 2.0

    def forward(self, x):
        return helper(self.a(x), self.__private)

net = Net()

@T.compile(fullgraph=True)
def step(x, config):
    inner = lambda y: y + 1
    if config == config:
        return net(x)
    return inner(net(x)).sum()

def check(step, config):
    x = T.ones(2, 3)
    for _ in range(3):
        result = step(x, config)
    expected = step.__wrapped__(x, config)
    assert result.shape == () and (result - expected).abs() < 1e-6, (result, expected)
    print("compiled", step.stats.compiled_calls, step._options.fullgraph)
"""
CHECK = "check(step, Config(2.0))\n"


def run(*command: Any, directory: Path, **options: Any) -> str:
    """What a fresh process prints; it must end well."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_functions_of_a_command_are_compiled(tmp_path: Path) -> None:
    assert run("-Bc", PROGRAM + CHECK, "an argument", directory=tmp_path) == "compiled 2 True\n"


@pytest.mark.parametrize(
    "flags", [["-c", "text"], ["-Bc", "text"], ["-ctext"], ["-X", "dev", "-Wd", "-c", "text", "-c", "other"]]
)
def test_commands_are_found_among_the_arguments_of_the_process(flags: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", *flags])
    assert next(iter(_commands())) == "text"


def test_functions_of_a_file_that_is_standard_input_are_compiled(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("# -*- coding: latin-1 -*-\n# ä\n" + PROGRAM + CHECK, encoding="latin-1")
    with open(tmp_path / "program.py") as file:
        assert run(directory=tmp_path, stdin=file) == "compiled 2 True\n"


def test_functions_that_a_pipe_has_defined_say_so_and_are_compiled_with_a_source(tmp_path: Path) -> None:
    program = """
    import tracejit as T
    def f(x): return x * 2
    c = T.compile(f)
    print(c(T.ones(2)).tolist(), *c.reasons)
    d = T.compile(f, source="def f(x): return x * 2")
    print([d(T.ones(2)).tolist() for _ in range(2)], d.stats.compiled_calls, *d.reasons)
    """
    said, compiled = run(directory=tmp_path, input=textwrap.dedent(program)).splitlines()
    assert said.startswith(
        "[2.0, 2.0] [no_source] no source text for f, which was read from standard input and cannot be read again"
    )
    assert "source=text" in said
    assert compiled == "[[2.0, 2.0], [2.0, 2.0]] 1"


def test_modules_in_archives_are_compiled_wherever_these_are(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "lib.zip", "w") as archive:
        archive.writestr("package/__init__.py", "")
        archive.writestr("package/module.py", PROGRAM + CHECK)
        archive.writestr(
            "__main__.py",
            PROGRAM
            + CHECK
            + "import sys; sys.path.insert(0, 'lib.zip')\nfrom package import module\nprint(module.helper.__code__.co_filename)",
        )
    assert run("lib.zip", directory=tmp_path) == "compiled 2 True\ncompiled 2 True\nlib.zip/package/module.py\n"


TYPED = """
import tracejit as T
def step(x):
    y = helper(x)
    return y * 2

def helper(x):
    return x.sin()

@T.compile
def decorated(x):
    return step(x) + 1

short = T.compile(lambda x: x * 3)
for k in range(2):
    def inside(x):
        return x + 2

inside = T.compile(inside)
wanted = [fn(T.ones(2)).tolist() for fn in (decorated, short, inside) for _ in range(3)]
print("compiled", decorated.stats.compiled_calls, short.stats.compiled_calls, inside.stats.compiled_calls, *decorated.reasons)
exit()
"""


def typed(interpreter: str, directory: Path) -> str:
    """What an interpreter says where somebody types TYPED at its prompt."""
    import pty

    child, terminal = pty.fork()
    if child == 0:  # pragma: no cover
        os.environ.update(HOME=str(directory), PYTHONPATH=str(ROOT), TERM="dumb", PYTHON_BASIC_REPL="1")
        os.execv(interpreter, [interpreter, "-q"])
    said = b""
    with contextlib.suppress(OSError):  # the terminal is closed at the end
        for line in TYPED.strip("\n").split("\n"):
            while not re.search(rb"(>>>|\.\.\.) ?(\x1b\[[0-9;?]*[a-z])*$", said):
                said += os.read(terminal, 4096)
            os.write(terminal, line.encode() + b"\n")
            said += b"\n"
        while chunk := os.read(terminal, 4096):
            said += chunk
    os.waitpid(child, 0)
    return said.decode(errors="replace")


@pytest.mark.skipif(sys.platform == "win32", reason="needs pseudo-terminals")
def test_functions_typed_at_a_prompt_are_compiled(tmp_path: Path) -> None:
    pytest.importorskip("readline")
    said = typed(sys.executable, tmp_path)
    assert "compiled 2 2 2\r\n" in said, said


PICKLING = """
import cloudpickle, sys
with open(sys.argv[1], "wb") as file:
    file.write(cloudpickle.dumps((check, step, Config(2.0), T.compile(Net(), wait=True))))
"""
UNPICKLING = """
import pickle, sys
with open(sys.argv[1], "rb") as file:
    check, step, config, net = pickle.load(file)
check(step, config)
import tracejit as T
print([net(T.ones(2, 3)).shape for _ in range(2)] and net.stats.compiled_calls, *net.reasons)
"""


def test_functions_pickled_by_value_take_their_source_along(tmp_path: Path) -> None:
    pytest.importorskip("cloudpickle")
    (tmp_path / "program.py").write_text(PROGRAM + PICKLING)
    run("program.py", "pickled", directory=tmp_path)
    (tmp_path / "program.py").unlink()
    assert run("-c", UNPICKLING, "pickled", directory=tmp_path) == "compiled 2 True\n1\n"


def test_functions_pickled_by_value_are_found_in_the_file_that_their_globals_name(tmp_path: Path) -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    path = tmp_path / "program.py"
    path.write_text("def f(x):\n    return lambda y: x + y\n")
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), names)
    copy = pickle.loads(cloudpickle.dumps(names["f"]))
    node: Any = locate(copy.__code__, copy.__globals__).node
    assert node.name == "f"
    inner = copy(1)
    assert locate(inner.__code__, inner.__globals__).node.lineno == 2
    path.write_text("def f(x):\n    return lambda y: x - y\n")
    linecache.cache.pop(str(path), None)
    other = pickle.loads(cloudpickle.dumps(names["f"]))
    with pytest.raises(NotConvertible, match="source_changed"):
        locate(other.__code__, other.__globals__)


@T.compile(fullgraph=True, dynamic=False, wait=True)
def decorated(x: Any) -> Any:
    return x + 1


def test_compiled_functions_of_modules_are_pickled_by_their_names() -> None:
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    cloudpickle = pytest.importorskip("cloudpickle")
    assert pickle.loads(cloudpickle.dumps(decorated)) is decorated


def test_functions_of_modules_that_cloudpickle_takes_by_value_are_pickled_with_their_source() -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        data = cloudpickle.dumps(decorated)
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    copy = pickle.loads(data)
    assert copy is not decorated and copy._options.fullgraph and copy._options.dynamic is False
    assert b"def test_functions_of_modules_that_cloudpickle_takes_by_value" in data
    assert [copy(T.ones(2)).tolist() for _ in range(2)] == [[2.0, 2.0]] * 2 and copy.stats.compiled_calls == 1


def test_options_of_compiled_objects_are_pickled() -> None:
    copy = pickle.loads(pickle.dumps(T.compile(T.nn.Linear(2, 2), fullgraph=True, dynamic=True, backend="numba", wait=True)))
    assert (
        isinstance(copy, T.nn.Linear)
        and copy._options.fullgraph
        and copy._options.backend == "numba"
        and copy._options.dynamic is True
    )
    assert copy._wait.reasons == [T.compile]


TEXT = """
import tracejit as T

def helper(x): return x.sin()

class Net(T.nn.Module):
    def forward(self, x):
        return super().__repr__() and helper(x) * self.__scale

    __scale = 3.0

def f(x):
    g = lambda y: helper(y) + 1
    def h(y):
        '''a
  text'''
        return g(y) * 2
    return h(x)

def outer(k):
    if k:
        @T.no_grad()
        def method(x):
            return [x * i for i in (k, 1)]
        return method
"""


def defined() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "defined"}
    exec(TEXT, names)
    return names


def test_a_text_that_is_given_is_where_definitions_are_found() -> None:
    names = defined()
    for function in (T.compile(names["f"], source=TEXT), T.compile(names["Net"](), source=TEXT)):
        expected = function.__wrapped__(T.ones(3))
        for _ in range(3):
            assert T.equal(function(T.ones(3)), expected)
        assert function.stats.compiled_calls == 2 and not function.reasons


@pytest.mark.parametrize(
    "text",
    [
        "@T.no_grad()\ndef method(x):\n    return [x * i for i in (k, 1)]\n",
        "        @T.no_grad()\n        def method(x):\n            return [x * i for i in (k, 1)]\n",
        "\n\n\nk = 1\nif k:\n    @T.no_grad()\n    def method(x):\n        return [x * i for i in (k, 1)]\n",
        TEXT,
    ],
    ids=["alone", "as it stands", "elsewhere", "all"],
)
def test_a_definition_may_stand_elsewhere_in_the_text_that_is_given(text: str) -> None:
    method = defined()["outer"](2.0).__wrapped__
    compiled = T.compile(method, source=text)
    for _ in range(2):
        assert [r.tolist() for r in compiled(T.ones(2))] == [[2.0, 2.0], [1.0, 1.0]]
    assert compiled.stats.compiled_calls == 1


def test_a_text_that_is_given_must_have_the_definition_that_runs() -> None:
    f = defined()["f"]
    for text in (
        TEXT.replace("* 2", "* 3"),
        TEXT.replace("+ 1", "+ 1.0"),
        "def f(x",
        "",
        TEXT.replace("def f(", "def e("),
    ):
        with pytest.raises(ValueError, match=r"no definition in source= compiles to the code of f, defined in <string> line 12"):
            T.compile(f, source=text)
    wrong: Any = 3
    with pytest.raises(TypeError, match="source must be a text, got int"):
        T.compile(f, source=wrong)
    with pytest.raises(ValueError, match="objects of wrapper_descriptor have no Python code"):
        T.compile(object.__repr__, source=TEXT)


def test_a_source_can_be_given_after_a_call_has_missed_it() -> None:
    names: dict[str, Any] = {}
    text = "def given_later(x):\n    def inner(y):\n        return y + 1\n    return inner(x)\n"
    exec(text, names)
    first = T.compile(names["given_later"])
    first(T.ones(2))
    assert [reason.code for reason in first.reasons] == ["no_source"]
    second = T.compile(functools.partial(names["given_later"]), source=text)
    assert [second(T.ones(2)).tolist() for _ in range(2)] == [[2.0, 2.0]] * 2 and second.stats.compiled_calls == 1


def test_methods_of_dataclasses_that_the_program_wrote_are_not_taken_for_generated_ones() -> None:
    names: dict[str, Any] = {"__name__": __name__}
    exec(PROGRAM.split("def helper")[0], names)
    config = names["Config"](2.0)
    compiled = T.compile(lambda x, c: x + 1 if c == c else x - 1)
    assert [compiled(T.zeros(1), config).item() for _ in range(2)] == [-1.0, -1.0]


def test_lines_of_files_come_before_all_else() -> None:
    found = next(sources(test_lines_of_files_come_before_all_else.__code__, globals()))
    assert found[0].startswith('"""capture/function_sources.py')


def test_hooks_of_pyinstaller_are_where_the_package_says() -> None:
    entry = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pyinstaller40"]["hook-dirs"]
    module, _, name = entry.partition(":")
    (directory,) = getattr(importlib.import_module(module), name)()
    hook = (Path(directory) / "hook-tracejit.py").read_text()
    lazy = {m for path in (ROOT / "tracejit").rglob("*.py") for m in re.findall(r'= lazy_module\("([\w.]+)"\)', path.read_text())}
    assert len(lazy) > 2 and all(f'"{m}"' in hook for m in lazy)  # what no import statement names
