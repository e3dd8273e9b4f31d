"""Calls of C code and of the standard library: put off, read again, or computed from what each call has, they come to what eager's do."""

from __future__ import annotations

import contextvars
import csv
import datetime
import gc
import hashlib
import io
import json
import logging
import os
import pickle
import platform
import queue
import random
import shutil
import sqlite3
import struct
import sys
import tempfile
import threading
import time
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tracejit as T
from tracejit.config import override

CALLS = 5
folder = Path(tempfile.mkdtemp())
weight = T.tensor([1.0, -2.0], requires_grad=True)


def state() -> SimpleNamespace:
    out = io.StringIO()
    gc.collect()  # what other tests have left
    made = SimpleNamespace(
        named=csv.DictWriter(out, ["i", "sum"]), out=out, writer=csv.writer(out), queue=queue.Queue(), simple=queue.SimpleQueue(),
        kept=[], path=str(folder / "file.txt"), metrics={"loss": 0.5, "epochs": [1, 2.5]}, count=0, text="",
        started=datetime.datetime.now(), base=sqlite3.connect(":memory:"), array=np.arange(3.0),
    )  # fmt: skip
    made.base.execute("create table t (loss real, step integer)")
    return made


def drained(s: SimpleNamespace) -> list[Any]:
    """What others have been told."""
    found = [s.out.getvalue(), s.kept, s.count, s.text]
    while not s.queue.empty():
        found.append(s.queue.get())
    while not s.simple.empty():
        found.append(s.simple.get())
    if os.path.exists(s.path + ".pt"):
        found.append(T.load(s.path + ".pt"))
        os.remove(s.path + ".pt")
    if os.path.exists(s.path):
        found.append(Path(s.path).read_text())
        os.remove(s.path)
    return plain(found)


def plain(value: Any) -> Any:
    if isinstance(value, (T.Tensor, np.ndarray)):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else value


def rows_of_a_table(x: T.Tensor, i: int, s: SimpleNamespace) -> T.Tensor:
    s.writer.writerow([i, x.sum().item(), f"{x.mean():.2f}"])
    return x * 2


def rows_by_name(x: T.Tensor, i: int, s: SimpleNamespace) -> T.Tensor:
    csv.DictWriter(s.out, ["i", "sum"]) if i < 0 else s.named.writerow({"i": i, "sum": x.sum().item()})
    s.writer.writerow(v.item() for v in x)
    s.writer.writerows(map(list, zip([i, 1], x.tolist(), strict=True)))
    return x * 2 if s.queue.put(1) is None else x


