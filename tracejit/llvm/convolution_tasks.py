"""Kernels of convolutions as tasks: which part of the result each has, and the functions that do all of them.

`helpers` is the text of a function for each of the KERNELS and a dtype (`symbol`).  Tasks follow from the sizes, and have all terms of
their elements in the same order: results depend neither on them nor on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tracejit.core.dtypes import DType, float32
from tracejit.llvm import packed_products as packed
from tracejit.llvm.depthwise import depthwise_task
from tracejit.llvm.operations import constant
from tracejit.llvm.packed_windows import pack_left, pack_windows, product_task, store_columns, store_transposed, weight_task
from tracejit.llvm.thread_pool_code import FIELDS, PARALLEL, POOL
from tracejit.llvm.vector_text import OF_32
from tracejit.llvm.window_text import WindowText, columns, scratch

__all__ = ["FORGET", "MEMORY", "helpers", "symbol"]

_DEAR: Final = 8
"""Multiplications that take as long as one of a depthwise convolution."""
_SHARES: Final = 32
"""Tasks of the groups of a depthwise convolution."""


_Own = Callable[[WindowText, dict[str, str], str], None]
_Call = Callable[[str], _Own]
_Sizes = Callable[[WindowText], dict[str, str]]
_BLOCK_OF_TASKS: Final = ("a", "b", "c", "words", "scratch", "down", "across", "row", "column", "direct")
"""Words of what tasks have in common: operands, memory of the only thread or null, how many tasks there are along rows and columns of
a group, how many rows and columns one has."""


def _task(f: WindowText, name: str, own: _Own, first: str) -> str:
    """One task by its number, with memory of its own unless it is given some.  first: the strides of a group that operand a has; none if
    a task has several groups."""
    given = {key: f.op(f"load i64, ptr {f.at('%block', 8 * k)}") for k, key in enumerate(_BLOCK_OF_TASKS)}
    for key in ("a", "b", "c", "words", "scratch"):
        given[key] = f.op(f"inttoptr i64 {given[key]} to ptr")
    tasks = f.mul(given["down"], given["across"])
    group, within = f.op(f"udiv i64 %task, {tasks}"), f.op(f"urem i64 %task, {tasks}")
    given["i"], given["j"] = (f.op(f"{what} i64 {within}, {given['across']}") for what in ("udiv", "urem"))
    strides = {"a": first, "b": "source", "c": "left" if first == "target" else "target"} if first else {}
    for key, of in strides.items():
        given[key] = f.element(given[key], f.mul(group, f.word(f"{of}.group", given["words"])))
    alone = f.op(f"icmp ne ptr {given['scratch']}, null")

    def with_memory() -> None:
        memory = f.call_own("ptr", MEMORY, ("i64", str(scratch(f.dtype))))
        own(f, given, memory)
        f.void(FORGET, ("ptr", memory))

    f.when(alone, lambda: own(f, given, given["scratch"]), with_memory)
    f.lines.append("ret i64 0")
    return f.define(f"i64 @{name}(ptr %block, i64 %task)")


def _rows_and_columns(task: str) -> _Own:
    def call(f: WindowText, given: dict[str, str], memory: str) -> None:
        w = f.words("rows", "images", "positions", where=given["words"])
        row, column = f.mul(given["i"], given["row"]), f.mul(given["j"], given["column"])
        rows = f.least(f.sub(w["rows"], row), given["row"])
        columns = f.least(f.sub(f.mul(w["images"], w["positions"]), column), given["column"])
        numbers = [("i64", x) for x in (row, rows, column, columns, given["direct"])]
        f.void(task, ("ptr", given["words"]), *[("ptr", given[x]) for x in "abc"], *numbers, ("ptr", memory))

    return call


def _channels_and_outputs(task: str) -> _Own:
    def call(f: WindowText, given: dict[str, str], memory: str) -> None:
        """Rows of tasks are parts of the terms; where a channel has more taps than a task, they are counted within it."""
        w = f.words("rows", "channels", "taps", where=given["words"])
        few = f.least(w["taps"], packed.BLOCK)
        parts = f.up(w["taps"], few)
        channel = f.mul(f.op(f"udiv i64 {given['i']}, {parts}"), given["row"])
        tap = f.mul(f.op(f"urem i64 {given['i']}, {parts}"), few)
        channels = f.least(f.sub(w["channels"], channel), given["row"])
        taps = f.least(f.sub(w["taps"], tap), few)
        output = f.mul(given["j"], given["column"])
        outputs = f.least(f.sub(w["rows"], output), given["column"])
        numbers = [("i64", x) for x in (channel, channels, tap, taps, output, outputs)]
        f.void(task, ("ptr", given["words"]), *[("ptr", given[x]) for x in "abc"], *numbers, ("ptr", memory))

    return call


def _groups(task: str) -> _Own:
    def call(f: WindowText, given: dict[str, str], memory: str) -> None:
        first = f.mul(given["i"], given["row"])
        count = f.least(f.sub(f.word("groups", given["words"]), first), given["row"])
        pointers = [("ptr", given[x]) for x in ("words", "a", "b", "c")]
        f.void(task, *pointers, ("i64", first), ("i64", count), ("ptr", memory))

    return call


MEMORY, FORGET = "tracejit_windows_memory", "tracejit_windows_forget"
"""Functions that give a task its memory, and take it back."""


def _entry(f: WindowText, name: str, task: str, sizes: _Sizes, large: int) -> str:
    """All tasks: on the pool's threads where there is much to do, one after the other otherwise."""
    own = sizes(f)
    w = f.words("groups", "rows", "channels", "taps", "images", "positions")
    total = "1"
    for value in w.values():
        total = f.mul(total, value)
    tasks = f.mul(own["times"], f.mul(own["down"], own["across"]))
    block = f.op(f"alloca [{len(_BLOCK_OF_TASKS)} x i64]")
    for k, key in enumerate(_BLOCK_OF_TASKS):
        kind = "ptr" if key in ("a", "b", "c", "words", "scratch") else "i64"
        value = "null" if key == "scratch" else f"%{key}" if kind == "ptr" else own[key]
        f.lines.append(f"store {kind} {value}, ptr {f.at(block, 8 * k)}")
    threads = f.op(f"load atomic i64, ptr getelementptr (i8, ptr @{POOL}, i64 {FIELDS['threads']}) monotonic, align 8")
    several, much = f.op(f"icmp ugt i64 {threads}, 1"), f.op(f"icmp uge i64 {total}, {large}")
    more = f.op(f"icmp ugt i64 {tasks}, 1")
    shared = f.op(f"and i1 {several}, {f.op(f'and i1 {much}, {more}')}")

    def one(i: str) -> None:
        f.call_own("i64", task, ("ptr", block), ("i64", i))

    def share() -> None:
        f.call_own("i64", PARALLEL, ("ptr", f"@{task}"), ("ptr", block), ("i64", tasks))

    def alone() -> None:
        memory = f.call_own("ptr", MEMORY, ("i64", str(scratch(f.dtype))))
        f.lines.append(f"store ptr {memory}, ptr {f.at(block, 8 * _BLOCK_OF_TASKS.index('scratch'))}")
        f.loop("0", tasks, 1, one)
        f.void(FORGET, ("ptr", memory))

    f.when(shared, share, alone)
    f.lines.append("ret void")
    return f.define(f"void @{name}(ptr %a, ptr %b, ptr %c, ptr %words)").replace("define internal", "define", 1)


