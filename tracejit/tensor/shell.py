"""What programs ask a tensor besides its contents: where it lies, what kind it is; and the older ways to make another one like it.

Dense tensors on the CPU are the only kind there is, so most answers are constants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.autograd.tape import mark_written
from tracejit.core.devices import require_cpu
from tracejit.core.dtypes import DType, as_dtype
from tracejit.core.interpreter import state
from tracejit.core.naming import package_name
from tracejit.core.shapes import broadcast_shapes as broadcasted
from tracejit.ops.public import METHODS
from tracejit.tensor.base import Tensor, become, refuse_leaf, share, storage_of, wrap
from tracejit.tensor.construction import tensor
from tracejit.tensor.contents import contents
from tracejit.tensor.rebinding import rebound
from tracejit.tensor.size import Size

__all__ = ["Layout", "MemoryFormat", "broadcast_shapes", "is_tensor", "shell", "strided", "typename"]


class Layout:
    """How elements lie in memory: `strided` is the only way here."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"{package_name()}.{self._name}"


class MemoryFormat(Layout):
    """An order of dimensions in memory: accepted where PyTorch takes one, and without effect on values."""


strided = Layout("strided")


def is_tensor(obj: Any) -> bool:
    """Whether `obj` is a Tensor."""
    return isinstance(obj, Tensor)


def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that `shapes`, of sizes or single ones, broadcast to.  Raises RuntimeError where they do not."""
    return Size(broadcasted("broadcast_shapes", *((s,) if isinstance(s, int) else tuple(s) for s in shapes)))


def typename(obj: Any) -> str:
    """The name of what kind of object this is: "tracejit.FloatTensor" for a tensor, else its module and class."""
    if isinstance(obj, Tensor):
        return str(METHODS["type"](obj))
    name = getattr(obj, "__qualname__", None)
    module = getattr(obj, "__module__", None)
    if name is None or module is None:
        name, module = type(obj).__qualname__, type(obj).__module__
    return name if module in (None, "builtins") else f"{module}.{name}"


def _constant(value: Any, doc: str) -> property:
    return property(lambda self: value, doc=doc)


def ndimension(self: Tensor) -> int:
    """The number of dimensions."""
    return self._array.ndim


def storage_offset(self: Tensor) -> int:
    """The distance of the first element from the start of the memory that the tensor is a view of, in elements."""
    state.top.note("address taken", self)
    root = self._array if self._base is None else self._base._array
    return int(self._array.ctypes.data - root.ctypes.data) // self._array.itemsize


def get_device(self: Tensor) -> int:
    """-1, as of every tensor on the CPU."""
    return -1


def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """The tensor itself: pinned memory is for transfers to other devices, and there are none."""
    return self


def is_pinned(self: Tensor, device: Any = None) -> bool:
    """False: see pin_memory()."""
    return False


def share_memory_(self: Tensor) -> Tensor:
    """The tensor itself.  Its memory is private: a process that is forked later has a copy of its own."""
    return self


def new_tensor(self: Tensor, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of a copy of `data`, by default of the dtype of this one."""
    chosen = self.dtype if dtype is None else as_dtype(dtype, "new_tensor")
    return tensor(data, dtype=chosen, device=device, requires_grad=requires_grad)


def new(self: Tensor, *data: Any, device: Any = None) -> Tensor:
    """The older form of new_empty(sizes) and new_tensor(data)."""
    require_cpu("new", device)
    return tensor(contents("new", data, self.dtype), dtype=self.dtype)


def as_subclass(self: Tensor, cls: type[Tensor]) -> Tensor:
    """The same memory, and the same position on the tape, as an instance of a subclass of Tensor."""
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise TypeError(f"as_subclass(): expected a subclass of Tensor, got {cls!r}")
    out: Tensor = METHODS["view"](self, self.shape)
    out.__class__ = cls  # type: ignore[assignment]
    return out


def resize_(self: Tensor, *sizes: Any, memory_format: Any = None) -> Tensor:
    """Give this tensor another shape in place: the same memory as far as it goes, zeros behind it.

    Raises RuntimeError for one that requires grad or is a view."""
    if self.requires_grad or self._base is not None:
        raise RuntimeError("resize_(): cannot resize tensors that require grad or are views; use reshape() or new_empty()")
    state.top.note("resize_", self)
    shape = np.zeros(sizes[0] if len(sizes) == 1 and isinstance(sizes[0], tuple | list) else sizes, np.bool_).shape
    flat, size = self._array.reshape(-1), int(np.prod(shape))
    array = np.zeros(size, self._array.dtype) if size > flat.size else flat[:size]
    if size > flat.size:
        array[: flat.size] = flat
    self._array = array.reshape(shape)
    rebound()
    return self


