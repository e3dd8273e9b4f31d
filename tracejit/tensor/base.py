"""`Tensor`: an array that may remember how it was computed.

A Tensor owns a NumPy array.  Views share its memory and its `Storage`, whose content version every in-place change advances.
A view remembers its root and the chain of view operations that leads to it (`_base`, `_chain`): after an in-place change of
the root or of any of its views, the view's position on the tape is made again from the root's (as PyTorch does).

Operators, in-place forms and most methods come from the tables of ops/public; what stands here is what only a concrete tensor has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.autograd import tape
from tracejit.autograd.tape import RETAIN, DataStorage, Storage, edge_of, move_retained
from tracejit.core.aval import Aval, aval_of
from tracejit.core.devices import CPU, device, require_cpu
from tracejit.core.dtypes import FLOATING_KINDS, FROM_NUMPY, DType, canonical, default_dtype
from tracejit.core.interpreter import state
from tracejit.core.library_warnings import warn
from tracejit.core.op import Op
from tracejit.core.shapes import contiguous, reshaped_strides
from tracejit.core.symbolic import concretise_sizes, has_symbols, shape_of, strides_of
from tracejit.ops.movement.copies import clone
from tracejit.ops.movement.views import detach, permute
from tracejit.ops.public import METHODS
from tracejit.tensor.contents import contents, is_data_of, number_in
from tracejit.tensor.rebinding import rebound
from tracejit.tensor.representation import remark, shown
from tracejit.tensor.size import Size

__all__ = ["Size", "Tensor", "begin_on", "fill", "refresh", "refuse_leaf", "share", "storage_of", "wrap"]

ndarray = np.ndarray
_new_tuple = tuple.__new__


def _channels_come_last(shape: tuple[int, ...], strides: Any, name: str) -> bool:
    """Whether (N, C, H, W) or (N, C, D, H, W) lies in memory as (N, H, W, C) or (N, D, H, W, C)."""
    if len(shape) != {"channels_last": 4, "channels_last_3d": 5}[name]:
        return False
    order = (0, *range(2, len(shape)), 1)
    expected = contiguous(tuple(shape[i] for i in order))
    return all(shape[i] == 1 or strides[i] == step for i, step in zip(order, expected, strict=True))


class Tensor:
    """A multi-dimensional array of one dtype that may remember how it was computed.

    Made by tensor(), zeros(), from_numpy() ...  As in PyTorch the constructor takes sizes, Tensor(2, 3), or data, Tensor([1, 2]), and its
    dtype is the default one; it shares the memory of a tensor, and of an array of that dtype.  Raises TypeError for a single number
    that is no size."""

    __slots__ = (
        "__dict__", "__weakref__", "_array", "_base", "_chain", "_dynamic", "_grad", "_held", "_hooks", "_index", "_node",
        "_requires_grad", "_seen", "_storage", "_unpacked",
    )  # fmt: skip
    __array_priority__ = 1000
    __hash__ = object.__hash__

    _array: np.ndarray[Any, Any]
    _base: Tensor | None
    _chain: tuple[tuple[Op, tuple[Any, ...], Mapping[str, Any]], ...]
    _dynamic: dict[int, bool]  # dimensions whose sizes are dynamic or not (marks.py); unset where there are none
    _grad: Tensor | None
    _held: dict[int, Any]  # what compiled functions keep for as long as this tensor lives; unset where there is nothing
    _unpacked: Any  # what the data of packed sequences were packed of (nn/utils/rnn.py); unset elsewhere
    _hooks: dict[int, Callable[[Any], Any]] | None
    _node: tape.Node | None
    _requires_grad: bool
    _seen: int
    _storage: Storage | None

    if TYPE_CHECKING:  # operators and methods are installed by methods.py

        def __getattr__(self, name: str) -> Any: ...
        def __getitem__(self, key: Any) -> Tensor: ...
        def __setitem__(self, key: Any, value: Any) -> None: ...
        def __add__(self, other: Any) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __rtruediv__(self, other: Any) -> Tensor: ...
        def __floordiv__(self, other: Any) -> Tensor: ...
        def __mod__(self, other: Any) -> Tensor: ...
        def __pow__(self, other: Any) -> Tensor: ...
        def __rpow__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...
        def __and__(self, other: Any) -> Tensor: ...
        def __or__(self, other: Any) -> Tensor: ...
        def __xor__(self, other: Any) -> Tensor: ...
        def __lt__(self, other: Any) -> Tensor: ...
        def __le__(self, other: Any) -> Tensor: ...
        def __gt__(self, other: Any) -> Tensor: ...
        def __ge__(self, other: Any) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __invert__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...

    def __init__(self, *data: Any, size: Any = None, device: Any = None) -> None:
        require_cpu("Tensor", device)
        state.top.note("tensor constructed", self)
        source = data[0] if len(data) == 1 and size is None else None
        fill(self, contents("Tensor", data if size is None else (Size(size),), default_dtype()))
        if isinstance(source, Tensor):
            share(self, source)
        elif isinstance(source, ndarray) and np.may_share_memory(source, self._array):
            state.top.note("array shared", source)
            storage_of(self).exposed = True

    def _become(self, kind: type[Tensor]) -> None:
        _set_class(self, kind)
        rebound()

    __class__ = property(type, _become)  # type: ignore[assignment]  # assigning another class is counted

    # ---- what it is -------------------------------------------------------------------------------------------------
    @property
    def shape(self) -> Size:
        """The sizes of the dimensions."""
        return _new_tuple(Size, self._sizes)

    @property
    def _sizes(self) -> tuple[int, ...]:
        """The same as a plain tuple, which takes a third of the time: for functions of the library that are called often."""
        return self._array.shape if not shape_of or (known := shape_of[0](self)) is None else known

    @property
    def dtype(self) -> DType:
        """The element type."""
        return FROM_NUMPY[self._array.dtype]

    @property
    def _aval(self) -> Aval:
        if shape_of and (known := shape_of[0](self)) is not None:
            return Aval(known, FROM_NUMPY[self._array.dtype])
        return aval_of(self._array.shape, FROM_NUMPY[self._array.dtype])

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._array.ndim

    @property
    def requires_grad(self) -> bool:
        """Whether gradients are wanted for this tensor."""
        if self._base is not None:
            refresh(self)
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    @property
    def is_leaf(self) -> bool:
        """Whether it is not the result of a recorded operation."""
        return self.grad_fn is None

    @property
    def grad_fn(self) -> tape.Node | None:
        """The node of the tape that made this tensor; None for a leaf."""
        if self._base is not None:
            refresh(self)
        node = self._node
        return None if node is None or node.stands_for_leaf else tape.shown(node)  # type: ignore[no-any-return]

    @property
    def output_nr(self) -> int:
        """The position of this tensor among the outputs of its grad_fn."""
        return self._index

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient of a leaf (or of a tensor that retains it); None before any backward().  Warns where there will be none:
        of a tensor that was computed."""
        value = state.top.read_grad(self)
        node = self._node
        if value is None and node is not None and not node.stands_for_leaf and not self.retains_grad:
            warn(
                "grad: the tensor is no leaf, it was computed, so backward() leaves no gradient in it; call retain_grad() on it before, or "
                "read the .grad of the tensor that it was computed from"
            )
        return value  # type: ignore[no-any-return]

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise TypeError(f"grad: expected a Tensor or None, got {value.__class__.__name__}")
            if value._sizes != self._sizes or value._array.dtype != self._array.dtype:
                raise RuntimeError(
                    f"grad: expected a tensor of shape {list(self.shape)} and dtype {self.dtype.name}, "
                    f"got {list(value.shape)} and {value.dtype.name}"
                )
        state.top.write_grad(self, value)

    @property
    def retains_grad(self) -> bool:
        """Whether backward() leaves the gradient of this non-leaf in `.grad`, since retain_grad() was called."""
        if self.grad_fn is None:
            return False
        node, index = edge_of(self)
        return RETAIN in (node.hooks or {}).get(index, {})

    @property
    def _version(self) -> int:
        return 0 if self._storage is None else self._storage.version

    @property
    def data(self) -> Tensor:
        """The same memory, detached, with a version of its own: writing through it is not seen by a backward pass, as in PyTorch.
        Assigning another tensor rebinds this one's memory."""
        out: Tensor = detach(self)
        storage_of(self).exposed = True
        out._base, out._chain, out._storage = None, (), DataStorage(exposed=True)
        return out

    @data.setter
    def data(self, value: Tensor) -> None:
        state.top.note("data assigned", self, value)
        if not is_data_of(value, self):  # as after `x.data -= 1`
            share(self, value)

    @property
    def T(self) -> Tensor:  # noqa: N802
        """All dimensions reversed (a view)."""
        return permute(self, dims=tuple(range(self.ndim - 1, -1, -1)))  # type: ignore[no-any-return]

    @property
    def mT(self) -> Tensor:  # noqa: N802
        """The last two dimensions swapped (a view).  Raises RuntimeError below two dimensions."""
        n = self.ndim
        if n < 2:
            raise RuntimeError(f"mT: expected at least 2 dimensions, got {n}")
        return permute(self, dims=(*range(n - 2), n - 1, n - 2))  # type: ignore[no-any-return]

    @property
    def device(self) -> device:
        """Where it is: the CPU."""
        return CPU

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self._array.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._aval.nbytes if shape_of else self._array.nbytes

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one dimension."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """The number of dimensions."""
        return self._array.ndim

    def numel(self) -> int:
        """The number of elements."""
        return self._aval.size if shape_of else self._array.size

    nelement = numel

    def element_size(self) -> int:
        """Bytes per element."""
        return self._array.itemsize

    def stride(self, dim: int | None = None) -> Any:
        """Distances between neighbours along each dimension, in elements."""
        strides = strides_of[0](self) if strides_of else None
        strides = tuple(s // self._array.itemsize for s in self._array.strides) if strides is None else strides
        return strides if dim is None else strides[concretise_sizes(dim)]

    def _symbolic_layout(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """The shape and the strides, where these are symbolic in the recording that is made: who decides something by them is noted."""
        strides = strides_of[0](self, False)
        shape = None if strides is None else self._aval.shape
        return None if strides is None or shape is None or not has_symbols((shape, strides)) else (shape, strides)

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the elements lie in row-major order; in the order of another memory format, such as channels_last, if it is given."""
        if memory_format is not None and memory_format._name not in ("contiguous_format", "preserve_format"):
            return _channels_come_last(tuple(self.shape), self.stride(), memory_format._name)
        layout = self._symbolic_layout() if strides_of else None  # asked by each reshape, where nobody records
        if layout is not None and self._array.size:
            shape, strides = layout
            return all(size == 1 or a == b for size, a, b in zip(shape, strides, contiguous(shape), strict=True))
        return self._array.flags.c_contiguous

    def _is_view(self) -> bool:
        """Whether it is a view of another tensor, `_base`."""
        return self._base is not None

    def is_viewable(self, shape: tuple[int, ...]) -> bool:
        """Whether `shape` can be had without copying."""
        layout = self._symbolic_layout() if strides_of else None  # asked by each reshape, where nobody records
        if layout is not None and self._array.size:
            return self.is_contiguous() or reshaped_strides(*layout, shape) is not None
        if self._array.flags.c_contiguous:
            return True
        return np.shares_memory(self._array.reshape(shape), self._array) if self._array.size else True

    def is_floating_point(self) -> bool:
        """Whether the dtype is one of floating point."""
        return self._array.dtype.kind in FLOATING_KINDS

    def data_ptr(self) -> int:
        """The address of the first element."""
        state.top.note("address taken", self)
        return int(self._array.ctypes.data)

    # ---- autograd ---------------------------------------------------------------------------------------------------
    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask for gradients of this leaf, in place.  Raises RuntimeError for integers, and for False on a non-leaf."""
        if requires_grad and self._array.dtype.kind not in FLOATING_KINDS:
            raise RuntimeError(f"requires_grad_(): only floating-point tensors can require gradients, got {self.dtype.name}")
        if not requires_grad and self.grad_fn is not None:
            raise RuntimeError(
                "requires_grad_(): only leaf tensors can be switched off; use detach() for a tensor without gradient"
            )
        if self._requires_grad != bool(requires_grad):
            state.top.note("requires_grad changed", self)
            self._requires_grad = bool(requires_grad)
            rebound()
        return self

    def detach(self) -> Tensor:
        """The same memory as a tensor that does not require gradients, outside the graph; a change in place shows in both."""
        return detach(self)  # type: ignore[no-any-return]

    def detach_(self) -> Tensor:
        """Leave the graph, in place."""
        if self._base is not None:
            raise RuntimeError("detach_(): a view cannot be detached in place; use detach()")
        state.top.note("detach_", self)
        self._node, self._index, self._requires_grad = None, 0, False
        rebound()
        return self

    def _put_on_tape(self, node: tape.Node, index: int, written: bool) -> None:
        """Become output `index` of `node`, which is new; written: since the contents were changed in place.

        Raises RuntimeError for what cannot: leaves that require gradients, and views."""
        if written and self._base is not None:
            raise RuntimeError("mark_dirty(): a view was changed in place by a Function; pass it a clone()")
        if written and self._node is None and self._requires_grad:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        if written:
            move_retained(self._node, self._index, node, index)
        self._base = None
        self._node, self._index, self._requires_grad = node, index, True
        rebound()

    # ---- contents leave ---------------------------------------------------------------------------------------------
    def item(self) -> Any:
        """The Python number in a tensor of one element.  Raises RuntimeError for any other number of elements."""
        if self._array.size != 1:
            raise RuntimeError(
                f"item(): a tensor with {self._array.size} elements cannot be converted to a scalar; expected 1 element"
            )
        return state.top.take_number(self)

    def tolist(self) -> Any:
        """The elements as nested lists, or a number for a tensor without dimensions."""
        return state.top.take_numbers(self) if self._array.ndim else self.item()

    def numpy(self, *, force: bool = False) -> np.ndarray[Any, Any]:
        """The NumPy array, sharing memory.  Raises RuntimeError while gradients are required, unless `force` says that they are not."""
        if not force and self.requires_grad:
            raise RuntimeError("numpy(): cannot be called on a tensor that requires grad; use tensor.detach().numpy() instead")
        storage_of(self).exposed = True
        return state.top.take_array(self)  # type: ignore[no-any-return]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy(order="K") if copy else array

    def __bool__(self) -> bool:
        if self._array.size != 1:
            raise RuntimeError(
                f"bool(): the truth value of a tensor with {self._array.size} elements is ambiguous; use any() or all()"
            )
        return bool(state.top.take(self))

    def __float__(self) -> float:
        return float(number_in("float", self))

    def __int__(self) -> int:
        return int(number_in("int", self))

    def __index__(self) -> int:
        value = state.top.take(self) if self._array.size == 1 else None
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(
                f"only an integer tensor of a single element can be an index, got {self.dtype.name}{list(self.shape)}"
            )
        return value

    def __len__(self) -> int:
        if self._array.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return int(self.shape[0]) if shape_of else self._array.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if self._array.ndim == 0:
            raise TypeError("iteration over a 0-d tensor")
        return iter(METHODS["unbind"](self, 0))

    def __reversed__(self) -> Tensor:
        return METHODS["flip"](self, (0,)) if self._array.ndim else self  # type: ignore[no-any-return]

    def __contains__(self, element: Any) -> bool:
        return bool(METHODS["any"](METHODS["eq"](self, element)))

    def __repr__(self) -> str:
        return shown(state.top.take_list(self), type(self).__name__, remark(self))

    def __format__(self, spec: str) -> str:
        if self._array.ndim == 0 and type(self) is Tensor:
            return format(self.item(), spec)
        return object.__format__(self, spec)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if not self.is_leaf:
            raise RuntimeError("deepcopy: only leaf tensors can be copied; clone() or detach() this one first")
        out, grad = self._like(clone(detach(self))), self.grad
        if grad is not None:
            out.grad = memo[id(grad)] = grad.__deepcopy__(memo)  # whoever calls notes `out`
        return out

    def _like(self, data: Tensor) -> Tensor:
        """A tensor of this kind, on the memory of `data`."""
        out = type(self).__new__(type(self))
        begin_on(out, data)
        if self.requires_grad:
            out.requires_grad_()
        if self.__dict__:
            state.top.note("attributes copied", self)
            out.__dict__.update(self.__dict__)
        return out

    def __copy__(self) -> Tensor:
        return self._like(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if not self.is_leaf:
            raise RuntimeError("pickle: only leaf tensors can be saved; detach() this one first")
        return _rebuild, (type(self), np.ascontiguousarray(self._array.view()), self._requires_grad)


def _rebuild(kind: type[Tensor], array: np.ndarray[Any, Any], requires_grad: bool) -> Tensor:
    out = fill(kind.__new__(kind), canonical(array))
    out._requires_grad = requires_grad
    return out


def fill(self: Tensor, array: np.ndarray[Any, Any]) -> Tensor:
    """Make `self`, new or not, a leaf that is bound to `array`."""
    again = hasattr(self, "_array")
    self._array = array
    self._requires_grad = False
    self._node = None
    self._index = 0
    self._storage = None
    self._base = None
    self._grad = None
    self._hooks = None
    if again:
        rebound()
    return self


_new = object.__new__
_set_class = object.__dict__["__class__"].__set__


def wrap(array: Any) -> Tensor:
    """A Tensor that owns `array` (or a NumPy scalar)."""
    self = _new(Tensor)
    self._array = array if type(array) is ndarray else np.asarray(array)
    self._requires_grad = False
    self._node = None
    self._index = 0
    self._storage = None
    self._base = None
    self._grad = None
    self._hooks = None
    return self


def storage_of(x: Tensor) -> Storage:
    """The storage record of a tensor, made when first needed."""
    storage = x._storage
    if storage is None:
        storage = x._storage = Storage()
    return storage


def share(x: Tensor, y: Tensor) -> None:
    """Bind `x` to the memory of `y`."""
    x._array, x._storage, x._base = y._array, storage_of(y), None
    rebound()


def become(x: Tensor, view: Tensor) -> None:
    """Make a view `x` another view of the same root: with its position in memory, and on the tape."""
    if view._node is not None:
        move_retained(x._node, x._index, view._node, view._index)
    x._array, x._chain, x._seen, x._storage = view._array, view._chain, view._seen, view._storage
    x._node, x._index, x._requires_grad = view._node, view._index, view._requires_grad
    rebound()


def begin_on(x: Tensor, y: Tensor) -> None:
    """Make `x`, new or not, a leaf on the memory of `y`."""
    fill(x, y._array)
    share(x, y)
    state.top.note("leaf begun", x, y)


def leaf_of_views(x: Tensor) -> Tensor | None:
    """The view that `x` is, or is a view of, which is a leaf of its own: somebody has asked for its gradients, not for those of its root.
    Its elements are its own whatever is written through the root."""
    step: Any = x
    for _ in range(len(x._chain) + 1):
        node = step._node if isinstance(step, Tensor) else step
        if node is None:
            return step if step._base is not None and step._requires_grad else None
        if not node.edges or node.edges[0] is None:
            return None
        step = node.edges[0][0]
    return None


def refuse_leaf(x: Tensor) -> None:
    """Raises RuntimeError for a leaf that requires gradients, and for a view of one, which is not changed in place while these are
    recorded."""
    base = x._base
    if base is None:
        is_leaf = x._requires_grad and (x._node is None or x._node.stands_for_leaf)
    elif base._requires_grad:
        is_leaf = base._node is None or base._node.stands_for_leaf
    else:
        is_leaf = x._requires_grad and leaf_of_views(x) is not None
    if is_leaf:
        which = "a leaf Variable" if base is None else "a view of a leaf Variable"
        raise RuntimeError(f"{which} that requires grad is being used in an in-place operation; use no_grad() or detach()")


def refresh(x: Tensor) -> None:
    """Bring a view's position on the tape up to date with its root."""
    base = x._base
    assert base is not None
    version = (base._storage or storage_of(base)).version
    if x._seen == version:
        return
    if base._base is not None:  # it has taken another shape in place, and has a root itself
        x._base = base = base._base
    if base._node is None and not base._requires_grad:
        if x._node is not None and leaf_of_views(x) is None:
            x._node, x._requires_grad = None, False
        x._seen = version
        return
    source: Tensor = base
    evaluate, previous = state.base.bind, state.grad_enabled
    try:
        state.grad_enabled = True
        for op, operands, attributes in x._chain:
            source = evaluate(op, (source, *operands), attributes)
    finally:
        state.grad_enabled = previous
    if source._node is not None:
        move_retained(x._node, x._index, source._node, source._index)
    x._node, x._index, x._requires_grad, x._seen = source._node, source._index, source._requires_grad, version