def _sizes_of_product(f: WindowText) -> dict[str, str]:
    w = f.words("rows", "images", "positions", "count.y", "count.x", "target.z", "target.y", "target.x")
    down = f.up(w["rows"], packed.BLOCK)
    tallest = max(OF_32.rows[OF_32.vectors])
    row = f.mul(f.up(f.up(w["rows"], down), tallest), tallest)
    direct = "1"
    for d, expected in (("x", "1"), ("y", w["count.x"]), ("z", f.mul(w["count.y"], w["count.x"]))):
        apart = w[f"target.{d}"]
        same = f.op(f"icmp eq i64 {apart}, {expected}")
        direct = f.either(same, "i64", direct, "0")
    across = f.up(f.mul(w["images"], w["positions"]), f.group)
    own = {"down": f.up(w["rows"], row), "across": across, "row": row, "column": str(f.group), "direct": direct}
    return {**own, "times": f.word("groups")}


def _sizes_of_weight(f: WindowText) -> dict[str, str]:
    w = f.words("rows", "channels", "taps")
    most = f.most(f.op(f"udiv i64 {packed.BLOCK}, {w['taps']}"), 1)
    many = f.op(f"icmp uge i64 {most}, {f.lanes}")  # then parts of dW begin where vectors do, if it has rows of whole vectors
    row = f.either(many, "i64", f.op(f"and i64 {most}, {-f.lanes}"), most)
    down = f.mul(f.up(w["channels"], row), f.up(w["taps"], packed.BLOCK))
    own = {"down": down, "across": f.up(w["rows"], f.group), "row": row, "column": str(f.group), "direct": "0"}
    return {**own, "times": f.word("groups")}


