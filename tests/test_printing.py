"""What a compiled function tells somebody - prints, loggers, warnings, files, progress bars - comes in each call, with its own numbers."""

# ruff: noqa: B028, UP031

from __future__ import annotations

import io
import logging
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import tracejit as T

CALLS = 5
weight = T.tensor([[1.0, -2.0], [0.5, 3.0]], requires_grad=True)


def told_by(make: Callable[[io.StringIO], Any], compiled: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Any]:
    """What a function of `make` writes in a few calls, and its counts of recordings and replays."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", out)
    function = make(out)
    call = T.compile(function) if compiled else function
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(CALLS):
            answer = call(T.tensor([[float(i), 1.0], [-1.0, i / 4]]))
            out.write(f"{type(answer).__name__}\n")
    for warning in caught:
        out.write(f"{warning.category} {warning.message} {warning.filename} {warning.lineno}\n")
    return out.getvalue(), (call.stats.traces, call.stats.compiled_calls, call.reasons) if compiled else None


def logger_to(out: io.StringIO, level: int = logging.INFO) -> logging.Logger:
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(levelname)s %(filename)s:%(lineno)d %(funcName)s: %(message)s"))
    logger = logging.getLogger(f"training.{id(out)}")
    logger.setLevel(level)
    logger.propagate = False
    logger.handlers[:] = [handler]
    return logger


def prints_of_tensors(out: io.StringIO) -> Any:
    def fn(x: T.Tensor) -> T.Tensor:
        y = x @ weight
        loss = y.sum()
        print(loss, [loss, (y[0], 1)], {"w": weight}, x.int(), y > 0, sep=" | ")
        print(f"{loss} {y} {x!r} {x!s} {loss:.3f}", "%s %.2f %d" % (y[0], loss, loss))
        with T.no_grad():
            x.mul_(0)
        return loss

    return fn


def prints_of_parameters(out: io.StringIO) -> Any:
    layer = T.nn.Linear(2, 2)
    with T.no_grad():
        layer.weight.fill_(0.5)
        layer.bias.fill_(1.0)
    optimizer = T.optim.SGD(layer.parameters(), lr=0.1)

    def fn(x: T.Tensor) -> float:
        print("before", layer.weight, layer.bias)
        optimizer.zero_grad()
        loss = layer(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        print("after", layer.weight, layer.bias.grad)
        return loss.item()

    return fn


def logs(out: io.StringIO) -> Any:
    logger = logger_to(out)

    def fn(x: T.Tensor) -> T.Tensor:
        loss = (x @ weight).sum()
        logger.info("loss %.4f, %d of %s: %s %s", loss.item(), 3, "all", [1, 2], loss)
        logger.debug("nobody is told of %s", loss)
        logger.warning(f"{loss.item():.2f}")
        logger.log(logging.ERROR, "%s", x.argmax().item())
        if logger.isEnabledFor(logging.DEBUG):
            logger.critical("not so")
        return loss

    return fn


def logs_to_the_root(out: io.StringIO) -> Any:
    handler = logging.StreamHandler(out)

    def fn(x: T.Tensor) -> T.Tensor:
        logging.warning("%s", x.sum().item())
        return x * 2

    def with_handler(x: T.Tensor) -> T.Tensor:
        logging.root.addHandler(handler)
        try:
            return call(x)
        finally:
            logging.root.removeHandler(handler)

    call = T.compile(fn)
    return with_handler


def logs_in_a_function_that_is_called(out: io.StringIO) -> Any:
    logger = logger_to(out)

    def report(name: str, value: float) -> None:
        logger.info("%s=%s", name, value)

    def fn(x: T.Tensor) -> T.Tensor:
        report("sum", x.sum().item())
        report("size", len(x))
        return x + 1

    return fn


def warns(out: io.StringIO) -> Any:
    def fn(x: T.Tensor) -> T.Tensor:
        warnings.warn("large: %.2f" % x.sum().item(), RuntimeWarning)
        warnings.warn("always")
        return x * 2

    return fn


def warns_about_callers(out: io.StringIO) -> Any:
    def helper(value: float) -> None:
        warnings.warn(f"of the caller: {value}", stacklevel=2)
        warnings.warn(f"by position: {value}", DeprecationWarning, 2)

    def fn(x: T.Tensor) -> T.Tensor:
        helper(x.sum().item())
        return x * 2

    return fn


def writes(out: io.StringIO) -> Any:
    def fn(x: T.Tensor) -> T.Tensor:
        out.write(f"{x.sum().item()};")
        out.write("line\n")
        sys.stdout.write("%s\n" % x[0])
        out.writelines([f"{v}\n" for v in x[0].tolist()])
        out.flush()
        time.sleep(0)
        return x * 2

    return fn


MAKERS = [prints_of_tensors, prints_of_parameters, logs, logs_in_a_function_that_is_called, warns, warns_about_callers, writes]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_what_is_told_is_what_eager_tells_and_the_calls_are_replayed(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = told_by(make, False, monkeypatch)
    told, (recordings, replays, reasons) = told_by(make, True, monkeypatch)
    assert told == expected
    assert len(set(expected.splitlines())) >= CALLS, "each call has something of its own to tell"
    assert (recordings, replays) == (1, CALLS - 1), reasons


def test_the_root_logger_is_told_with_the_handlers_of_the_day(monkeypatch: pytest.MonkeyPatch) -> None:
    told, _ = told_by(logs_to_the_root, False, monkeypatch)
    assert told.splitlines()[::2] == [str(i + i / 4) for i in range(CALLS)]


def test_the_level_of_a_logger_decides_in_each_call() -> None:
    out = io.StringIO()
    logger = logger_to(out, logging.ERROR)

    @T.compile
    def fn(x: T.Tensor) -> T.Tensor:
        logger.info("%s", x.item())
        return x * 2

    for i in range(6):
        logger.setLevel(logging.INFO if i % 2 else logging.ERROR)
        fn(T.tensor(float(i)))
    assert [line.split()[-1] for line in out.getvalue().splitlines()] == ["1.0", "3.0", "5.0"]
    assert (fn.stats.traces, fn.stats.compiled_calls) == (1, 5)


def test_a_question_for_the_level_of_a_logger_is_two_paths() -> None:
    logger = logger_to(io.StringIO())

    @T.compile
    def fn(x: T.Tensor) -> tuple[bool, T.Tensor]:
        return logger.isEnabledFor(logging.DEBUG), x * 2

    for i in range(6):
        logger.setLevel(logging.DEBUG if i % 2 else logging.INFO)
        assert fn(T.ones(1))[0] is bool(i % 2)
    assert (fn.stats.traces, fn.stats.compiled_calls) == (2, 4)


def test_nothing_is_told_twice_where_an_exit_leads_to_an_eager_call() -> None:
    out = io.StringIO()
    logger = logger_to(out)

    @T.compile
    def fn(x: T.Tensor) -> float:
        value = x.sum().item()
        logger.info("first")
        print("second", file=out)
        return value if value > 0 else -value

    for i in range(8):
        assert fn(T.tensor([1.0 + i]) * (-1) ** i) == 1.0 + i
    assert out.getvalue().count("first") == out.getvalue().count("second") == 8
    assert fn.stats.compiled_calls == 6


def test_what_a_file_says_of_a_write_cannot_decide() -> None:
    out = io.StringIO()

    @T.compile
    def fn(x: T.Tensor) -> int:
        return out.write(f"{x.item()}") + 1

    for i in range(4):
        assert fn(T.tensor(10.0**i)) == len(f"{10.0**i}") + 1
    assert [reason.code for reason in fn.reasons] == ["impure_call"]
    assert out.getvalue() == "1.010.0100.01000.0"


def logs_of_unusual_kinds(out: io.StringIO) -> Any:
    logger = logger_to(out)

    def fn(x: T.Tensor) -> T.Tensor:
        try:
            {}["nothing"]
        except KeyError:
            logger.exception("failed at %s", x.sum().item())
        logger.info("above", stacklevel=1)
        logger.warning({"a": 1})
        logger.error("extra", extra={"more": 2})
        return x * 2

    return fn


def warns_in_unusual_ways(out: io.StringIO) -> Any:
    def fn(x: T.Tensor) -> T.Tensor:
        warnings.warn(DeprecationWarning("an object"))
        warnings.warn("of whoever calls", UserWarning, 2)
        return x * 2

    return lambda x: fn(x)


@pytest.mark.parametrize("make", [logs_of_unusual_kinds, warns_in_unusual_ways])
def test_what_is_told_in_unusual_ways_names_the_programs_line(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = told_by(make, False, monkeypatch)
    told, (_, replays, reasons) = told_by(make, True, monkeypatch)
    assert [line for line in told.splitlines() if "capture" not in line] == expected.splitlines()
    assert replays == 0 and {reason.code for reason in reasons} == {"impure_call"}


def test_a_warning_that_is_an_error_is_raised_where_the_program_handles_it() -> None:
    def fn(x: T.Tensor) -> T.Tensor:
        try:
            warnings.warn("strange")
        except UserWarning:
            return -x
        return x * 2

    compiled = T.compile(fn)
    for i in range(9):
        with warnings.catch_warnings():
            warnings.simplefilter("error" if i % 3 == 2 else "ignore")
            assert compiled(T.ones(1)).item() == fn(T.ones(1)).item() == (-1.0 if i % 3 == 2 else 2.0)
    assert compiled.stats.compiled_calls >= 5
    assert {reason.code for reason in compiled.reasons} == {"impure_call"}


def test_a_warning_is_told_once_for_each_line() -> None:
    compiled = T.compile(fn := lambda x: (warnings.warn("once"), x * 2)[1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(5):
            compiled(T.ones(1))
        fn(T.ones(1))
    assert [str(warning.message) for warning in caught] == ["once"]
    assert compiled.stats.compiled_calls == 4


def test_a_file_that_is_closed_raises_where_it_is_written_to() -> None:
    def fn(x: T.Tensor, out: io.StringIO) -> T.Tensor:
        try:
            out.write(f"{x.item()}")
        except ValueError:
            return -x
        return x

    compiled, told = T.compile(fn), {}
    for call in (fn, compiled):
        out = io.StringIO()
        assert [call(T.tensor(float(i)), out).item() for i in range(5)] == [0, 1, 2, 3, 4]
        told[call] = out.getvalue()
        out.close()
        assert [call(T.tensor(float(i)), out).item() for i in range(5)] == [0, -1, -2, -3, -4]
    assert told[fn] == told[compiled] == "0.01.02.03.04.0"
    assert compiled.stats.compiled_calls >= 4


def test_calls_of_loggers_of_unusual_kinds_are_made_eagerly_with_a_reason() -> None:
    out = io.StringIO()
    logger = logger_to(out)

    @T.compile
    def fn(x: T.Tensor) -> T.Tensor:
        logger.info("with %(name)s", {"name": x.item()})
        return x

    for i in range(3):
        fn(T.tensor(float(i)))
    assert [reason.code for reason in fn.reasons] == ["impure_call"]
    assert [line.split(": ")[1].split(" {")[0] for line in out.getvalue().splitlines()] == [f"with {i}.0" for i in range(3)]


def test_progress_bars_move_in_each_call() -> None:
    tqdm = pytest.importorskip("tqdm")
    told = []
    for compiled in (False, True):
        out = io.StringIO()
        bar = tqdm.tqdm(total=CALLS, file=out, mininterval=0, bar_format="{n_fmt}/{total_fmt} {desc}{postfix}")

        def fn(x: T.Tensor, bar: Any = bar) -> T.Tensor:
            bar.set_description(f"at {x.sum().item():.1f}", refresh=False)
            bar.set_postfix(loss=x.sum().item(), of=x)
            bar.set_postfix({"sum": x.sum().item(), "of": x}, refresh=False)
            bar.update(1)
            return x * 2

        call = T.compile(fn) if compiled else fn
        for i in range(CALLS):
            call(T.tensor([float(i)]))
        told.append(out.getvalue())
        bar.close()
        if compiled:
            assert (call.stats.traces, call.stats.compiled_calls) == (1, CALLS - 1), call.reasons
    assert told[0] == told[1]
    assert told[0].count("loss=") >= CALLS


def lines_of(make: Callable[[logging.Logger], Any], compiled: bool) -> list[Any]:
    """Who has told what, of each call of a function of `make`, by the records of its logger and by warnings."""
    records: list[Any] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append((record.getMessage(), record.pathname, record.lineno, record.funcName, record.levelname))

    logger = logging.Logger("positions")
    logger.addHandler(Kept())
    function = make(logger)
    call = T.compile(function) if compiled else function
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(4):
            try:
                call(T.tensor([float(i)]))
            except TypeError as error:
                records.append(str(error))
    return [*records, *((str(w.message), w.category, w.filename, w.lineno) for w in caught)]


def passed_to_a_helper(tell: Callable[..., Any]) -> Callable[[logging.Logger], Any]:
    """A step whose helper tells it, from one more line."""

    def make(logger: logging.Logger) -> Any:
        def helper(x: T.Tensor) -> None:
            tell(logger, x)

        def fn(x: T.Tensor) -> T.Tensor:
            helper(x)
            return x * 2

        return fn

    return make


PLACES: dict[str, Callable[..., Any]] = {
    "extra": lambda logger, x: logger.info("a", extra={"more": x.sum().item()}),
    "exc_info": lambda logger, x: logger.error("a", exc_info=ValueError("b")),
    "a dictionary": lambda logger, x: logger.info("a %(b)s", {"b": x.sum().item()}),
    "a number": lambda logger, x: logger.info(x.sum().item()),
    "message by name": lambda logger, x: logger.info(msg="a"),
    "one level up": lambda logger, x: logger.info("a", stacklevel=2),
    "two levels up": lambda logger, x: logger.log(30, "a", stacklevel=3),
    "beyond the stack": lambda logger, x: logger.info("a", stacklevel=500),
    "an adapter": lambda logger, x: logging.LoggerAdapter(logger, {"more": 1}).warning("a %s", x.sum().item()),
    "a deprecated name": lambda logger, x: logger.warn("a") if hasattr(logger, "warn") else None,
    "warning of a level by position": lambda logger, x: warnings.warn("a", UserWarning, 2),
    "warning of a level by name": lambda logger, x: warnings.warn("a", stacklevel=3),
    "warning of level one by position": lambda logger, x: warnings.warn("a", None, 1),
    "warning that is an object": lambda logger, x: warnings.warn(DeprecationWarning("a")),
    "warning of a source": lambda logger, x: warnings.warn("a", RuntimeWarning, 1, x),
    "warning of two levels": lambda logger, x: warnings.warn("a", UserWarning, 1, stacklevel=2),
    "warning of no text": lambda logger, x: warnings.warn(x.sum().item()),
}


@pytest.mark.parametrize("name", PLACES)
def test_what_a_recorded_call_tells_names_the_line_in_the_program(name: str) -> None:
    make = passed_to_a_helper(PLACES[name])
    assert lines_of(make, True) == lines_of(make, False)


def test_a_progress_bar_is_given_a_dictionary() -> None:
    tqdm = pytest.importorskip("tqdm")
    bar = tqdm.tqdm(total=9, file=io.StringIO(), mininterval=0)

    def fn(x: T.Tensor) -> T.Tensor:
        bar.set_postfix({"loss": x.sum().item(), "text": f"{x.max().item():.1f}", "tensor": x.min()})
        return x * 2

    compiled, shown = T.compile(fn), []
    for call in (fn, compiled):
        for i in range(4):
            call(T.tensor([float(i), 1.5]))
            shown.append(bar.postfix)
    assert shown[:4] == shown[4:]
    assert len(set(shown)) == 4
    assert compiled.stats.compiled_calls == 3, compiled.explain()
    bar.close()


@pytest.mark.parametrize("tell", [lambda f, x: f.write(f"{x.sum().item()}"), lambda f, x: print(x.sum().item(), file=f)])
def test_a_file_that_was_closed_raises_where_the_program_handles_it(tell: Callable[..., Any]) -> None:
    def outcomes(compiled: bool) -> tuple[list[Any], Any]:
        file, found = io.StringIO(), []
        names = {"file": file}

        def fn(x: T.Tensor) -> Any:
            try:
                tell(names["file"], x)
            except ValueError as error:
                return str(error), -x
            return x * 2

        call = T.compile(fn) if compiled else fn
        for i in range(8):
            if i == 3:
                file.close()
            if i == 6:
                names["file"] = io.StringIO()
            found.append(repr(call(T.tensor([float(i)]))))
        return found, call

    found, compiled = outcomes(True)
    assert found == outcomes(False)[0]
    assert compiled.stats.traces == 3, compiled.explain()


def test_the_text_of_a_tensor_from_outside_names_the_operation_that_made_it(capsys: pytest.CaptureFixture[str]) -> None:
    x = T.tensor([0.5, 1.5]).requires_grad_()
    tell = T.compile(lambda t: print(t))
    made = [x[0], x[0], x[0] + 0, x[0] + 0, x[0], x]
    for t in made:
        tell(t)
    compiled = capsys.readouterr().out
    for t in made:
        print(t)
    assert compiled == capsys.readouterr().out
    assert tell.stats.compiled_calls >= 3
