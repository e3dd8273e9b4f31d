"""Ragged tensors: the size of their first dimension depends on data.  `x[mask]`, `x[i, :length]`, the data of packed sequences.

Such a tensor consists of rows selected from a tensor of fixed size.  Functions of single rows, sums and means over rows, and
losses are recorded over all rows: `index_add` spreads the selected rows among zeros, the function is applied to all, and
`index_select` selects the rows of the result.  Where the next function spreads them again, both cancel out
(`recording/selections.py`).  If nothing else reads the tensor, nothing depends on the number of its rows, and one recording
serves all sizes.  Any other use may see the size, so the program guards it by an exit (`guard_size`).

Rows that are not selected, the *other* rows, contribute nothing to a result or a gradient: values that may be infinite or NaN
there are replaced by zeros in both directions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
from tracejit.ops.indexing import index_add, index_select, nonzero, row_indices
from tracejit.ops.public.creation import arange
from tracejit.ops.public.derive import FUNCTIONS, METHODS
from tracejit.tensor import Tensor, storage_of

if TYPE_CHECKING:
    from tracejit.capture.handlers.recorder import Recorder

__all__ = ["RaggedHandlers"]

_OF_ALL_SIZES: Final = frozenset({"dtype", "device", "ndim", "requires_grad"})
"""Attributes that do not depend on the number of rows."""
_SPLIT: Final = 1 << 18
"""`split` gives ragged tensors if its parts, each computed over all rows, have at most so many elements together."""
_SPARSE, _SPARSE_OF_MANY, _MANY = 4, 2, 1 << 16
"""A mask must select at least one in _SPARSE rows, or one in _SPARSE_OF_MANY rows of tensors with more than _MANY elements.  If
it selects fewer, computing all rows costs more than a recording for each size."""
_FEW: Final = 1 << 12
"""Elements of a tensor that are so few that it may select any number of its rows, none among them."""
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
    """How the rows of a ragged tensor were selected.

    tensor: the ragged tensor, kept alive.
    values: (rows, ...), all rows, with zeros in the other rows.
    inside: bool (rows,), true for selected rows.  indices: the indices of these, int64.
    starts: whether the selected rows come first.
    padded: (lengths, mask (T, N)) of the packed sequences whose data the tensor is; else None.
    owner: the tensor of which it is a slice in eager mode, or itself.  version: of the contents of the owner at the selection.
    slice: records that slice in place of the selection.  view: creates the slice when the recording has stopped.
    made_of: the result of the last function over all rows, from which the rows were selected.
    copies: copies of `values` with another number in the other rows.
    is_saved: whether a backward pass may need its contents."""

    tensor: Tensor
    values: Tensor
    inside: Tensor
    indices: Tensor
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
    """Whether an array has the strides of a new one, also in dimensions of one element, which `flags.c_contiguous` ignores."""
    return element_strides(array) == contiguous(array.shape)


class RaggedHandlers(Handlers):
    """Records functions of ragged tensors.

    follows_rows: whether this recording handles ragged tensors; if not, each size that depends on data is guarded."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        journal = recorder.journal
        self.follows_rows = False
        self._rows: dict[int, RaggedRows] = journal.dictionary()
        # How a mask is computed -> (mask, indices of its rows).
        self._selections: dict[Any, tuple[Tensor, Tensor]] = journal.dictionary()
        self._numbers: dict[Any, int] = journal.dictionary()  # a computation -> its value number: equal ones share it
        self._by_value: dict[int, int] = journal.dictionary()  # a value of the graph -> its value number
        self._seen: set[int] = journal.set()  # ids of the `indices` whose number is guarded

    def tables(self) -> tuple[Any, ...]:
        """The tables of the journal that tell of ragged tensors what the nodes of the recording compute."""
        return self._rows, self._selections, self._numbers, self._by_value, self._seen

    @property
    def _is_on(self) -> bool:
        """Whether ragged tensors are handled."""
        return self.follows_rows and not self.recorder.stopped

    def rows_of(self, value: Any) -> RaggedRows | None:
        """The rows of a ragged tensor; None for other tensors, and for a slice of a tensor that has been written to since."""
        rows = self._rows.get(id(value))
        if rows is not None:
            return rows if self._is_current(rows) else None
        unpacked = (
            self.recorder.unwatched(lambda: packing.unpacked(value))
            if self._is_on and id(value) in self.recorder.deferred
            else None
        )
        if unpacked is None:
            return None
        values, lengths, inside = unpacked
        count = product(tuple(inside.shape))
        flat = self._native(lambda: values.reshape(count, *values.shape[2:]))
        mask, indices = self._selection(("padded", self._number_of(inside)), lambda: inside.reshape(count))
        self.recorder.interpreter.replace(value, lambda: index_select.of(flat, indices, dim=0))
        rows = self._rows[id(value)] = RaggedRows(value, flat, mask, indices, value, value._version, padded=(lengths, inside))
        return rows

    def _is_current(self, rows: RaggedRows) -> bool:
        """Whether the owner of the rows, and its owner in turn, have not been written to since the selection."""
        owner = rows.owner
        while owner._version == rows.version:
            if owner is rows.tensor or id(owner) not in self._rows:
                return True
            rows = self._rows[id(owner)]
            owner = rows.owner
        return False

    def guard_size(self, tensor: Any) -> None:
        """Guard the size of a ragged tensor, which something is about to read, by an exit.  A slice is recorded as one."""
        rows = self._rows.get(id(tensor)) if self._rows else None
        if rows is None or self.recorder.stopped:
            return
        if rows.slice is not None:
            del self._rows[id(tensor)]
            self.recorder.interpreter.replace(tensor, rows.slice)
        elif id(rows.indices) not in self._seen:
            self._seen.add(id(rows.indices))
            self._native(lambda: nonzero(rows.inside))

    def before_write(self, target: Tensor) -> None:
        """Note that `target` is about to be written to.

        If it shares memory with a ragged tensor that a backward pass needs, that pass raises in eager mode.  Here the pass has
        saved copies, which are marked as written.  The recording stops, and the next ones handle no ragged tensors."""
        for rows in list(self._rows.values()):
            if rows.is_saved and np.may_share_memory(rows.owner._array, target._array):
                for copy in (rows.values, rows.made_of, *rows.copies):
                    if copy is not None:
                        mark_written([storage_of(copy)])
                self.recorder.stop("selected_rows_written", user_line())

    def end(self) -> None:
        """End the recording: tensors that are slices in eager mode become slices."""
        for rows in self._rows.values():
            if rows.view is not None:
                self.recorder.interpreter.become(rows.tensor, self.recorder.unwatched(rows.view))
                rows.view = rows.slice = None

    def escape(self, tensor: Tensor) -> None:
        """Note that a tensor escapes.  If it is a slice in eager mode, it is recorded as one, so that it shares memory."""
        rows = self._rows.get(id(tensor))
        if rows is not None and rows.slice is not None:
            self.guard_size(tensor)

    def deferred_rows(self, tensor: Tensor) -> RaggedRows | None:
        """The rows of a ragged tensor that escapes, if each call may select them after the program, however many there are: no gradient
        goes through it, nothing shares its memory, and its size is not guarded."""
        rows = self.rows_of(tensor) if self._rows and self._is_on and id(tensor) in self._rows else None
        if rows is None or rows.owner is not tensor or tensor._requires_grad or id(rows.indices) in self._seen:
            return None
        is_bare = type(tensor) is Tensor and not (tensor._hooks or vars(tensor) or tensor._grad is not None)
        is_shared = any(other.owner is tensor for other in self._rows.values() if other is not rows) or self._has_view(tensor)
        return rows if is_bare and not is_shared else None

    def size(self, tensor: Any, dim: int) -> Any:
        """`tensor.shape[dim]` of a ragged tensor; ABSENT for other tensors.  The program computes the number of rows."""
        rows = None if self.recorder.stopped else self.rows_of(tensor)
        if rows is None or not -tensor._array.ndim <= dim < tensor._array.ndim:
            return ABSENT
        dim %= tensor._array.ndim
        return self._native(lambda: rows.values.shape[dim]) if dim else self._count(rows)

    def _count(self, rows: RaggedRows) -> Any:
        count = self._native(rows.inside.sum)
        return self.recorder.extracted_numbers.element(count)

    # -- selections of rows
    def item(self, owner: Any, key: Any) -> Any:
        """`owner[key]`, if the result or the key is ragged; else ABSENT."""
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
        begins = last.start is None or (type(last.start) is int and last.start == 0)  # comparing a symbolic number adds a guard
        return self._prefix(owner, key, tuple(before), last.stop) if begins else ABSENT

    def store(self, owner: Any, key: Any, value: Any) -> bool:
        """Record `owner[mask] = value`, for a ragged tensor that the mask selects, as a write of all of `owner`.  Returns whether it
        has: not for other operands."""
        if not self._is_on or not type(owner) is type(key) is type(value) is Tensor or key._array.dtype.kind != "b":
            return False
        rows, dims, shape = self.rows_of(value), key._array.ndim, owner._array.shape
        number = self._number_of(key) if rows is not None and dims and key._array.shape == shape[:dims] else None
        if rows is None or number is None or (selection := self._selections.get(("mask", number))) is None:
            return False
        is_like = rows.values._array.shape[1:] == shape[dims:] and value._array.dtype == owner._array.dtype
        if selection[1] is not rows.indices or not is_like or (owner.is_leaf and owner._requires_grad):
            return False
        self.recorder.inspect_all((owner, key))
        values = self._native(lambda: rows.values.reshape(*owner.shape))
        mask = self._native(lambda: key.reshape(*key.shape, *(1,) * (len(shape) - dims)))
        self._native(lambda: owner.copy_(where.of(mask, values, owner)))
        return True

    def in_place(self, method: str, left: Any, right: Any) -> Any:
        """An operator that changes a ragged tensor in place, `x[mask] *= 2`, which no view shows and no gradient goes through; else
        ABSENT.  method: the special method that gives a new tensor."""
        rows = self.rows_of(left) if self._is_on and self._rows and type(left) is Tensor else None
        if rows is None or rows.owner is not left or rows.is_saved or left._requires_grad or self._has_view(left):
            return ABSENT
        result = self.call(getattr(Tensor, method), (left, right), {})
        if type(result) is not Tensor or result._requires_grad:
            return ABSENT
        if (result._array.dtype, result._array.shape) != (left._array.dtype, left._array.shape):
            return ABSENT
        own, interpreter = self._rows.pop(id(result)), self.recorder.interpreter
        self.recorder.keep.append(result)
        left._array[...] = result._array
        mark_written([storage_of(left)])
        interpreter.values[id(left)] = value = interpreter.values[id(result)]
        interpreter.defined[value] = left
        own.tensor = own.owner = left
        own.version = left._version
        self._rows[id(left)] = own
        return left

    def _has_view(self, tensor: Tensor) -> bool:
        """Whether the recording has a view of the tensor."""
        value = self.recorder.interpreter.values.get(id(tensor))
        for node in reversed(self.recorder.interpreter.nodes):
            if value in node.outputs:
                return False
            if node.op.kind is Kind.VIEW and node.operands[0] == value:
                return True
        return True

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
        """`owner[mask]`, for a tensor of bools; ABSENT if it is not worth while or the mask is ragged itself."""
        recorder, dims = self.recorder, mask._array.ndim
        if not dims or mask._array.shape != owner._array.shape[:dims] or self.rows_of(mask) is not None:
            return ABSENT
        recorder.inspect_all((owner, mask))
        count, rows = len(mask._array.ravel().nonzero()[0]), mask._array.size
        is_sparse = not count or count * (_SPARSE if owner._array.size <= _MANY else _SPARSE_OF_MANY) < rows
        if is_sparse and (owner._array.size > _FEW or not rows):
            return ABSENT
        if not _is_row_major(owner._array) and not _is_row_major(owner._array[mask._array]):
            return ABSENT  # `owner[mask]` keeps the order of dimensions in memory, index_select does not
        number = self._number_of(mask)
        if number is None or recorder.interpreter.value_of(owner) is None:
            return ABSENT
        selection = self._selection(("mask", number), lambda: mask.reshape(product(tuple(mask.shape))).clone())
        values = self._native(lambda: owner.reshape(selection[0].shape[0], *owner.shape[dims:]))
        return self._selected(values, *selection)

    def _prefix(self, owner: Tensor, key: Any, before: tuple[int, ...], stop: Any) -> Any:
        """`owner[*before, :stop]`, for a number that the program computes; else ABSENT."""
        recorder, dim = self.recorder, len(before)
        # `owner[:stop]`, for a number that is known before the program, has a symbolic size instead.
        can_guard_membership = bool(before) or is_post_program(stop) or type(stop) is Tensor
        position = self._position_in_program(stop) if can_guard_membership else None
        shape = owner._array.shape
        if position is None or not 0 <= int(position._array) <= shape[dim] or shape[dim] < 2:
            return ABSENT
        if product(shape[dim:]) > _MANY and int(position._array) * _SPARSE_OF_MANY < shape[dim]:
            return ABSENT
        recorder.inspect(owner)
        number = self._number_of(position)
        values = self._native(lambda: owner[before]) if before else owner
        if number is None or recorder.interpreter.value_of(values) is None:
            return ABSENT
        size: Any = (recorder.interpreter.symbolic_shape(values) or values._array.shape)[0]
        # Sizes that are equal in this call alone have different keys, so that they do not share a mask.
        key_of_size = type(size), getattr(size, "number", size)

        def inside() -> Any:
            own = values.shape[0]
            return arange(own) < where.of(position < 0, position + own, position)

        tensor = self._selected(values, *self._selection(("prefix", number, *key_of_size), inside))
        rows = self._rows[id(tensor)]
        rows.starts, rows.owner, rows.version = True, owner, owner._version
        plain_key = (*before, slice(None, int(position._array)))
        rows.slice, rows.view = lambda: recorder.containers.item_of_tensor(owner, key), lambda: owner[plain_key]
        return tensor

    def _position_in_program(self, number: Any) -> Tensor | None:
        """A number that the program computes, or that is one of several in an argument, as a 0-d tensor int64; else None."""
        recorder = self.recorder
        if is_post_program(number) or type(number) is Tensor:
            return recorder.containers.position_in_program(number)
        if not is_symbolic(number) or type(plain(number)) is not int or not self._is_one_of_several(number):
            return None
        return self._native(lambda: full.of(number, shape=(), dtype=int64))  # type: ignore[no-any-return]

    def _is_one_of_several(self, number: Any) -> bool:
        """Whether a number is one of several items of a list or tuple among the arguments, as `lengths[0]` is."""
        called = self.recorder.facts.numbers.get(number._name, "")
        container, _, index = called.removesuffix("]").rpartition("[")
        return called.endswith("]") and index.isdigit() and self.recorder.has_integer(f"{container}[{int(index == '0')}]")

    def _selection(self, key: Any, make: Callable[[], Any]) -> tuple[Tensor, Tensor]:
        """(mask, indices of its rows), one for all selections with equal keys.  make: computes the mask."""
        selection = self._selections.get(key)
        if selection is None:
            inside = self._native(make)
            selection = self._selections[key] = inside, self._native(lambda: row_indices(inside))
        return selection

    def _selected(
        self, values: Any, inside: Tensor, indices: Tensor, starts: bool = False, padded: tuple[Any, Any] | None = None
    ) -> Tensor:
        """A new ragged tensor: the rows of `values` that `inside` selects."""
        tensor: Tensor = self._native(lambda: index_select.of(values, indices, dim=0))
        shape, dtype = values.shape, values.dtype
        spread = self._native(
            lambda: index_add.of(full(_no_addend(dtype), shape=tuple(shape), dtype=dtype), indices, tensor, dim=0)
        )
        if padded is not None:
            lengths, mask = padded
            shaped = self._native(lambda: spread.reshape(*mask.shape, *shape[1:]))
            tensor._unpacked = shaped, lengths, mask
        self._rows[id(tensor)] = RaggedRows(tensor, spread, inside, indices, tensor, tensor._version, starts, padded)
        return tensor

    def rows_where(self, values: Tensor, inside: Tensor, is_fixed: bool) -> Tensor:
        """A new tensor of the rows that a vector of bools selects.  is_fixed: whether their number is guarded, so that it is an ordinary
        tensor."""
        tensor = self._selected(values, *self._selection(("rows", self.recorder.interpreter.value_of(inside)), lambda: inside))
        if is_fixed or not self._is_on:
            self.fix_size(tensor)
        return tensor

    def joined(self, parts: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """A new ragged tensor of rows, one after the other: for each part all rows, and which of them are meant."""
        if len(parts) > 1:
            values, masks = [x for x, _ in parts], [x for _, x in parts]
            parts = [(self._native(lambda: FUNCTIONS["cat"](values)), self._native(lambda: FUNCTIONS["cat"](masks)))]
        return self.rows_where(*parts[0], is_fixed=False)

    def fix_size(self, tensor: Tensor) -> None:
        """Guard the size of a ragged tensor, which becomes an ordinary one."""
        if id(tensor) in self._rows and not self.recorder.stopped:
            self.guard_size(tensor)
            self._rows.pop(id(tensor), None)

    def _like(self, values: Any, rows: RaggedRows) -> Tensor:
        """A new ragged tensor: the rows of `values`, the result of a function, that are selected in `rows`."""
        tensor = self._selected(values, rows.inside, rows.indices, rows.starts, rows.padded)
        own = self._rows[id(tensor)]
        own.made_of, own.is_saved = values, tensor._requires_grad
        return tensor

    # -- functions of ragged tensors
    def call(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """function(*arguments, **keywords), for a function of the library that has a rule here, with ragged tensors of one
        selection among its arguments; else ABSENT."""
        if not self._is_on or function not in (rules := _rules()):
            return ABSENT
        if (rule := rules[function]) in _SELECTING:
            return rule(self, *arguments, **keywords)
        if not (self._rows or self.recorder.deferred):
            return ABSENT
        ragged = [rows for x in (*arguments, *keywords.values()) if type(x) is Tensor and (rows := self.rows_of(x)) is not None]
        if not ragged or any(rows.indices is not ragged[0].indices for rows in ragged[1:]):
            return ABSENT
        if not all(map(self._is_simple, (*arguments, *keywords.values()))):
            return ABSENT
        for_library = self.recorder.calls.for_library
        operands = tuple(map(for_library, arguments))
        result = rule(self, function, operands, {k: for_library(v) for k, v in keywords.items()}, ragged[0])
        if getattr(result, "_requires_grad", False):
            for rows in ragged:
                rows.is_saved = True
        return result

    def operator(self, method: str, reflected: str, left: Any, right: Any) -> Any:
        """An operator with a ragged operand that has a rule here; else ABSENT.  method, reflected: the special methods of the
        left and of the right operand."""
        if not (self._rows or self.recorder.deferred):
            return ABSENT
        if isinstance(left, Tensor):
            return self.call(getattr(type(left), method, None), (left, right), {})
        return self.call(getattr(type(right), reflected, None), (right, left), {}) if isinstance(right, Tensor) else ABSENT

    def is_independent_of_size(self, tensor: Tensor, name: str, value: Any) -> bool:
        """Whether `tensor` is ragged and its attribute `name` does not depend on its size, or `value`, its attribute in the
        class, is a method that has a rule here."""
        if not (self._rows or self.recorder.deferred):
            return False
        is_independent = name in _OF_ALL_SIZES or (type(value) is FunctionType and value in _rules())
        return is_independent and self.rows_of(tensor) is not None

    @staticmethod
    def _is_simple(value: Any) -> bool:
        return all(type(x) is int for x in value) if type(value) in (tuple, list) else not is_post_program(value)

    def by_rows(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], like: RaggedRows) -> Any:
        """A function that is applied to each row, with tensors that all rows share (weights).  like: the rows of the result."""
        self._inspect_others((*arguments, *keywords.values()))

        def spread(value: Any) -> Any:
            rows = self.rows_of(value) if type(value) is Tensor else None
            return value if rows is None else rows.values

        operands, named = tuple(map(spread, arguments)), {k: spread(v) for k, v in keywords.items()}
        values = self._native(lambda: function(*operands, **named))
        for x, y in zip(arguments, operands, strict=True):
            if values is y:
                return x
        result = self._like(values, like)
        if values._base is not None and type(arguments[0]) is Tensor and self.rows_of(arguments[0]) is like:
            rows, recorder = self._rows[id(result)], self.recorder

            def view() -> Any:
                recorder.inspect_all(arguments)
                return function(*arguments, **keywords)

            rows.owner, rows.version, rows.slice = arguments[0], arguments[0]._version, view
            rows.view, rows.made_of = lambda: function(*map(plain, arguments), **keywords), None
        return result

    def _inspect_others(self, values: tuple[Any, ...]) -> None:
        self.recorder.inspect_all([x for x in values if isinstance(x, Tensor) and self.rows_of(x) is None])

    def elementwise(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], like: RaggedRows) -> Any:
        """An elementwise function.  Other tensors are broadcast along the rows, and get gradients from selected rows alone."""
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
        operands = []
        for k, x in enumerate(arguments):
            rows = self.rows_of(x) if type(x) is Tensor else None
            if rows is not None:
                operands.append(rows.values)
            elif k in others:
                operands.append(self._native(partial(where.of, self._columns(like, dims), x, 1.0)))
            else:
                operands.append(x)
        return self._like(self._native(lambda: function(*operands, **keywords)), like)

    def _columns(self, like: RaggedRows, dims: int) -> Tensor:
        """The mask with `dims` dimensions: (rows, 1, ...)."""
        inside = like.inside
        return self._native(lambda: inside.reshape(inside.shape[0], *(1,) * (dims - 1)))  # type: ignore[no-any-return]

    def linear(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], like: RaggedRows) -> Any:
        """`linear`, `embedding`, `layer_norm`, `matmul` with a matrix, for a ragged first argument and no other ragged ones."""
        others = (*arguments[1:], *keywords.values())
        if not arguments or self.rows_of(arguments[0]) is None or any(self.rows_of(x) is not None for x in others):
            return ABSENT
        if function in _MATMULS and (
            like.values._array.ndim != 2 or not isinstance(others[0], Tensor) or others[0]._array.ndim > 2
        ):
            return ABSENT
        if function is functional.embedding and any(x not in (None, 2.0, False) for x in (*arguments[3:], *keywords.values())):
            return ABSENT  # these options count indices, or change the weight
        return self.by_rows(function, arguments, keywords, like)

    def reduction(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], like: RaggedRows) -> Any:
        """A reduction within each row, or over the selected rows."""
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
            return self.recorder.mark_created(self._native(lambda: function(self._filled(like, mask, lowest), dim, keepdim)))
        if name == "logsumexp":
            if not self._has_some(like):
                return ABSENT
            mask = self._columns(like, ndim)
            return self._native(lambda: function(self._filled(like, mask, -math.inf), dims, keepdim))
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
        """The unbiased variance over the selected rows."""
        values, mask, sum_of = like.values, self._columns(like, like.values._array.ndim), FUNCTIONS["sum"]
        if values._array.dtype.kind != "f":
            return ABSENT

        def variance() -> Any:
            count = (like.inside.sum() * product(tuple([values.shape[d] for d in dims if d]))).to(values.dtype)
            distances = where.of(mask, values - sum_of(values, dims, True) / count, 0.0)
            return sum_of(distances.square(), dims, keepdim) / where.of(count > 1, count - 1, 0.0)

        return self._native(variance)

    def _extreme(self, name: str, like: RaggedRows, dims: tuple[int, ...], keepdim: bool) -> Any:
        """`amax` or `amin` over the selected rows."""
        values = like.values
        if values._array.dtype.kind != "f" or not self._has_some(like):
            return ABSENT
        mask, lowest = self._columns(like, values._array.ndim), -math.inf if name == "amax" else math.inf
        return self._native(lambda: FUNCTIONS[name](self._filled(like, mask, lowest), dims, keepdim))

    def _filled(self, like: RaggedRows, mask: Tensor, number: float) -> Any:
        """A copy of all rows, with `number` in the other rows.  mask: `_columns` of the rows."""
        copy = where.of(mask, like.values, number)
        like.copies.append(copy)
        self.journal.note()
        return copy

    def _has_some(self, like: RaggedRows) -> bool:
        """Whether any row is selected, guarded by an exit."""
        return bool(self._native(lambda: self.recorder.interpreter.take(like.inside.any())))

    def along_rows(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], like: RaggedRows) -> Any:
        """A function along one dimension, if that is not the dimension of the rows."""
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
        return self._like(self._native(lambda: function(self._filled(like, mask, -math.inf), dim=dim)), like)

    def loss(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], like: RaggedRows) -> Any:
        """A loss of pairs of elements: an elementwise function, and the sum or mean over the selected rows."""
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
        """`cross_entropy` and `nll_loss`: the other rows get the target `ignore_index`."""
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
        """`cat` of ragged tensors, along the rows or along another dimension."""
        if not arguments or type(arguments[0]) not in (list, tuple) or not (self._rows or self.recorder.deferred):
            return ABSENT
        tensors, dim = arguments[0], keywords.get("dim", arguments[1] if len(arguments) == 2 else 0)
        parts = [self.rows_of(x) for x in tensors if type(x) is Tensor]
        if len(arguments) > 2 or set(keywords) - {"dim"} or type(dim) is not int or len(parts) != len(tensors):
            return ABSENT
        rows = [x for x in parts if x is not None]
        if not rows or len(rows) != len(parts) or len({(x.values._array.ndim, x.values._array.dtype) for x in rows}) > 1:
            return ABSENT
        values = [x.values for x in rows]
        if dim % values[0]._array.ndim:
            alike = all(x.indices is rows[0].indices for x in rows)
            return self._like(self._native(lambda: FUNCTIONS["cat"](values, dim)), rows[0]) if alike else ABSENT
        if len({x._array.shape[1:] for x in values}) > 1:
            return ABSENT
        masks = [x.inside for x in rows]
        selection = self._selection(("cat", *map(id, masks)), lambda: FUNCTIONS["cat"](masks))
        return self._selected(self._native(lambda: FUNCTIONS["cat"](values)), *selection)

    def split(self, *arguments: Any, **keywords: Any) -> Any:
        """`split(x, sizes)` along the first dimension, for sizes that the program computes: ragged tensors."""
        recorder = self.recorder
        if len(arguments) != 2 or keywords or type(arguments[0]) is not Tensor or type(arguments[1]) not in (list, tuple):
            return ABSENT
        owner, numbers = arguments[0], list(recorder.contents.elements(arguments[1]))
        if not any(map(is_symbolic, numbers)) or len(numbers) * owner._array.size > _SPLIT or not owner._array.ndim:
            return ABSENT
        if self.rows_of(owner) is not None or sum(map(plain, numbers)) != len(owner._array) or min(map(plain, numbers)) < 0:
            return ABSENT
        sizes = [x for x in map(self._position_in_program, numbers) if x is not None]
        if len(sizes) != len(numbers):
            return ABSENT
        recorder.inspect(owner)
        steps = self._native(lambda: FUNCTIONS["stack"](sizes))
        ends = self._native(lambda: steps.cumsum(0))
        self._native(lambda: recorder.interpreter.take((ends[-1] == owner.shape[0]) & (steps >= 0).all()))
        number = self._number_of(ends)
        return recorder.mark_created(tuple([self._part(owner, number, ends, steps, k) for k in range(len(sizes))]))

    def _part(self, owner: Tensor, number: Any, ends: Tensor, steps: Tensor, k: int) -> Tensor:
        """Part k of a split.  number: the value number of `ends`.  steps, ends: the sizes and ends of all parts."""
        end = self._native(lambda: ends[k])
        start = self._native(lambda: end - steps[k])

        def inside() -> Any:
            position = arange(owner.shape[0])
            return (position >= start) & (position < end)

        part = self._selected(owner, *self._selection(("part", number, k), inside))
        rows = self._rows[id(part)]
        rows.owner, rows.version = owner, owner._version
        plain_key = slice(int(start._array), int(end._array))
        rows.slice = lambda: self.recorder.containers.item_of_tensor(owner, slice(start, end))
        rows.view = lambda: owner[plain_key]
        return part

    def asked_size(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], like: RaggedRows) -> Any:
        """`size(dim)` and `numel()`."""
        if keywords or len(arguments) != (2 if function.__name__ == "size" else 1):
            return ABSENT
        if function.__name__ == "size":
            return self.size(arguments[0], arguments[1]) if type(arguments[1]) is int else ABSENT
        others = product(like.values._array.shape[1:])
        has_symbols = self.recorder.interpreter.symbolic_shape(like.values) is not None
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
        """The value number of a tensor of the program, which equal computations share; None for one of unknown origin."""
        value = self.recorder.interpreter.value_of(tensor)
        return None if value is None else self._number(value)

    def _number(self, value: int) -> int:
        program = self.recorder.interpreter
        if program.is_written(value):
            return self._own_number(object())
        number = self._by_value.get(value)
        if number is None:
            node = program.producer(value)
            if node is None or node.op.kind is Kind.RANDOM or node.op.effect is Effect.IN_PLACE:
                number = self._own_number(value)
            else:
                operands = tuple(
                    [self._number(x) if type(x) is int else (type(x), getattr(x, "value", None)) for x in node.operands]
                )
                try:
                    number = self._own_number((node.op, operands, node.attributes, node.outputs.index(value)))
                except TypeError:  # an attribute that is not hashable
                    number = self._own_number(value)
            self._by_value[value] = number
        return number

    def _own_number(self, key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def _no_addend(dtype: Any) -> Any:
    """The number that changes no other when it is added: 0.0 would make 0.0 of -0.0."""
    return -0.0 if dtype.is_floating_point else False if dtype is bool_ else 0


_MATMULS: Final = frozenset({FUNCTIONS["matmul"], METHODS["matmul"], Tensor.__matmul__})
_SELECTING: Final = (RaggedHandlers.split, RaggedHandlers.nonzero, RaggedHandlers.selected_by, RaggedHandlers.concatenated)
_TABLE: dict[Any, Any] = {}


def _rules() -> dict[Any, Any]:
    """The rules: function of the library -> the method that records it.  Built on the first call."""
    if not _TABLE:
        elementwise = [
            name for name in METHODS if name in REGISTRY and REGISTRY[name].kind is Kind.ELEMENTWISE and name != "where"
        ]

        def add(names: Any, rule: Any) -> None:
            for name in names:
                for function in (table.get(name) for table in (FUNCTIONS, METHODS, vars(functional), vars(Tensor))):
                    if function is not None:
                        _TABLE[function] = rule

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