def _sizes_of_depthwise(f: WindowText) -> dict[str, str]:
    row = f.up(f.word("groups"), _SHARES)
    return {"down": f.up(f.word("groups"), row), "across": "1", "row": row, "column": "1", "direct": "0", "times": "1"}


def symbol(dtype: DType, what: str) -> str:
    """The name of the function for one of the KERNELS."""
    return f"tracejit_windows_{'s' if dtype is float32 else 'd'}_{what}"


def helpers(dtype: DType, lanes: int, large: int) -> tuple[str, dict[str, str]]:
    """(definitions, declarations by symbol) of `symbol(dtype, kernel)` for each of the KERNELS, functions of the addresses a, b,
    c and of the words, beside those of packed_products.helper.  large: multiplications from which tasks are shared among threads."""
    prefix = f"windows_{'s' if dtype is float32 else 'd'}"
    parts, declarations = list[str](), dict[str, str]()
    names = dict(zip((*OF_32.kinds, "straight", "turned"), packed.panel_functions(dtype), strict=True))
    number = WindowText(dtype, lanes).number
    packing = "ptr, i64, i64, i64, i64, ptr"
    for kind, symbol_of in names.items():
        given = f"i64, {packed.kinds(number)}" if kind in OF_32.kinds else packing
        declarations[symbol_of] = f"declare void @{symbol_of}({given})"
    one = constant(1.0, dtype)

    def written(write: Callable[..., str], what: str, *given: object) -> str:
        f = WindowText(dtype, lanes)
        parts.append(write(f, f"{prefix}_{what}", *given))
        declarations.update(f.declarations)
        return f"{prefix}_{what}"

    names["columns"] = written(columns, "columns")
    names["windows"] = written(pack_windows, "rows")
    names["left"] = written(pack_left, "left", names["straight"], names["turned"])
    names["give"] = written(store_columns, "give")
    names["out"] = written(store_transposed, "out")
    tasks: tuple[tuple[str, Callable[..., str], _Call, _Sizes, str, int], ...] = (
        ("product", partial(product_task, one=one, names=names), _rows_and_columns, _sizes_of_product, "left", 1),
        ("weight", partial(weight_task, one=one, names=names), _channels_and_outputs, _sizes_of_weight, "target", 1),
        ("depthwise", partial(depthwise_task, names=names, turned=False), _groups, _sizes_of_depthwise, "", _DEAR),
        ("depthwise_weight", partial(depthwise_task, names=names, turned=True), _groups, _sizes_of_depthwise, "", _DEAR),
    )
    for what, write, call, sizes, first, cost in tasks:
        tile = written(_task, f"{what}_tile", call(written(write, f"{what}_task")), first)
        f = WindowText(dtype, lanes)
        parts.append(_entry(f, symbol(dtype, what), tile, sizes, large // cost))
        declarations.update(f.declarations)
    return "\n".join(parts), declarations
