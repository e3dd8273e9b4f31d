"""tracejit.array_api: the Python array API standard 2024.12 over tensors, what `Tensor.__array_namespace__()` gives.

Names, arguments and promotion are the standard's: arrays without dimensions promote like all others, and dimensions are called
axes.  Complex numbers and unsigned integers wider than 8 bits do not exist here, nor does the extension `fft`, which needs the
former.  Operators of tensors, and attributes like `size`, stay PyTorch's.

Must not know: the compiler; how a function is evaluated (each calls the public function of the library).
Start reading: promotion.py, then elementwise.py.
"""

from math import e, inf, nan, pi

from tracejit.array_api import linalg
from tracejit.array_api.creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    from_dlpack,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from tracejit.array_api.elementwise import (
    abs,
    acos,
    acosh,
    add,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    ceil,
    clip,
    conj,
    copysign,
    cos,
    cosh,
    divide,
    equal,
    exp,
    expm1,
    floor,
    floor_divide,
    greater,
    greater_equal,
    hypot,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    negative,
    nextafter,
    not_equal,
    positive,
    pow,
    real,
    reciprocal,
    remainder,
    round,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    trunc,
)
from tracejit.array_api.linalg import matmul, matrix_transpose, tensordot, vecdot
from tracejit.array_api.manipulation import (
    broadcast_arrays,
    broadcast_to,
    concat,
    expand_dims,
    flip,
    moveaxis,
    permute_dims,
    repeat,
    reshape,
    roll,
    squeeze,
    stack,
    tile,
    unstack,
)
from tracejit.array_api.reductions import (
    all,
    any,
    argmax,
    argmin,
    count_nonzero,
    cumulative_prod,
    cumulative_sum,
    diff,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)
from tracejit.array_api.searching import (
    argsort,
    nonzero,
    searchsorted,
    sort,
    take,
    take_along_axis,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
    where,
)
from tracejit.array_api.types import (
    __array_namespace_info__,
    astype,
    can_cast,
    finfo,
    iinfo,
    install,
    isdtype,
    result_type,
)
from tracejit.core.dtypes import bool_ as bool
from tracejit.core.dtypes import float32, float64, int8, int16, int32, int64, uint8

newaxis = None
__array_api_version__ = "2024.12"
__all__ = sorted(
    name
    for name in globals()
    if not name.startswith("_")
    and name not in ("creation", "elementwise", "install", "manipulation", "reductions", "searching", "types")
)
__all__ += ["__array_api_version__", "__array_namespace_info__"]

install(__name__)
