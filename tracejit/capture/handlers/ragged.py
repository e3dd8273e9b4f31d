"""Tensors with a dimension whose size depends on data: `x[mask]`, `x[i, :length]`, the data of packed sequences.

Such a tensor consists of rows that are selected from others.  Functions of single rows, sums and means over the rows, and losses are
recorded over all rows: the rows of the tensor are spread among zeros (`index_add`), the function is applied, and its rows are selected
again (`index_select`).  Where a result is spread for the next function, neither is needed (`recording/selections.py`), and where nothing
else looks at the tensor, nothing depends on how many rows it has: one recording serves all sizes.  Whatever else looks at it sees its
size (`guard_size`): then the program has an exit on that.

Rows outside contribute nothing to a result, and nothing to a gradient: what may be infinite or NaN there is replaced by zeros in both
directions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracejit import functional
from tracejit.autograd.tape import mark_written
from tracejit.capture.call_sites import user_line
from tracejit.capture.handlers.base import ABSENT, Handlers
from tracejit.capture.handlers.post_program import is_post_program
from tracejit.capture.handlers.stand_ins import plain
from tracejit.capture.handlers.symbols import is_symbolic
from tracejit.core.dtypes import bool_, int64
from tracejit.core.op import REGISTRY, Effect, Kind
from tracejit.core.shapes import contiguous, element_strides, product
from tracejit.functional import packing
from tracejit.ops.creation import full
from tracejit.ops.elementwise.comparison import where
from tracejit.ops.indexing import index_add, index_select, nonzero, row_places
from tracejit.ops.public.creation import arange
from tracejit.ops.public.derive import FUNCTIONS, METHODS
from tracejit.tensor import Tensor, storage_of

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["RaggedHandlers"]

_OF_ALL_SIZES: Final = frozenset({"dtype", "device", "ndim", "requires_grad"})
_SPLIT: Final = 1 << 18
"""Parts of so many elements in all are computed as all rows, each."""
_SPARSE, _SPARSE_OF_MANY, _MANY = 4, 2, 1 << 16
"""Of so many times as many rows a mask selects few, the second of tensors with more elements: computing all of them costs more than
another recording."""
_REDUCTIONS: Final = ("sum", "mean", "amax", "amin", "max", "min", "logsumexp", "var")
_ALONG_ROWS: Final = ("argmax", "argmin", "norm", "cumsum", "any", "all", "prod")
_NORMALISERS: Final = ("softmax", "log_softmax")
_LOSSES: Final = (
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "soft_margin_loss",
    "kl_div", "poisson_nll_loss",
)  # fmt: skip
_CLASSIFICATIONS: Final = ("cross_entropy", "nll_loss")
_ACTIVATIONS: Final = (
    "gelu", "silu", "mish", "softplus", "elu", "selu", "celu", "leaky_relu", "relu6", "hardtanh", "hardswish", "hardsigmoid", "softsign",
    "tanhshrink", "logsigmoid",
)  # fmt: skip
_OTHER_ELEMENTWISE: Final = (
    "square", "clamp", "sub", "add", "mul", "div", "pow", "float", "double", "long", "int", "bool", "rsub", "nan_to_num",
)  # fmt: skip
_SPECIAL: Final = (
    "neg", "abs", "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "mod", "pow", "rpow", "lt", "le", "gt",
    "ge", "eq", "ne", "invert", "and", "or",
)  # fmt: skip


@dataclass(eq=False, slots=True)
class RaggedRows:
    """The rows of a ragged tensor among others.

    tensor: it, which lives as long.  values: (rows, ...), zeros outside.  inside: bool (rows,).  places: where it is true, int64.
    starts: whether the rows inside come first.  padded: lengths and mask (T, N) of the packed sequences that it is the data of, or None.
    owner: itself, or what it is a slice of in eager mode; version: of the owner's contents.  slice: makes that slice, and view does once
    nothing is recorded.  made_of: what a function gave of which these rows were selected.  copies: with other numbers outside.
    is_saved: whether a backward pass may need its contents."""

    tensor: Tensor
    values: Tensor
    inside: Tensor
    places: Tensor
    owner: Tensor
    version: int
    starts: bool = False
    padded: tuple[Any, Any] | None = None
    slice: Callable[[], Any] | None = None
    view: Callable[[], Any] | None = None
    made_of: Tensor | None = None
    copies: list[Tensor] = field(default_factory=list)
    is_saved: bool = False


def _is_row_major(array: Any) -> bool:
    """Whether an array lies in memory as a new one does, also in dimensions of one element, whose strides `flags` does not look at."""
    return element_strides(array) == contiguous(array.shape)


class RaggedHandlers(Handlers):
    """Functions of ragged tensors.

    follows_rows: whether a tensor whose size depends on data is the rows inside of another one; else its size is guarded."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        journal = recorder.journal
        self.follows_rows = False
        self._rows: dict[int, RaggedRows] = journal.dictionary()
        self._selections: dict[Any, tuple[Tensor, Tensor]] = (
            journal.dictionary()
        )  # by what they are computed of: masks, and their places
        self._numbers: dict[Any, int] = journal.dictionary()  # equal computations have one number
        self._by_value: dict[int, int] = journal.dictionary()
        self._seen: set[int] = journal.set()  # ids of the places whose number something has looked at

    @property
    def _is_on(self) -> bool:
        """Whether there are ragged tensors: not once one was written to that a backward pass needs."""
        return self.follows_rows and not self.recorder.stopped

    def rows_of(self, value: Any) -> RaggedRows | None:
        """The rows of a tensor, if it is ragged, and no slice of what has been written to since."""
        rows = self._rows.get(id(value))
        if rows is not None:
            return rows if self._is_current(rows) else None
        known = (
            self.recorder.unwatched(lambda: packing.unpacked(value))
            if self._is_on and id(value) in self.recorder.deferred
            else None
        )
        if known is None:
            return None
        values, lengths, inside = known
        count = product(tuple(inside.shape))
        flat = self._native(lambda: values.reshape(count, *values.shape[2:]))
        mask, places = self._selection(("padded", self._number_of(inside)), lambda: inside.reshape(count))
        self.recorder.program.replace(value, lambda: index_select.of(flat, places, dim=0))
        rows = self._rows[id(value)] = RaggedRows(value, flat, mask, places, value, value._version, padded=(lengths, inside))
        return rows

    def _is_current(self, rows: RaggedRows) -> bool:
        """Whether what rows were selected from has not been written to since."""
        owner = rows.owner
        while owner._version == rows.version:
            if owner is rows.tensor or id(owner) not in self._rows:
                return True
            rows = self._rows[id(owner)]
            owner = rows.owner
        return False

    def guard_size(self, tensor: Any) -> None:
        """Something looks at a tensor: if it is ragged, the program makes sure of its size."""
        rows = self._rows.get(id(tensor)) if self._rows else None
        if rows is None or self.recorder.stopped:
            return
        if rows.slice is not None:
            del self._rows[id(tensor)]
            self.recorder.program.replace(tensor, rows.slice)
        elif id(rows.places) not in self._seen:
            self._seen.add(id(rows.places))
            self._native(lambda: nonzero(rows.inside))

    def before_write(self, target: Tensor) -> None:
        """Something writes to a tensor.  A backward pass raises then if it needs what was in a ragged one, of which it has copies here:
        this recording is given up, and the next ones have none."""
        for rows in list(self._rows.values()):
            if rows.is_saved and np.may_share_memory(rows.owner._array, target._array):
                for copy in (rows.values, rows.made_of, *rows.copies):
                    if copy is not None:
                        mark_written([storage_of(copy)])
                self.recorder.stop("selected_rows_written", user_line())

    def end(self) -> None:
        """Nothing is recorded any more: what is a slice in eager mode is one."""
        for rows in self._rows.values():
            if rows.view is not None:
                self.recorder.program.become(rows.tensor, self.recorder.unwatched(rows.view))
                rows.view = rows.slice = None

    def escape(self, tensor: Tensor) -> None:
        """A tensor leaves the call: what is a slice in eager mode has the memory of another tensor."""
        rows = self._rows.get(id(tensor))
        if rows is not None and rows.slice is not None:
            self.guard_size(tensor)

    def size(self, tensor: Any, dim: int) -> Any:
        """`tensor.shape[dim]` of a ragged tensor; ABSENT of another one.  How many rows it has the program computes."""
        rows = None if self.recorder.stopped else self.rows_of(tensor)
        if rows is None or not -tensor._array.ndim <= dim < tensor._array.ndim:
            return ABSENT
        dim %= tensor._array.ndim
        return self._native(lambda: rows.values.shape[dim]) if dim else self._count(rows)

    def _count(self, rows: RaggedRows) -> Any:
        count = self._native(rows.inside.sum)
        return self.recorder.extracted_numbers.element(count)

    # -- where they come from
    def item(self, owner: Any, key: Any) -> Any:
        """`owner[key]`, if that is ragged; else ABSENT."""
        if not self._is_on or type(owner) is not Tensor or not owner._array.ndim:
            return ABSENT
        if (rows := self.rows_of(owner)) is not None:
            return self._columns_of(owner, key, rows)
        if type(key) is Tensor and key._array.dtype.kind == "b":
            return self._masked(owner, key)
        if type(key) is Tensor and (rows := self.rows_of(key)) is not None:
            is_index = key._array.ndim == 1 and key._array.dtype.kind == "i" and len(owner._array) > 0
            return self.by_rows(Tensor.__getitem__, (owner, key), {}, rows) if is_index else ABSENT
        parts = key if type(key) is tuple else (key,)
        if len(parts) > owner._array.ndim:
            return ABSENT
        *before, last = parts
        if type(last) is not slice or last.step is not None or not all(type(k) is int for k in before):
            return ABSENT
        begins = last.start is None or (type(last.start) is int and last.start == 0)  # a number of the recording is not asked
        return self._prefix(owner, key, tuple(before), last.stop) if begins else ABSENT

    def _columns_of(self, owner: Tensor, key: Any, rows: RaggedRows) -> Any:
        """`owner[:, ...]` of a ragged tensor."""
        if type(key) is not tuple or not 2 <= len(key) <= owner._array.ndim:
            return ABSENT
        first, *others = key
        whole = (type(first) is slice and first == slice(None)) or (first is Ellipsis and len(key) == owner._array.ndim)
        plain = all(
            type(x) in (int, type(None)) for k in others for x in ((k.start, k.stop, k.step) if type(k) is slice else (k,))
        )
        return self.by_rows(Tensor.__getitem__, (owner, key), {}, rows) if whole and plain and None not in others else ABSENT

    def _masked(self, owner: Tensor, mask: Tensor) -> Any:
        recorder, dims = self.recorder, mask._array.ndim
        if not dims or mask._array.shape != owner._array.shape[:dims] or self.rows_of(mask) is not None:
            return ABSENT
        recorder.inspect_all((owner, mask))
        count, rows = len(mask._array.ravel().nonzero()[0]), mask._array.size
        if not count or count * (_SPARSE if owner._array.size <= _MANY else _SPARSE_OF_MANY) < rows:
            return ABSENT
        if not _is_row_major(owner._array) and not _is_row_major(owner._array[mask._array]):
            return ABSENT  # eager mode keeps the order of dimensions in memory, the selection of rows does not
        number = self._number_of(mask)
        if number is None or recorder.program.value_of(owner) is None:
            return ABSENT
        selection = self._selection(("mask", number), lambda: mask.reshape(product(tuple(mask.shape))).clone())
        values = self._native(lambda: owner.reshape(selection[0].shape[0], *owner.shape[dims:]))
        return self._selected(values, *selection)

    def _prefix(self, owner: Tensor, key: Any, before: tuple[int, ...], stop: Any) -> Any:
        """`owner[*before, :stop]`, where the program computes the number."""
        recorder, dim = self.recorder, len(before)
        # A part of all of a tensor has a symbolic size where the number is known before the program.
        is_asked = bool(before) or is_post_program(stop) or type(stop) is Tensor
        place = self._place(stop) if is_asked else None
        shape = owner._array.shape
        if place is None or not 0 <= int(place._array) <= shape[dim] or shape[dim] < 2:
            return ABSENT
        if product(shape[dim:]) > _MANY and int(place._array) * _SPARSE_OF_MANY < shape[dim]:
            return ABSENT
        recorder.inspect(owner)
        number = self._number_of(place)
        values = self._native(lambda: owner[before]) if before else owner
        if number is None or recorder.program.value_of(values) is None:
            return ABSENT
        size: Any = (recorder.program.symbolic_shape(values) or values._array.shape)[0]
        key_of_size = type(size), getattr(size, "number", size)  # sizes that are equal by chance have masks of their own

        def inside() -> Any:
            own = values.shape[0]
            return arange(own) < where.of(place < 0, place + own, place)

        made = self._selected(values, *self._selection(("prefix", number, *key_of_size), inside))
        rows = self._rows[id(made)]
        rows.starts, rows.owner, rows.version = True, owner, owner._version
        plain_key = (*before, slice(None, int(place._array)))
        rows.slice, rows.view = lambda: recorder.containers.item_of_tensor(owner, key), lambda: owner[plain_key]
        return made

    def _place(self, number: Any) -> Tensor | None:
        """A number that the program computes, or one of a container from outside, as a tensor int64 without dimensions."""
        recorder = self.recorder
        if is_post_program(number) or type(number) is Tensor:
            return recorder.containers.place_in_program(number)
        if not is_symbolic(number) or type(plain(number)) is not int or not self._is_one_of_several(number):
            return None
        return self._native(lambda: full.of(number, shape=(), dtype=int64))  # type: ignore[no-any-return]

    def _is_one_of_several(self, number: Any) -> bool:
        """Whether a number is an item of a list or tuple among the arguments that has others beside it, as one of lengths has."""
        called = self.recorder.facts.numbers.get(number._name, "")
        container, _, index = called.removesuffix("]").rpartition("[")
        return called.endswith("]") and index.isdigit() and self.recorder.has_integer(f"{container}[{int(index == '0')}]")

    def _selection(self, key: Any, make: Callable[[], Any]) -> tuple[Tensor, Tensor]:
        """One mask, and its places, for all tensors whose rows are selected by equal computations."""
        known = self._selections.get(key)
        if known is None:
            inside = self._native(make)
            known = self._selections[key] = inside, self._native(lambda: row_places(inside))
        return known

    def _selected(
        self, values: Any, inside: Tensor, places: Tensor, starts: bool = False, padded: tuple[Any, Any] | None = None
    ) -> Tensor:
        """The rows inside."""
        tensor: Tensor = self._native(lambda: index_select.of(values, places, dim=0))
        shape, dtype = values.shape, values.dtype
        spread = self._native(lambda: index_add.of(full(_zero(dtype), shape=tuple(shape), dtype=dtype), places, tensor, dim=0))
        if padded is not None:
            lengths, mask = padded
            shaped = self._native(lambda: spread.reshape(*mask.shape, *shape[1:]))
            tensor._unpacked = shaped, lengths, mask
        self._rows[id(tensor)] = RaggedRows(tensor, spread, inside, places, tensor, tensor._version, starts, padded)
        return tensor

    def _like(self, values: Any, rows: RaggedRows) -> Tensor:
        made = self._selected(values, rows.inside, rows.places, rows.starts, rows.padded)
        own = self._rows[id(made)]
        own.made_of, own.is_saved = values, made._requires_grad
        return made

    # -- functions of them
    def call(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """What a function of the library gives for ragged tensors among its arguments, if it is known to treat rows alike; else ABSENT."""
        if not self._is_on or function not in (rules := _rules()):
            return ABSENT
        if (rule := rules[function]) in _SELECTING:
            return rule(self, *arguments, **keywords)
        if not (self._rows or self.recorder.deferred):
            return ABSENT
        found = [rows for x in (*arguments, *keywords.values()) if type(x) is Tensor and (rows := self.rows_of(x)) is not None]
        if not found or any(rows.places is not found[0].places for rows in found[1:]):
            return ABSENT
        if not all(map(self._is_simple, (*arguments, *keywords.values()))):
            return ABSENT
        given = self.recorder.calls.for_library
        result = rule(self, function, tuple(map(given, arguments)), {k: given(v) for k, v in keywords.items()}, found[0])
        if getattr(result, "_requires_grad", False):
            for rows in found:
                rows.is_saved = True
        return result

    def operator(self, method: str, reflected: str, left: Any, right: Any) -> Any:
        """What an operator of tensors gives, if one of them is ragged, and it is known to treat rows alike; else ABSENT.  method,
        reflected: the special methods of the left and of the right operand."""
        if not (self._rows or self.recorder.deferred):
            return ABSENT
        if isinstance(left, Tensor):
            return self.call(getattr(type(left), method, None), (left, right), {})
        return self.call(getattr(type(right), reflected, None), (right, left), {}) if isinstance(right, Tensor) else ABSENT

    def is_independent_of_size(self, tensor: Tensor, name: str, found: Any) -> bool:
        """Whether an attribute tells nothing of the size of a ragged tensor, or is a method that `call` asks about."""
        if not (self._rows or self.recorder.deferred):
            return False
        asked = name in _OF_ALL_SIZES or (type(found) is FunctionType and found in _rules())
        return asked and self.rows_of(tensor) is not None

    @staticmethod
    def _is_simple(value: Any) -> bool:
        return all(type(x) is int for x in value) if type(value) in (tuple, list) else not is_post_program(value)

    def by_rows(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], like: RaggedRows) -> Any:
        """A function of the elements of each row, and of tensors that all rows share: weights."""
        self._inspect_others((*arguments, *keywords.values()))

        def spread(value: Any) -> Any:
            rows = self.rows_of(value) if type(value) is Tensor else None
            return value if rows is None else rows.values

        given, named = tuple(map(spread, arguments)), {k: spread(v) for k, v in keywords.items()}
        values = self._native(lambda: function(*given, **named))
        for x, y in zip(arguments, given, strict=True):
            if values is y:
                return x
        made = self._like(values, like)
        if values._base is not None and type(arguments[0]) is Tensor and self.rows_of(arguments[0]) is like:
            rows, recorder = self._rows[id(made)], self.recorder

            def view() -> Any:
                recorder.inspect_all(arguments)
                return function(*arguments, **keywords)

            rows.owner, rows.version, rows.slice = arguments[0], arguments[0]._version, view
            rows.view, rows.made_of = lambda: function(*map(plain, arguments), **keywords), None
        return made

    def _inspect_others(self, values: tuple[Any, ...]) -> None:
        self.recorder.inspect_all([x for x in values if isinstance(x, Tensor) and self.rows_of(x) is None])

    def elementwise(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], like: RaggedRows) -> Any:
        """A function of elements: the rows of other tensors are repeated for all, and their gradients come from those inside."""
        dims = like.values._array.ndim
        others = []
        for k, x in enumerate(arguments):
            if not isinstance(x, Tensor):
                continue
            rows, shape = self.rows_of(x), x._array.shape
            if rows is not None:
                if len(shape) != dims:
                    return ABSENT
            elif len(shape) > dims or (len(shape) == dims and shape[0] != 1):
                return ABSENT
            elif x._requires_grad:
                others.append(k)
        if keywords and any(isinstance(x, Tensor) for x in keywords.values()):
            return ABSENT
        if not others:
            return self.by_rows(function, arguments, keywords, like)
        self._inspect_others(arguments)
        given = []
        for k, x in enumerate(arguments):
            rows = self.rows_of(x) if type(x) is Tensor else None
            if rows is not None:
                given.append(rows.values)
            elif k in others:
                given.append(self._native(partial(where.of, self._columns(like, dims), x, 1.0)))
            else:
                given.append(x)
        return self._like(self._native(lambda: function(*given, **keywords)), like)

    def _columns(self, like: RaggedRows, dims: int) -> Tensor:
        """The mask as (rows, 1, ...)."""
        inside = like.inside
        return self._native(lambda: inside.reshape(inside.shape[0], *(1,) * (dims - 1)))  # type: ignore[no-any-return]

    def linear(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], like: RaggedRows) -> Any:
        """`linear`, `embedding`, `layer_norm`, `matmul` with a matrix: the first argument alone is ragged."""
        others = (*arguments[1:], *keywords.values())
        if not arguments or self.rows_of(arguments[0]) is None or any(self.rows_of(x) is not None for x in others):
            return ABSENT
        if function in _MATMULS and (
            like.values._array.ndim != 2 or not isinstance(others[0], Tensor) or others[0]._array.ndim > 2
        ):
            return ABSENT
        if function is functional.embedding and any(x not in (None, 2.0, False) for x in (*arguments[3:], *keywords.values())):
            return ABSENT  # which counts indices, or changes the weight
        return self.by_rows(function, arguments, keywords, like)

    def reduction(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], like: RaggedRows) -> Any:
        """A reduction: of each row, or over the rows, of which those that belong to the tensor count."""
        name = function.__name__
        keepdim = keywords.pop("keepdim", arguments[2] if len(arguments) > 2 else False)
        dim = keywords.pop("dim", arguments[1] if len(arguments) > 1 else None)
        if keywords or len(arguments) > 3 or type(dim) not in (int, tuple, type(None)) or type(keepdim) is not bool:
            return ABSENT
        values, inside = like.values, like.inside
        ndim = values._array.ndim
        dims = (
            tuple(range(ndim)) if dim is None or dim == () else tuple([d % ndim for d in (dim if type(dim) is tuple else (dim,))])
        )
        if name in ("max", "min") and dim is None:
            return self._extreme({"max": "amax", "min": "amin"}[name], like, dims, keepdim) if not keepdim else ABSENT
        own = {"dim": dim, "keepdim": keepdim}
        if 0 not in dims:
            return self.by_rows(function, arguments[:1], own, like) if name not in ("max", "min") else ABSENT
        if name in ("amax", "amin"):
            return self._extreme(name, like, dims, keepdim)
        if name in ("max", "min"):
            if not like.starts or type(dim) is not int or values._array.dtype.kind != "f" or not self._has_some(like):
                return ABSENT
            lowest = -math.inf if name == "max" else math.inf
            mask = self._columns(like, ndim)
            return self.recorder.mark_created(self._native(lambda: function(self._outside(like, mask, lowest), dim, keepdim)))
        if name == "logsumexp":
            if not self._has_some(like):
                return ABSENT
            mask = self._columns(like, ndim)
            return self._native(lambda: function(self._outside(like, mask, -math.inf), dims, keepdim))
        if name == "var":
            return self._variance(like, dims, keepdim)
        if name == "sum":
            return self._native(lambda: FUNCTIONS["sum"](values, dims, keepdim))
        if values._array.dtype.kind != "f":
            return ABSENT

        def mean() -> Any:
            others = product(tuple([values.shape[d] for d in dims if d]))
            return FUNCTIONS["sum"](values, dims, keepdim) / (inside.sum() * others).to(values.dtype)

        return self._native(mean)

    def _variance(self, like: RaggedRows, dims: tuple[int, ...], keepdim: bool) -> Any:
        """The variance over the rows: the sum of squares by the number of elements less one."""
        values, mask, sum_of = like.values, self._columns(like, like.values._array.ndim), FUNCTIONS["sum"]
        if values._array.dtype.kind != "f":
            return ABSENT

        def variance() -> Any:
            count = (like.inside.sum() * product(tuple([values.shape[d] for d in dims if d]))).to(values.dtype)
            distances = where.of(mask, values - sum_of(values, dims, True) / count, 0.0)
            return sum_of(distances.square(), dims, keepdim) / where.of(count > 1, count - 1, 0.0)

        return self._native(variance)

    def _extreme(self, name: str, like: RaggedRows, dims: tuple[int, ...], keepdim: bool) -> Any:
        values = like.values
        if values._array.dtype.kind != "f" or not self._has_some(like):
            return ABSENT
        mask, lowest = self._columns(like, values._array.ndim), -math.inf if name == "amax" else math.inf
        return self._native(lambda: FUNCTIONS[name](self._outside(like, mask, lowest), dims, keepdim))

    def _outside(self, like: RaggedRows, mask: Tensor, number: float) -> Any:
        """The rows, this number outside."""
        copy = where.of(mask, like.values, number)
        like.copies.append(copy)
        self.journal.note()
        return copy

    def _has_some(self, like: RaggedRows) -> bool:
        """Whether there are rows: the program asks that in each call."""
        return bool(self._native(lambda: self.recorder.program.take(like.inside.any())))

    def along_rows(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], like: RaggedRows) -> Any:
        """A function along a dimension of each row."""
        dim = keywords.get("dim", arguments[1] if len(arguments) == 2 else None)
        if type(dim) is not int or not dim % like.values._array.ndim or len(arguments) > 2 or set(keywords) - {"dim", "keepdim"}:
            return ABSENT
        return self.by_rows(function, arguments, keywords, like)

    def normaliser(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], like: RaggedRows) -> Any:
        """`softmax(dim)` and `log_softmax(dim)`."""
        dim = keywords.get("dim", arguments[1] if len(arguments) > 1 else None)
        values = like.values
        if type(dim) is not int or len(arguments) > 2 or set(keywords) - {"dim"}:
            return ABSENT
        if dim % values._array.ndim:
            return self.by_rows(function, arguments[:1], {"dim": dim}, like)
        if values._array.dtype.kind != "f" or not self._has_some(like):
            return ABSENT
        mask = self._columns(like, values._array.ndim)
        return self._like(self._native(lambda: function(self._outside(like, mask, -math.inf), dim=dim)), like)

    def loss(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], like: RaggedRows) -> Any:
        """A loss of pairs of elements: the loss of each, and the sum or mean of those inside."""
        reduction = keywords.pop("reduction", "mean")
        if (
            reduction not in ("mean", "sum", "none")
            or len(arguments) != 2
            or any(isinstance(x, Tensor) for x in keywords.values())
        ):
            return ABSENT
        each = self.elementwise(function, arguments, {**keywords, "reduction": "none"}, like)
        if each is ABSENT or reduction == "none":
            return each
        rows = self.rows_of(each)
        return ABSENT if rows is None else self.reduction(FUNCTIONS[reduction], (each,), {}, rows)

    def classification(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], like: RaggedRows) -> Any:
        """`cross_entropy` and `nll_loss`: rows outside have the target that is ignored."""
        if len(arguments) == 1 and "target" in keywords:
            arguments = (*arguments, keywords.pop("target"))
        rows = [self.rows_of(x) for x in arguments[:2]]
        if len(rows) < 2 or rows[0] is None or rows[1] is None or any(self.rows_of(x) is not None for x in arguments[2:]):
            return ABSENT
        scores, targets = rows[0].values, rows[1].values
        if targets._array.dtype.kind not in "iu" or targets._array.ndim != scores._array.ndim - 1:
            return ABSENT
        ignored = keywords.get("ignore_index", -100)
        mask = self._columns(like, targets._array.ndim)

        def of_all() -> Any:
            target = where.of(mask, targets, full(ignored, shape=(), dtype=targets.dtype))
            return function(scores, target, *arguments[2:], **keywords)

        if keywords.get("reduction", "mean") == "none":
            return self._like(self._native(of_all), like)
        return self._native(of_all)

    def selected_by(self, *arguments: Any, **keywords: Any) -> Any:
        """`masked_select(x, mask)`."""
        if len(arguments) != 2 or keywords or not all(type(x) is Tensor for x in arguments):
            return ABSENT
        owner, mask = arguments
        is_mask = mask._array.dtype.kind == "b" and mask._array.shape == owner._array.shape and self.rows_of(owner) is None
        return self._masked(owner, mask) if is_mask else ABSENT

    def nonzero(self, *arguments: Any, **keywords: Any) -> Any:
        """`nonzero(mask)` of a vector of bools."""
        if len(arguments) != 1 or keywords or type(arguments[0]) is not Tensor or arguments[0]._array.ndim != 1:
            return ABSENT
        (mask,) = arguments
        if mask._array.dtype.kind != "b" or self.rows_of(mask) is not None:
            return ABSENT
        numbers = self._native(lambda: arange(mask.shape[0]).unsqueeze(1))
        return self._masked(numbers, mask)

    def concatenated(self, *arguments: Any, **keywords: Any) -> Any:
        """`cat` of ragged tensors: of their columns, or of their rows one after the other."""
        if not arguments or type(arguments[0]) not in (list, tuple) or not (self._rows or self.recorder.deferred):
            return ABSENT
        tensors, dim = arguments[0], keywords.get("dim", arguments[1] if len(arguments) == 2 else 0)
        found = [self.rows_of(x) for x in tensors if type(x) is Tensor]
        if len(arguments) > 2 or set(keywords) - {"dim"} or type(dim) is not int or len(found) != len(tensors):
            return ABSENT
        rows = [x for x in found if x is not None]
        if not rows or len(rows) != len(found) or len({(x.values._array.ndim, x.values._array.dtype) for x in rows}) > 1:
            return ABSENT
        values = [x.values for x in rows]
        if dim % values[0]._array.ndim:
            alike = all(x.places is rows[0].places for x in rows)
            return self._like(self._native(lambda: FUNCTIONS["cat"](values, dim)), rows[0]) if alike else ABSENT
        if len({x._array.shape[1:] for x in values}) > 1:
            return ABSENT
        masks = [x.inside for x in rows]
        selection = self._selection(("cat", *map(id, masks)), lambda: FUNCTIONS["cat"](masks))
        return self._selected(self._native(lambda: FUNCTIONS["cat"](values)), *selection)

    def split(self, *arguments: Any, **keywords: Any) -> Any:
        """`split(x, sizes)` along the first dimension, where the program computes the sizes."""
        recorder = self.recorder
        if len(arguments) != 2 or keywords or type(arguments[0]) is not Tensor or type(arguments[1]) not in (list, tuple):
            return ABSENT
        owner, numbers = arguments[0], list(recorder.contents.elements(arguments[1]))
        if not any(map(is_symbolic, numbers)) or len(numbers) * owner._array.size > _SPLIT or not owner._array.ndim:
            return ABSENT
        if self.rows_of(owner) is not None or sum(map(plain, numbers)) != len(owner._array) or min(map(plain, numbers)) < 0:
            return ABSENT
        sizes = [x for x in map(self._place, numbers) if x is not None]
        if len(sizes) != len(numbers):
            return ABSENT
        recorder.inspect(owner)
        steps = self._native(lambda: FUNCTIONS["stack"](sizes))
        ends = self._native(lambda: steps.cumsum(0))
        self._native(lambda: recorder.program.take((ends[-1] == owner.shape[0]) & (steps >= 0).all()))
        number = self._number_of(ends)
        return recorder.mark_created(tuple([self._part(owner, number, ends, steps, k) for k in range(len(sizes))]))

    def _part(self, owner: Tensor, number: Any, ends: Tensor, steps: Tensor, k: int) -> Tensor:
        end = self._native(lambda: ends[k])
        start = self._native(lambda: end - steps[k])

        def inside() -> Any:
            place = arange(owner.shape[0])
            return (place >= start) & (place < end)

        made = self._selected(owner, *self._selection(("part", number, k), inside))
        rows = self._rows[id(made)]
        rows.owner, rows.version = owner, owner._version
        plain_key = slice(int(start._array), int(end._array))
        rows.slice = lambda: self.recorder.containers.item_of_tensor(owner, slice(start, end))
        rows.view = lambda: owner[plain_key]
        return made

    def asked_size(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], like: RaggedRows) -> Any:
        """`size(dim)` and `numel()`."""
        if keywords or len(arguments) != (2 if function.__name__ == "size" else 1):
            return ABSENT
        if function.__name__ == "size":
            return self.size(arguments[0], arguments[1]) if type(arguments[1]) is int else ABSENT
        others = product(like.values._array.shape[1:])
        has_symbols = self.recorder.program.symbolic_shape(like.values) is not None
        return ABSENT if has_symbols else self.recorder.operators.binary("*", self._count(like), others)

    def reshaped(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], like: RaggedRows) -> Any:
        """`squeeze(dim)` and `unsqueeze(dim)`."""
        dim = keywords.get("dim", arguments[1] if len(arguments) == 2 else None)
        rank = like.values._array.ndim + (function.__name__ == "unsqueeze")
        return self.by_rows(function, arguments, keywords, like) if type(dim) is int and dim % rank else ABSENT

    # -- in the graph
    def _native(self, action: Callable[[], Any]) -> Any:
        return self.recorder.containers.native(action)

    def _number_of(self, tensor: Tensor) -> int | None:
        """A number that equal computations share; None for a tensor of unknown origin."""
        value = self.recorder.program.value_of(tensor)
        return None if value is None else self._number(value)

    def _number(self, value: int) -> int:
        program = self.recorder.program
        if program.is_written(value):
            return self._own_number(object())
        known = self._by_value.get(value)
        if known is None:
            node = program.producer(value)
            if node is None or node.op.kind is Kind.RANDOM or node.op.effect is Effect.IN_PLACE:
                known = self._own_number(value)
            else:
                operands = tuple(
                    [self._number(x) if type(x) is int else (type(x), getattr(x, "value", None)) for x in node.operands]
                )
                try:
                    known = self._own_number((node.op, operands, node.attributes, node.outputs.index(value)))
                except TypeError:  # an attribute without a hash
                    known = self._own_number(value)
            self._by_value[value] = known
        return known

    def _own_number(self, key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def _zero(dtype: Any) -> Any:
    return 0.0 if dtype.is_floating_point else False if dtype is bool_ else 0


_MATMULS: Final = frozenset({FUNCTIONS["matmul"], METHODS["matmul"], Tensor.__matmul__})
_SELECTING: Final = (RaggedHandlers.split, RaggedHandlers.nonzero, RaggedHandlers.selected_by, RaggedHandlers.concatenated)
_TABLE: dict[Any, Any] = {}


def _rules() -> dict[Any, Any]:
    """Which method records a function, by the function."""
    if not _TABLE:
        elementwise = [
            name for name in METHODS if name in REGISTRY and REGISTRY[name].kind is Kind.ELEMENTWISE and name != "where"
        ]

        def add(names: Any, rule: Any) -> None:
            for name in names:
                for found in (table.get(name) for table in (FUNCTIONS, METHODS, vars(functional), vars(Tensor))):
                    if found is not None:
                        _TABLE[found] = rule

        add((*elementwise, *_ACTIVATIONS, *_OTHER_ELEMENTWISE, *[f"__{name}__" for name in _SPECIAL]), RaggedHandlers.elementwise)
        add(("linear", "embedding", "layer_norm", "matmul", "__matmul__"), RaggedHandlers.linear)
        add(("split", "split_with_sizes"), RaggedHandlers.split)
        add(("nonzero",), RaggedHandlers.nonzero)
        add(("masked_select",), RaggedHandlers.selected_by)
        add(("cat", "concat", "concatenate"), RaggedHandlers.concatenated)
        add(("size", "numel", "nelement"), RaggedHandlers.asked_size)
        add(("squeeze", "unsqueeze"), RaggedHandlers.reshaped)
        add(_REDUCTIONS, RaggedHandlers.reduction)
        add(_ALONG_ROWS, RaggedHandlers.along_rows)
        add(_NORMALISERS, RaggedHandlers.normaliser)
        add(_LOSSES, RaggedHandlers.loss)
        add(_CLASSIFICATIONS, RaggedHandlers.classification)
    return _TABLE