def resize_as_(self: Tensor, the_template: Tensor) -> Tensor:
    """Give this tensor the shape of another one, as resize_() does."""
    return resize_(self, tuple(the_template.shape))


def set_(self: Tensor, source: Tensor) -> Tensor:
    """Bind this tensor to the memory of another one."""
    state.top.note("set_", self)
    share(self, source)
    return self


def apply_(self: Tensor, function: Callable[[Any], Any]) -> Tensor:
    """Replace each element by what a Python function makes of it.  Slow; raises RuntimeError for a tensor that requires grad."""
    if self.requires_grad:
        raise RuntimeError("apply_(): cannot be called on a tensor that requires grad; use detach()")
    values = [function(x) for x in METHODS["reshape"](self, -1).tolist()]
    return self.copy_(METHODS["reshape"](tensor(values, dtype=self.dtype), tuple(self.shape)))  # type: ignore[no-any-return]


def view_as_dtype(self: Tensor, dtype: DType) -> Tensor:
    """The same memory read as another dtype of the same size.  Raises RuntimeError for another size, or where a gradient would be lost."""
    if self.requires_grad and state.grad_enabled:
        raise RuntimeError("view(): a tensor that requires grad cannot be viewed as another dtype; use detach()")
    if dtype.itemsize != self._array.itemsize:
        raise RuntimeError(f"view(): {self.dtype.name} and {dtype.name} differ in size; convert with to()")
    state.top.note("viewed as another dtype", self)
    out = wrap(self._array.view(dtype.numpy))
    out._storage = storage_of(self)
    return out


def _renamed(name: str, function: Callable[..., Any]) -> Callable[..., Tensor]:
    """The form in place of a function that gives a view: the tensor becomes that view.

    Raises RuntimeError, as every change in place does, for a leaf that requires grad and for views of one; and under no_grad() for a tensor
    that has a gradient and is no leaf."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        on_tape = self.requires_grad and self._node is not None
        if state.grad_enabled:
            refuse_leaf(self)
        elif on_tape:
            raise RuntimeError(f"{name}(): a tensor with a gradient keeps its shape under no_grad(); use {name[:-1]}()")
        view = function(self, *args, **kwargs)
        state.top.note(name, self, view)
        if on_tape and self._base is None:
            _begin_root(self)
        if self._base is not None:
            become(self, view)
        else:
            self._array = view._array
            rebound()
        return self

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"{name[:-1]}() in place: the tensor has another shape afterwards, and the same memory."
    return method


def _begin_root(x: Tensor) -> None:
    """Another tensor takes over what `x` was, so that it may become a view: it is the root of the views of `x` that there are, once these
    are looked at again (`refresh`)."""
    root = wrap(x._array)
    root._node, root._index, root._requires_grad, root._storage = x._node, x._index, x._requires_grad, storage_of(x)
    x._base = root
    mark_written((root._storage,))
    rebound()


def _removed(name: str, instead: str) -> Callable[..., Any]:
    """A method that PyTorch has taken away, and still names."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"This function was deprecated since version 1.9 and is now removed: {name}(); use {instead}")

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"Raises RuntimeError: it was removed; use {instead}."
    return method


_RENAMED = ("unsqueeze_", "squeeze_", "transpose_", "t_", "swapaxes_", "swapdims_")

shell: dict[str, Any] = {
    f.__name__: f
    for f in (
        ndimension, storage_offset, get_device, pin_memory, is_pinned, share_memory_, new_tensor, new, as_subclass, resize_,
        resize_as_, set_, apply_, view_as_dtype,
    )
}  # fmt: skip
"""Methods and properties by name, for methods.py."""
shell |= {
    name: _constant(name == "is_cpu", "Whether it is of this kind: all tensors are dense ones on the CPU.")
    for name in (
        "is_cpu", "is_cuda", "is_xpu", "is_mps", "is_meta", "is_sparse", "is_sparse_csr", "is_quantized", "is_mkldnn", "is_nested",
    )
}  # fmt: skip
shell |= {
    "layout": _constant(strided, "How its elements lie in memory."),
    "H": property(lambda self: METHODS["adjoint"](self) if self.ndim else self, doc="The transpose of a matrix."),
    "mH": property(lambda self: METHODS["adjoint"](self), doc="The last two dimensions swapped."),
    "real": property(lambda self: self, doc="The tensor itself: there are no complex tensors."),
    **{name: _renamed(name, METHODS[name[:-1]]) for name in _RENAMED},
}
shell |= {
    name: _removed(name, instead)
    for name, instead in {
        "eig": "linalg.eigh() of symmetric matrices", "lstsq": "linalg.lstsq()", "solve": "linalg.solve()", "symeig": "linalg.eigh()",
    }.items()
}  # fmt: skip