def lines_of_json(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    s.out.write(json.dumps({"step": i, "loss": x.sum().item(), "inner": [x[0].item(), (i, "a")]}) + "\n")
    json.dump({"last": x[1].item()}, s.out)
    return x * 2, json.dumps(s.metrics), json.dumps({"m": s.metrics, "x": x.tolist()}, sort_keys=True)


def json_of_a_changing_metric(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    s.metrics["loss"] = x.sum().item()
    return x * 2, json.dumps(s.metrics, indent=1)


def queues(x: T.Tensor, i: int, s: SimpleNamespace) -> T.Tensor:
    y = x * 2
    s.queue.put((i, y.sum().item()))
    s.queue.put_nowait({"y": y, "n": [1, 2]})
    s.simple.put(x.mean().item())
    return y


def a_file_made_inside(x: T.Tensor, i: int, s: SimpleNamespace) -> T.Tensor:
    with open(s.path, "a") as file:
        file.write(f"{i} {x.sum().item()}\n")
        print("step", i)
    return x + 1


def a_buffer_made_inside(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    buffer = io.StringIO()
    buffer.write(f"{x.sum().item()};")
    buffer.write(str(i))
    s.text = buffer.getvalue()
    return buffer.getvalue(), x * 2


def answers_that_are_kept(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    digest = hashlib.md5(b"abc")
    s.kept.append([digest.hexdigest(), s.out.write("a"), f"{s.out.tell()} so far"])
    return {"at": s.out.tell(), "all": s.out.getvalue()}, x * 2


def packed(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    return struct.pack("<fi", x.sum().item(), i), zlib.crc32(b"abc" * 2), json.dumps([i, x[0].item()]), x


def array_saved(x: T.Tensor, i: int, s: SimpleNamespace) -> T.Tensor:
    np.savetxt(s.path, (x * 2).numpy())
    return x + 1


def array_saved_before_it_changes(x: T.Tensor, i: int, s: SimpleNamespace) -> T.Tensor:
    y = x * 2
    np.savetxt(s.path, y.numpy())
    y.add_(1)
    return y


def collected(x: T.Tensor, i: int, s: SimpleNamespace) -> T.Tensor:
    gc.collect()
    os.makedirs(folder / "deep" if i < 0 else str(folder), exist_ok=True)
    return x * 2


def read_of_the_process(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    name = threading.current_thread().name
    return x * (os.getpid() > 0), os.getpid(), os.getcwd(), platform.system(), name, sys.getrecursionlimit() > 1


def moments(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    begun = datetime.datetime.now()
    y = x * 2
    took = (datetime.datetime.now() - begun).total_seconds()
    s.kept.append(took >= 0)
    late = datetime.datetime.now() > s.started
    return y, late, len(f"{begun:%Y-%m-%d}") if i < 0 else 10, isinstance(begun, datetime.datetime)


def names_of_runs(x: T.Tensor, i: int, s: SimpleNamespace) -> T.Tensor:
    run = uuid.uuid4()
    s.run = run.hex, str(run)
    s.when = datetime.datetime.now().isoformat(), time.ctime()
    return x * 3


def told_before_and_after(x: T.Tensor, i: int, s: SimpleNamespace) -> T.Tensor:
    s.out.write("one ")
    s.count += 1
    s.writer.writerow([s.count, x.sum().item()])
    s.count += 1
    s.writer.writerow([s.count])
    return x * s.count


def list_that_changes_afterwards(x: T.Tensor, i: int, s: SimpleNamespace) -> T.Tensor:
    row = [i]
    s.queue.put(row)
    row.append(x.sum().item())
    return x * 2


def trained(x: T.Tensor, i: int, s: SimpleNamespace) -> float:
    loss = ((x * weight) ** 2).sum()
    weight.grad = None
    loss.backward()
    s.writer.writerow([i, loss.item()])
    with T.no_grad():
        weight.sub_(weight.grad, alpha=0.01)
    return loss.item()


def saved(x: T.Tensor, i: int, s: SimpleNamespace) -> T.Tensor:
    loss = (x * weight).sum()
    with T.no_grad():
        weight.mul_(0.9)
    T.save({"weight": weight, "x": x * 2, "step": i, "loss": loss.item(), "all": [weight.detach()]}, s.path + ".pt")
    s.kept.append(str(T.load(s.path + ".pt")) if i < 0 else None)
    return loss.detach()


def saved_before_it_changes(x: T.Tensor, i: int, s: SimpleNamespace) -> T.Tensor:
    T.save(weight, s.path + ".pt")
    with T.no_grad():
        weight.mul_(0.9)
    return x


COMPILED: list[Callable[..., Any]] = [
    rows_of_a_table, rows_by_name, lines_of_json, json_of_a_changing_metric, queues, a_file_made_inside, a_buffer_made_inside,
    answers_that_are_kept, packed, array_saved, collected, read_of_the_process, moments, told_before_and_after, trained, saved,
]  # fmt: skip


def run(call: Any, capsys: pytest.CaptureFixture[str]) -> list[Any]:
    s = state()
    with T.no_grad():
        weight.copy_(T.tensor([1.0, -2.0]))
    found = [plain(call(T.tensor([i / 2, 1.0]), i, s)) for i in range(CALLS)]
    told = drained(s)
    s.base.close()
    return [found, told, weight.tolist(), capsys.readouterr().out]


@pytest.mark.parametrize("hot", [0, 1])
@pytest.mark.parametrize("function", COMPILED)
def test_calls_outside_are_made_in_each_call_with_its_values(function: Any, hot: int, capsys: pytest.CaptureFixture[str]) -> None:
    expected = run(function, capsys)
    with override(hot_calls=hot):
        compiled = T.compile(function)
        assert run(compiled, capsys) == expected
    assert compiled.stats.traces == 1 and compiled.stats.compiled_calls == CALLS - 1, compiled.explain()


def test_each_call_has_a_name_and_a_moment_of_its_own() -> None:
    compiled, s, seen = T.compile(names_of_runs), state(), set()
    for i in range(CALLS):
        compiled(T.ones(2), i, s)
        seen.add(s.run)
        assert s.run[0] == s.run[1].replace("-", "") and len(s.when[0]) >= 19
    assert len(seen) == CALLS and compiled.stats.compiled_calls == CALLS - 1
    s.base.close()


# -- what stays eager
def array_of_answers(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    return x * len(struct.unpack("<ii", s.out.getvalue().encode() or b"12345678"))


def file_that_is_not_there(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    return size_of(x, s.path)


def size_of(x: T.Tensor, name: str) -> T.Tensor:
    try:
        return x * os.path.getsize(name)
    except OSError:
        return -x


def list_in_itself(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    row: list[Any] = [i]
    row.append(row)
    try:
        return json.dumps(row), x
    except ValueError:
        return "circular", x


def answer_that_decides(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    return x if s.out.tell() >= 0 else -x


def answer_of_unknown_type(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    return x, s.out.tell() is None, isinstance(s.out.tell(), str), type(s.out.tell())


def answer_as_a_key(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    return {s.out.tell(): x}


def answer_computed_with(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    return s.out.tell() + 1, x


def handled(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    try:
        return struct.pack("<B", i - 2), x
    except struct.error:
        return "raised", x


def handled_further_out(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    def inner() -> Any:
        return hashlib.new("md5" if i < 3 else "none").hexdigest()

    try:
        return inner(), x
    except ValueError:
        return "raised", x


class Suppressing:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> bool:
        return True


def handled_by_a_manager(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    with Suppressing():
        hashlib.new("md5" if i < 3 else "none")
        s.count += 1
    return x, s.count


def raises_before_a_write(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    s.text = hashlib.new("md5" if i < 3 else "md4!").name if i < 0 else hashlib.new("md5").hexdigest()
    with T.no_grad():
        weight.mul_(0.5)
    return x


def given_a_container_from_outside(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    return x, sys.getsizeof(s.kept) > 0


def given_memory(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    s.memory = bytearray(8)
    struct.pack_into("<f", s.memory, 0, 1.0)
    return x, bytes(s.memory)


def given_a_function(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    return x, json.loads("[1]", parse_int=lambda v: v * 2)


def asks_the_collector(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    return x * gc.isenabled()


def asks_the_profiler(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    return x, sys.getprofile()


def file_looked_for_after_it_was_made(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    with open(s.path, "a") as file:
        file.write("a")
    return x * os.path.getsize(s.path)


EAGER = [
    file_that_is_not_there, list_in_itself,
    array_of_answers, answer_that_decides, answer_of_unknown_type, answer_as_a_key, answer_computed_with, handled, handled_further_out,
    handled_by_a_manager, raises_before_a_write, given_a_container_from_outside, given_memory, given_a_function, asks_the_collector,
    asks_the_profiler, file_looked_for_after_it_was_made, array_saved_before_it_changes, list_that_changes_afterwards,
    saved_before_it_changes,
]  # fmt: skip


@pytest.mark.parametrize("function", EAGER)
def test_what_cannot_be_put_off_makes_a_function_eager_with_its_line(function: Any, capsys: pytest.CaptureFixture[str]) -> None:
    expected = run(function, capsys)
    compiled = T.compile(function)
    assert run(compiled, capsys) == expected
    if function is not handled:  # what is known of the numbers is another path for each
        assert compiled.stats.compiled_calls == 0 and compiled.reasons, compiled.explain()


def test_a_file_that_appears_is_another_path() -> None:
    path = str(folder / "appears")

    def function(x: T.Tensor) -> T.Tensor:
        return x * (2 if os.path.exists(path) else 3)

    compiled = T.compile(function)
    found = []
    for i in range(6):
        if i == 3:
            Path(path).touch()
        found.append(compiled(T.ones(1)).item())
    os.remove(path)
    assert [*found, compiled(T.ones(1)).item()] == [3, 3, 3, 2, 2, 2, 3]
    assert compiled.stats.traces == 2


def test_a_file_that_goes_is_noticed_where_the_program_handles_it() -> None:
    path = folder / "goes"
    path.write_text("abc")
    name = str(path)
    compiled = T.compile(lambda x: size_of(x, name))
    found = [compiled(T.ones(1)).item() for _ in range(3)]
    path.unlink()
    found += [compiled(T.ones(1)).item() for _ in range(3)]
    path.write_text("abcd")
    assert [*found, compiled(T.ones(1)).item()] == [3, 3, 3, -1, -1, -1, 4]
    assert compiled.stats.compiled_calls >= 2
    path.unlink()


def test_what_only_checks_its_arguments_raises_in_each_call() -> None:
    def function(x: T.Tensor, day: int) -> T.Tensor:
        struct.pack("<B", day * 10)
        return x * 2

    compiled = T.compile(function)
    for day in (1, 2, 3):
        assert compiled(T.ones(1), day).item() == 2
    for day in (26, 30):
        with pytest.raises(struct.error):
            compiled(T.ones(1), day)
    assert compiled.stats.traces == 1


def test_what_is_put_off_and_raises_is_raised_after_what_was_told_before_it() -> None:
    out = io.StringIO()
    target = io.StringIO()

    def function(x: T.Tensor) -> T.Tensor:
        y = x * 2
        out.write("before ")
        target.seek(0)
        out.write("after ")
        return y

    compiled = T.compile(function)
    for _ in range(3):
        compiled(T.ones(2))
    target.close()
    with pytest.raises(ValueError, match="closed"):
        compiled(T.ones(2))
    assert out.getvalue() == "before after " * 3 + "before " and compiled.stats.compiled_calls == 3


def test_a_strict_compilation_refuses_what_is_put_off() -> None:
    compiled, s = T.compile(lambda x, s: (s.writer.writerow([1]), x)[1], fullgraph=True), state()
    with pytest.raises(RuntimeError, match="writerow"):
        compiled(T.ones(1), s)
    s.base.close()


# -- programs that once came to something else than eager
def told_in_full(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    d = {"a": i, "in": [x.sum().item()]}
    json.dump(d, s.out)
    d["a"] = 2
    d["in"].append(3)
    return d


def row_of_a_database(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    s.base.execute("insert into t values (?, ?)", (x.sum().item(), i))
    return x, s.base.execute("select count(*) from t").fetchone()


def queue_looked_at(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    s.queue.put(i)
    return x * s.queue.unfinished_tasks, s.queue.qsize(), len(s.queue.queue)


def pickled(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    row = [1.0, x.sum().item()]
    return pickle.loads(pickle.dumps([row, row]))[0] is row, pickle.dumps([row, row]), x


def year_of(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    try:
        return x, time.gmtime(10**30 if i == 4 else i).tm_year
    except (OverflowError, ValueError, OSError):
        return -x


def interval_divided(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    try:
        s.interval = (datetime.datetime.now() - s.started) / (i - 3)
    except ZeroDivisionError:
        return -x
    return x


def not_finite(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    try:
        return json.dumps({"l": (x / (3 - i)).sum().item()}, allow_nan=False), x
    except ValueError:
        return "not finite", x


def set_in_a_context(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    VARIABLE.set(i)
    return x, VARIABLE.get(0)


def drawn_from_nothing(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    try:
        return x * random.Random(i).randrange(3 - i)
    except ValueError:
        return -x


def quiet_logarithm(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    with np.errstate(all="ignore"):
        return np.log(s.array), x


def slept_between_two_readings(x: T.Tensor, i: int, s: SimpleNamespace) -> Any:
    start, begun = time.perf_counter(), datetime.datetime.now()
    time.sleep(0.02)
    s.kept.append(time.perf_counter() - start >= 0.02)
    s.kept.append((datetime.datetime.now() - begun) >= datetime.timedelta(seconds=0.015))
    return x * 2


VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("VARIABLE", default=-1)
MENDED = [
    told_in_full, row_of_a_database, queue_looked_at, pickled, year_of, interval_divided, not_finite, set_in_a_context, drawn_from_nothing,
    quiet_logarithm, slept_between_two_readings,
]  # fmt: skip


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("hot", [0, 1])
@pytest.mark.parametrize("function", MENDED)
def test_what_is_put_off_is_what_eager_does(function: Any, hot: int, capsys: pytest.CaptureFixture[str]) -> None:
    expected = run(function, capsys)
    with override(hot_calls=hot):
        assert run(T.compile(function), capsys) == expected


def test_a_lock_is_not_held_while_others_are_told_who_take_it() -> None:
    s, free = state(), []
    s.lock = threading.Lock()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            free.append(s.lock.acquire(blocking=False))
            if free[-1]:
                s.lock.release()

    logger = logging.Logger("locks")
    logger.addHandler(Handler())

    def function(x: T.Tensor) -> T.Tensor:
        logger.warning("a %s", x.sum().item())
        with s.lock:
            s.count += 1
        return x

    compiled = T.compile(function)
    for _ in range(5):
        compiled(T.ones(2))
    assert free == [True] * 5 and s.count == 5
    s.base.close()


def test_an_array_that_is_written_to_once_it_may_be_is_another_path() -> None:
    array = np.zeros(2)
    array.flags.writeable = False

    def function(x: T.Tensor) -> T.Tensor:
        try:
            array[0] = x.sum().item()
        except ValueError:
            return -x
        return x

    compiled = T.compile(function)
    found = []
    for i in range(6):
        array.flags.writeable = i > 2
        found.append(compiled(T.ones(1) * i).item())
    assert found == [-0.0, -1.0, -2.0, 3.0, 4.0, 5.0] and array[0] == 5


def test_what_fails_before_tensors_are_changed_leaves_them() -> None:
    weights = T.ones(2)
    source, target = folder / "source", folder / "target"
    source.write_text("a")

    def function(x: T.Tensor) -> T.Tensor:
        shutil.copyfile(source.as_posix() if x is None else str_of_source, str_of_target)
        weights.add_(1)
        return x

    str_of_source, str_of_target = str(source), str(target)
    compiled = T.compile(function)
    for _ in range(3):
        compiled(T.ones(1))
    source.unlink()
    with pytest.raises(OSError, match="source"):
        compiled(T.ones(1))
    assert weights.tolist() == [4.0, 4.0]
