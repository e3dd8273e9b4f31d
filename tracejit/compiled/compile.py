"""`compile` and CompiledFunction: the interface to users.

A CompiledFunction creates and connects the objects that serve its calls (the package's docstring lists them), and answers
questions about these calls.  It must not decide anything itself.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, TypeVar, overload

from tracejit.capture.function_sources import modules_by_value, sources_reached, use_source
from tracejit.capture.reasons import Reason
from tracejit.capture.recording.entry import MISS, Exit, Recording
from tracejit.capture.session import declare_inlined
from tracejit.capture.syntax.sources import give_source
from tracejit.capture.tensors import NodeObserver
from tracejit.capture.tracebacks import without_dispatch
from tracejit.compiled.accounts import Accounts
from tracejit.compiled.bridges import BridgeLinker
from tracejit.compiled.diagnostics import Diagnostics
from tracejit.compiled.dispatch import FALLBACK, OWNER, dispatch_function, nothing_recorded
from tracejit.compiled.export import exported_program
from tracejit.compiled.options import CompileWait, Options
from tracejit.compiled.path_table import PathTable, ServeByState
from tracejit.compiled.promotion import Promoter
from tracejit.compiled.recorded_path import RecordedPath
from tracejit.compiled.recording_driver import RecordingDriver
from tracejit.compiled.symbolic_paths import SymbolicPaths
from tracejit.compiled.tier_policy import FullGraphError, TierPolicy
from tracejit.config import backend_named
from tracejit.core.compiler import installed
from tracejit.core.interpreter import pushed_anywhere
from tracejit.core.lazy import lazy_module
from tracejit.core.progress import Progress
from tracejit.core.weak_table import WeakTable
from tracejit.core.whole_file import written
from tracejit.cpython.dispatcher import dispatcher
from tracejit.cpython.size_table import Reach
from tracejit.ffi.c_function import CFunction
from tracejit.ffi.plain_program import PlainProgram
from tracejit.report.account import Account
from tracejit.report.explain import explain_function, source_text
from tracejit.report.graph_drawing import GraphText, drawn_text
from tracejit.report.page import page, short
from tracejit.report.stats import Stats
from tracejit.report.summary import summary
from tracejit.tensor import Tensor

__all__ = ["CompiledFunction", "FullGraphError", "RecordedPath", "compile", "compiled_functions"]

numba_function = lazy_module("tracejit.ffi.numba_function")

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

if TYPE_CHECKING:
    from tracejit.ffi.numba_function import NjitFunction

    class _Partial(functools.partial[R], Generic[P, R]):
        """A partial without arguments, which has the signature of its function."""

        def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R: ...

else:
    _Partial = functools.partial

_compiled: WeakTable[None] = WeakTable()
_DEFAULT: Final = Options()
_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, functools.partial, type)


class CompiledFunction(_Partial[P, R]):
    """The result of `compile`.  Call it like the function; `stats`, `explain()`, `report()`, `graph()`, `source()` tell what
    happened.

    It is a functools.partial without arguments so that C calls the dispatcher (cpython/dispatcher.py) directly.  A `__call__`
    written in Python costs 0.1 us more, and would be in the traceback of errors that the function raises."""

    __wrapped__: Callable[P, R]
    stats: Stats
    _options: Options
    _wait: CompileWait
    _diagnostics: Diagnostics
    _table: PathTable
    _policy: TierPolicy
    _promoter: Promoter
    _driver: RecordingDriver

    def __new__(
        cls, function: Callable[P, R], options: Options = _DEFAULT, piece_of: CompiledFunction[..., Any] | None = None
    ) -> CompiledFunction[P, R]:
        """piece_of: if `function` is the body of a loop that is compiled as a piece, the compiled function of which it is a
        piece."""
        slots: list[Any] = [nothing_recorded, None, None, None, None]
        accounts = Accounts(function, piece_of is not None)
        self = super().__new__(
            cls,
            dispatcher(
                function,
                slots,
                pushed_anywhere,
                Exit,
                MISS,
                dispatch_function(slots),
                without_dispatch,
                accounts.resting_calls,
                Tensor,
            ),
        )
        functools.update_wrapper(self, function, updated=())
        self.__wrapped__ = function
        self._options = options
        self._wait = wait = CompileWait() if piece_of is None else piece_of._wait
        self._diagnostics = diagnostics = Diagnostics(function, accounts)
        self.stats = stats = diagnostics.stats
        self._table = table = PathTable(
            slots, SymbolicPaths(options.dynamic, Reach.ALL if piece_of is None else Reach.ARGUMENTS), diagnostics.advice
        )
        self._policy = policy = TierPolicy(
            function, options.fullgraph, accounts, table, diagnostics, lambda step: CompiledFunction(step, options, self)
        )
        self._promoter = promoter = Promoter(table, diagnostics, wait)
        self._driver = driver = RecordingDriver(function, options, wait, table, policy, promoter, diagnostics)
        table.serve_by_state = ServeByState(
            policy.serve_in_pieces, policy.serve_resting, policy.serve_warned, promoter.serve_stale
        )
        slots[FALLBACK] = BridgeLinker(table, policy, promoter, driver, stats).serve_after_exit
        slots[OWNER] = self
        _compiled[self] = None
        return self

    # -- for shadow.py and tests, which compare calls
    def paths(self) -> list[RecordedPath]:
        """The recorded paths, the one that is tried first in front."""
        first = self._table.first
        return sorted(self._table.paths, key=lambda path: path is not first)

    def serve(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call as paths serve it, also inside of other recordings; or UNSERVED."""
        return self._table.serve(args, kwargs)

    def recorded(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], observer: NodeObserver, known: Recording | None = None
    ) -> tuple[Recording, Any] | None:
        """Run a call eagerly and record it, without keeping the path.  Returns (recording, result), or None if another thread is
        recording.  known: an earlier recording of such a call; the new one is made with the same settings."""
        return self._driver.recorded(args, kwargs, observer, known)

    # -- questions of the user
    @property
    def reasons(self) -> dict[Reason, int]:
        """The reasons why calls ran eagerly, with the number of recordings that ended for each."""
        self._install_finished()
        return dict(self._diagnostics.reasons)

    def explain(self, verbose: bool = False) -> str:
        """A text that tells how this function runs: one sentence; what to do, if there is something; what made calls run as Python,
        with your lines; the paths that serve calls.  verbose: also counts, all paths, guards, exits, programs and passes."""
        return (explain_function if verbose else summary)(self._account())

    def report(self, path: str | os.PathLike[str], *, times: bool = True) -> str:
        """Write a report of all that happened to this function as one HTML file, to be opened in a browser, and return its path.

        It has the source with, line by line, what was compiled, what runs beside the program and what made calls run
        eagerly; the recorded paths as a tree, with what tells them apart; and the programs: graphs, steps, bytes, times.

        path: of the file, which is replaced at once.  times: whether the steps of programs are measured on made-up arrays, which
        takes up to some seconds.  Raises OSError if the file cannot be written."""
        return str(written(path, page(self._account(), times).encode("utf-8", "replace")))

    def _repr_html_(self) -> str:
        return short(self._account())

    def _account(self) -> Account:
        self._install_finished()
        table, diagnostics = self._table, self._diagnostics
        pieces = table.pieces
        return Account(
            diagnostics.name,
            self.__wrapped__,
            diagnostics.stats,
            table.paths,
            dict(diagnostics.reasons),
            self._policy.divergence,
            table.is_full(),
            self._driver.pending is not None,
            self._policy.accounts.is_resting,
            table.symbolic.describe(),
            table.symbolic.fixed_sizes(),
            "" if pieces is None else pieces.text,
            () if pieces is None else tuple([part._account() for part in pieces.parts]),
            pieces is not None and pieces.calls_compiled,
        )

    def _install_finished(self) -> None:
        """Install what has been compiled in the background, so that answers include it."""
        with suppress(FullGraphError):  # the reasons include it
            self._driver.install_finished()

    def graph(self, index: int = -1) -> GraphText:
        """The optimised graph of a recorded path (the latest by default) as Python that runs: a str.  Its methods `svg(path)` and
        `dot()` draw it.  Raises RuntimeError if there is none."""
        return drawn_text(self._path(index), self.__wrapped__)

    def source(self, index: int = -1) -> str:
        """The programs of a recorded path as the source of a Python module that needs only NumPy and Numba: `run`, and
        `backward0`, `backward1` ... as far as they have been compiled.  Operations that NumPy does not have raise in it.  Raises
        RuntimeError if there is no path."""
        return source_text(self._path(index).executable)

    def warm_up(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function as usual, with its effects and its result, and wait until all programs are compiled: the one of its
        path, and for each recorded path whose results require grad the backward program for all these results and the one for
        each alone.  Backward programs are compiled but not run.  The call is recorded even if the paths of earlier ones served none.

        On a terminal, a bar counts the programs and the time after half a second, where tqdm is installed.  All arguments are
        the function's, so it is turned off by TRACEJIT_PROGRESS=0 or `config.override(progress=False)`.

        Raises what the call raises, and what compiling a backward program raises.  A call that cannot be compiled runs
        eagerly."""
        waits, reason = self._wait.reasons, object()
        try:
            waits.append(reason)
            with Progress(f"warm_up {self._diagnostics.name}", unit=" programs", between_steps=True) as progress:
                pending = self._driver.pending
                if pending is not None:
                    pending.work.wait_until(math.inf)
                    self._driver.install_finished()
                self._policy.accounts.forgive()
                result = self(*args, **kwargs)
                progress.step()
                pieces = self._table.pieces
                for function in (self, *(() if pieces is None else pieces.parts)):
                    for path in function._table.paths:
                        path.executable.warm_up(progress.step)
        finally:
            if reason in waits:
                waits.remove(reason)
        return result

    def njit(self, *example_arguments: Any, more: Sequence[Sequence[Any]] = ()) -> NjitFunction:
        """The function as a value that code under `numba.njit` calls, without Python: in loops, in threads, in
        `prange`, without the GIL.

        example_arguments: arrays, tensors, floats or ints, one for each argument.  Calls take arrays of the same
        dtypes and sizes (row-major) and numbers; they return what the function returns, a tensor as a new array, one
        without dimensions as a number.  With `out=` (an array, or a tuple of one for each result that is an array)
        results are written there, and nothing is allocated.  more: further tuples of examples, which take other
        branches.

        The function is called with the examples, and recorded.  Values from outside are as they are then: a call sees
        what is written in place to a tensor that the function reads, such as a parameter, and does not see a name
        that is bound anew.  Pass the result to functions under `njit(cache=True)` as an argument, since Numba keeps
        no code in files that has a global's address.

        Calls raise ffi.NoCompiledPathError, with the line, where a branch takes a way that no example took or an
        operation fails, ValueError for other sizes; Numba raises TypingError for other types when it compiles the
        caller.

        Raises ffi.CannotExportError, with the reason, for a function that is not one program or has effects (writes,
        prints, random draws), and TypeError for other examples."""
        made: NjitFunction = numba_function.NjitFunction(self._plain_program("njit", example_arguments, more))
        return made

    def cfunc(
        self,
        *example_arguments: Any,
        prototype: str | None = None,
        success: int = 0,
        fallback: bool = False,
        more: Sequence[Sequence[Any]] = (),
    ) -> CFunction:
        """The function as a pointer to a C function, for libraries that call back: its `address`, or its `ctypes`
        form, which scipy.LowLevelCallable takes.

        example_arguments, more: as for `njit`.  prototype: what the C function looks like, such as "double (int n,
        double *x, void *)".  A parameter with the name of an argument is that argument; of the others, pointers are
        the arguments that are arrays, then the results, in order, and numbers the arguments that are numbers; another
        integer is the size of the pointer beside it, and `void *` is ignored.  None: `double (double, ...)` for
        numbers alone, else a status, the arguments, then the results.  success: what a C function that returns int
        returns if the call was served; if not, 1, or 0 where that is success.

        C has no exceptions.  Where `njit` raises NoCompiledPathError, or a size differs, the C function returns
        failure, a function that returns a number NaN; one that returns nothing sets its results to NaN.  fallback: whether
        calls that no compiled path serves call this function instead, in Python, with the GIL; only a call in which it
        raises fails then, and the error is appended to `errors` of the result.

        Raises what `njit` raises, CannotExportError for a prototype that does not fit, ValueError for a text that is
        no prototype."""
        return CFunction(self._plain_program("cfunc", example_arguments, more), prototype, success, self if fallback else None)

    def _plain_program(self, method: str, examples: Sequence[Any], more: Sequence[Sequence[Any]]) -> PlainProgram:
        function = self.__wrapped__
        own: CompiledFunction[..., Any] = CompiledFunction(function, replace(self._options, dynamic=False, fullgraph=False))
        own._wait.reasons.append(compile)
        return exported_program(f"{self._diagnostics.name}.{method}()", function, own, self, examples, more)

    def clear(self) -> None:
        """Forget all recorded paths and reasons; reset the statistics."""
        for part in (self._driver, self._promoter, self._policy, self._diagnostics, self._table):
            part.clear()

    def _path(self, index: int) -> RecordedPath:
        self._install_finished()
        paths = self._table.paths
        if not paths:
            own = "it was not called yet" if self._table.pieces is None else "it runs in pieces, which explain() shows"
            why = "; ".join(map(str, self._diagnostics.reasons)) or own
            raise RuntimeError(f"{self._diagnostics.name}: nothing was compiled: {why}")
        return paths[index]

    # -- behaving like the function
    @overload
    def __get__(self, instance: None, owner: type | None = None) -> CompiledFunction[P, R]: ...
    @overload
    def __get__(  # a bound method, which forwards attributes to its function
        self: CompiledFunction[Concatenate[Any, Q], R], instance: object, owner: type | None = None
    ) -> CompiledFunction[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """For `isinstance`: a compiled Module or other object passes for an instance of its class."""
        function = self.__dict__.get("__wrapped__")
        return type(self) if function is None or isinstance(function, _FUNCTIONS) else function.__class__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "__wrapped__" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __reduce__(self) -> Any:
        """A copy or pickle has the function and its options, not the paths.  A decorated function is pickled by its name.  If the
        pickler pickles functions of its module by value, the pickle also has their source texts."""
        function = self.__wrapped__
        module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
        by_name: Any = sys.modules.get(module) if isinstance(module, str) else None
        for part in name.split(".") if isinstance(name, str) else ():
            by_name = getattr(by_name, part, None)
        modules = modules_by_value()
        if by_name is self and module not in modules:
            return name
        options = {**asdict(self._options), "wait": compile in self._wait.reasons}
        return _restored, (function, options, sources_reached(function, modules))

    def __repr__(self) -> str:
        return f"<compiled {self._diagnostics.name}: {self.stats}>"


_MODES: Final = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@overload
def compile(
    function: Callable[P, R], /, *, fullgraph: bool = ..., dynamic: bool | None = ..., backend: str | None = ..., mode: str | None = ...,
    options: dict[str, Any] | None = ..., disable: bool = ..., wait: bool = ..., source: str | None = ...,
) -> CompiledFunction[P, R]: ...  # fmt: skip
@overload
def compile(
    function: None = None, /, *, fullgraph: bool = ..., dynamic: bool | None = ..., backend: str | None = ..., mode: str | None = ...,
    options: dict[str, Any] | None = ..., disable: bool = ..., wait: bool = ..., source: str | None = ...,
) -> Callable[[Callable[P, R]], CompiledFunction[P, R]]: ...  # fmt: skip
def compile(
    function: Any = None, /, *, fullgraph: bool = False, dynamic: bool | None = None, backend: str | None = None,
    mode: str | None = None, options: dict[str, Any] | None = None, disable: bool = False, wait: bool = False,
    source: str | None = None,
) -> Any:  # fmt: skip
    """Compile a function, a method (in its class body), or a Module (any callable object).

    The first call of each kind runs eagerly and is recorded.  Later calls for which the guards of a recording hold run as machine
    code, with the same results (docs/equality.md).  A call that cannot be recorded runs eagerly, and `explain()` says why.

    A call waits for its program for one second at most (`config.compile_wait`).  If compiling takes longer, it continues in the
    background while calls run eagerly.

    fullgraph: whether a call that is not a single program raises FullGraphError, with the reason and the line.  A call that
        cannot be replayed, or that has calls besides the program (print), raises after it has run; one for which there is no room
        among the recorded paths raises before.  Numbers that leave the program (`.item()`) and stores are allowed.
    dynamic: which sizes of tensors among the arguments are symbolic: all from the first call on (True), none (False), or those
        that have been seen with a second value (None).  It decides what is recorded again, never the result of a call.
    mode, options: accepted as in PyTorch, without effect.
    backend: "llvm", "numba", "reference" or "interpret".  PyTorch's "eager" means "interpret", its "inductor" the configured one.
    disable: whether to return the function itself.
    wait: whether calls wait for their programs, forward and backward, however long compiling takes.
    source: a text that contains the definition, for functions that were defined by exec() or read from a pipe, since Python does
        not keep their source.  Other functions in the text are found there, too.

    Raises TypeError if `function` cannot be called, ValueError for an unknown backend or a source without the definition of the
    function, RuntimeError for an unknown mode."""
    if mode is not None and mode not in _MODES:
        raise RuntimeError(f"compile(): mode must be one of {', '.join(_MODES)}, got {mode!r}")
    chosen = backend_named(backend)
    if function is None:
        return functools.partial(
            compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable, wait=wait,
            source=source,
        )  # fmt: skip
    if not callable(function):
        raise TypeError(f"compile(): expected a function or a callable object, got {type(function).__name__}")
    if source is not None:
        use_source(function, source)
    if disable or isinstance(function, CompiledFunction):
        return function
    compiled = CompiledFunction(function, Options(bool(fullgraph), dynamic, chosen))
    if wait:
        compiled._wait.reasons.append(compile)
    return compiled


def _restored(function: Any, options: dict[str, Any], sources: tuple[str, ...]) -> Any:
    """The compiled function of a pickle."""
    for text in sources:
        give_source(text)
    return compile(function, **options)


def compiled_functions() -> list[CompiledFunction[..., Any]]:
    """All compiled functions of the process that are alive, including pieces."""
    return _compiled.keys()


declare_inlined(CompiledFunction)
installed.append(compile)
