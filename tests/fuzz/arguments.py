"""What to pass for a parameter: by its name, for all functions alike.

A maker gets the hand that writes and the value of the first argument, and gives the text of a candidate.  Candidates need not fit: the call
is tried, and tried again with others.  A name that is not known here is treated by its annotation, and what is neither is left out where
it may be, else tried with tensors and numbers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tests.fuzz.maker import FLOATS, Maker
from tests.fuzz.operations import Operation
from tracejit import Tensor

__all__ = ["SHAPES", "any_number", "call_text", "literal_number", "matrix", "tensor_like"]

Candidate = Callable[[Maker, Any], str]


# -- numbers
def small(m: Maker, x: Any) -> str:
    return str(m.pick([1, 1, 2, 2, 3, 0]))


def signed(m: Maker, x: Any) -> str:
    return str(m.pick([0, 1, -1, 2, -2]))


def real(m: Maker, x: Any) -> str:
    return repr(m.pick([0.5, 1.0, 2.0, 0.1, 1.5, -0.5, 0.25]))


def positive(m: Maker, x: Any) -> str:
    return repr(m.pick([0.5, 1.0, 2.0, 0.1]))


def fraction(m: Maker, x: Any) -> str:
    return repr(m.pick([0.0, 0.25, 0.5, 0.9, 1.0]))


def tiny(m: Maker, x: Any) -> str:
    return repr(m.pick([1e-5, 1e-3, 0.1]))


def literal_number(m: Maker) -> str:
    """A number that depends on nothing."""
    if m.special and m.chance(0.4):
        return str(m.pick(["math.nan", "math.inf", "-math.inf", "-0.0", "2**40", "1e300", "-(2**31)"]))
    return str(m.pick(["0", "1", "2", "-1", "3", "0.5", "-1.5", "2.0", "0.0", "-0.0", "1e-3", "True", "100", "1.0"]))


def any_number(m: Maker, x: Any) -> str:
    """A number: a literal, or one that the program has."""
    known = [text for text, value in m.reachable() if type(value) in (int, float)]
    return str(m.pick(known)) if known and m.chance(0.5) else literal_number(m)


def truth(m: Maker, x: Any) -> str:
    return repr(m.chance(0.6))


def dtype(m: Maker, x: Any) -> str:
    return f"T.{m.dtype()}"


# -- dimensions and sizes
def rank(x: Any) -> int:
    return x.ndim if isinstance(x, Tensor) else 2


def dim(m: Maker, x: Any) -> str:
    n = rank(x)
    if m.chance(0.03):
        return str(n)
    return str(m.choose.randrange(-n, n)) if n else "0"


def dims(m: Maker, x: Any) -> str:
    n = rank(x)
    if not n or m.chance(0.5):
        return dim(m, x)
    chosen = m.choose.sample(range(n), m.choose.randint(1, n))
    return repr(tuple(d - n if m.chance(0.3) else d for d in chosen))


def order(m: Maker, x: Any) -> str:
    n = rank(x)
    chosen = m.choose.sample(range(n), n if m.chance(0.7) else m.choose.randint(0, n))
    return ", ".join(map(str, chosen)) if n and m.chance(0.7) else repr(tuple(chosen))


def insertion(m: Maker, x: Any) -> str:
    return str(m.choose.randrange(-rank(x) - 1, rank(x) + 1))


def position(m: Maker, x: Any) -> str:
    sizes = [s for s in x.shape if s] if isinstance(x, Tensor) else [2]
    n = m.pick(sizes or [1])
    return str(m.choose.randrange(-n, n))


def size_below(m: Maker, x: Any) -> str:
    sizes = list(x.shape) if isinstance(x, Tensor) and x.ndim else [2]
    return str(m.choose.randint(0, max(m.pick(sizes), 1)))


def target_shape(m: Maker, x: Any) -> str:
    """Sizes for as many elements, sometimes by sizes of tensors."""
    count = x.numel() if isinstance(x, Tensor) else 6
    shapes: list[tuple[int, ...]] = [(count,), (-1,), (1, count), (count, 1), (-1, 1)]
    for q in (2, 3, 4, 5, 7):
        if count and count % q == 0:
            shapes += [(count // q, q), (q, -1), (q, count // q), (1, q, -1)]
    if isinstance(x, Tensor) and x.ndim:
        shapes += [tuple(x.shape[::-1]), (x.shape[0], -1), (*x.shape, 1), (1, *x.shape)]
    found = m.pick(shapes)
    if found and found[0] == (x.shape[0] if isinstance(x, Tensor) and x.ndim else None) and m.chance(0.3):
        name = m.tensor(lambda t: t.ndim > 0 and t.shape[0] == found[0])
        if name:
            return ", ".join([f"{name}.shape[0]", *map(str, found[1:])])
    return repr(found) if m.chance(0.4) else ", ".join(map(str, found))


def broadcast_shape(m: Maker, x: Any) -> str:
    if not isinstance(x, Tensor):
        return repr(m.shape())
    shape = tuple([m.pick(m.sizes) if s == 1 and m.chance(0.6) else -1 if m.chance(0.15) else s for s in x.shape])
    return repr((m.pick([1, 2, 3]), *shape) if m.chance(0.3) else shape)


def new_shape(m: Maker, x: Any) -> str:
    if isinstance(x, Tensor) and m.chance(0.4):
        return "x.shape".replace("x", m.tensor() or "x")
    return repr(m.shape())


def counts(m: Maker, x: Any) -> str:
    return ", ".join(m.pick(["1", "2", "1", "3"]) for _ in range(rank(x) + m.chance(0.2))) or "2"


def pads(m: Maker, x: Any) -> str:
    pairs = m.choose.randint(1, max(rank(x), 1))
    return repr(tuple(m.pick([0, 1, 2, -1]) if m.chance(0.9) else 3 for _ in range(2 * pairs)))


def last_sizes(m: Maker, x: Any) -> str:
    n = m.choose.randint(1, max(rank(x), 1))
    return repr(tuple(x.shape[-n:])) if isinstance(x, Tensor) else "3"


def sections(m: Maker, x: Any) -> str:
    return m.pick(["1", "2", "3", "[1, 2]", "(1, 1)", "[1, 3]"])


def window(m: Maker, x: Any) -> str:
    return m.pick(["1", "2", "2", "3"])


# -- tensors
def partner(m: Maker, x: Any) -> str:
    """A tensor or a number that goes with the first argument."""
    if not isinstance(x, Tensor):
        return m.tensor() or m.parameter_of(m.shape(), m.dtype())
    if m.chance(0.25):
        return any_number(m, x)
    return tensor_like(m, x)


def tensor_like(m: Maker, x: Any) -> str:
    """A tensor of a shape that goes with the first argument's."""
    shape = tuple(x.shape) if isinstance(x, Tensor) else m.shape()

    def fits(t: Any) -> bool:
        return all(a == b or 1 in (a, b) for a, b in zip(reversed(t.shape), reversed(shape), strict=False))

    found = m.tensor(fits) if m.chance(0.75) else None
    return found or m.parameter_of(m.compatible(shape), m.dtype())


def same_kind(m: Maker, x: Any) -> str:
    """A tensor of the first argument's shape and dtype."""
    if not isinstance(x, Tensor):
        return tensor_like(m, x)
    found = m.tensor(lambda t: t.shape == x.shape and t.dtype is x.dtype)
    return found if found and m.chance(0.8) else m.parameter_of(tuple(x.shape), x.dtype.name)


def smaller(m: Maker, x: Any) -> str:
    """A tensor with one dimension less than the first argument."""
    shape = list(x.shape) if isinstance(x, Tensor) else [2]
    if shape:
        shape.pop(m.choose.randrange(len(shape)))
    return m.parameter_of(tuple(shape), x.dtype.name if isinstance(x, Tensor) else "float32")


def positive_definite(m: Maker) -> str:
    x = m.tensor(lambda t: t.ndim > 1 and t.dtype.is_floating_point) or m.parameter_of(m.shape(2), "float64")
    return f"({x} @ {x}.mT + 2 * T.eye({m.value(x).shape[-2]}))"


def pivots(m: Maker, x: Any) -> str:
    """Rows that were exchanged with those of the first argument, a matrix: counted from 1."""
    shape = tuple(x.shape[:-1]) if isinstance(x, Tensor) else (2,)
    return f"({m.parameter_of(shape, 'int32', shape[-1] if shape else 1)} + 1)"


def matrix(m: Maker, x: Any) -> str:
    """A tensor whose second last size is the first argument's last one, of its dtype."""
    if not isinstance(x, Tensor) or not x.ndim:
        return tensor_like(m, x)
    k = x.shape[-1]
    found = m.tensor(lambda t: t.ndim == x.ndim and t.ndim > 1 and t.shape[-2] == k and t.dtype is x.dtype)
    if found and m.chance(0.6):
        return found
    return m.parameter_of((*x.shape[:-2], k, m.pick(m.sizes)), x.dtype.name)


def vector(m: Maker, x: Any) -> str:
    length = x.shape[-1] if isinstance(x, Tensor) and x.ndim else 3
    found = m.tensor(lambda t: t.ndim == 1 and t.shape[0] == length)
    return found or m.parameter_of((length,), x.dtype.name if isinstance(x, Tensor) else "float32")


def mask(m: Maker, x: Any) -> str:
    """A condition on tensors that broadcasts with the first argument."""
    shape = tuple(x.shape) if isinstance(x, Tensor) else m.shape()
    found = m.tensor(lambda t: t.dtype.name == "bool" and t.shape == shape)
    if found and m.chance(0.6):
        return found
    base = m.tensor(lambda t: t.shape == shape) if m.chance(0.6) else None
    if base:
        return f"{base} {m.pick(['>', '<', '>=', '!='])} {m.pick(['0', '0.3', '1', '-0.5'])}"
    return m.parameter_of(m.compatible(shape), "bool")


def index(m: Maker, x: Any) -> str:
    """Positions: as many dimensions as the first argument, or one."""
    smallest = min([s for s in x.shape if s], default=1) if isinstance(x, Tensor) else 2
    shape = tuple(x.shape) if isinstance(x, Tensor) and m.chance(0.6) else (m.pick([1, 2, 3]),)
    found = m.tensor(lambda t: t.dtype.name == "int64" and t.ndim == len(shape))
    return found if found and m.chance(0.3) else m.parameter_of(shape, "int64", smallest)


def several(m: Maker, x: Any) -> str:
    """A list or tuple of tensors."""
    first = m.tensor() or m.parameter_of(m.shape(), m.dtype())
    value = m.value(first)
    items = [first, *(same_kind(m, value) if m.chance(0.6) else tensor_like(m, value) for _ in range(m.choose.randint(0, 2)))]
    m.choose.shuffle(items)
    return f"[{', '.join(items)}]" if m.chance(0.5) else f"({', '.join(items)},)"


def several_apart(m: Maker, x: Any) -> str:
    return several(m, x)[1:-1].rstrip(",")


def text_of(*options: str) -> Candidate:
    def candidate(m: Maker, x: Any) -> str:
        return repr(m.pick(options))

    return candidate


def shape_list(m: Maker, x: Any) -> str:
    return f"[{index(m, x)}]"


def equation(m: Maker, x: Any) -> str:
    """An einsum of one or two tensors, with its operands."""
    first = m.tensor(lambda t: 0 < t.ndim < 4) or m.parameter_of(m.shape(2), "float32")
    value = m.value(first)
    letters = "ijkl"[: value.ndim]
    if m.chance(0.4):
        out = "".join(m.choose.sample(letters, m.choose.randint(0, len(letters))))
        return f"{letters + '->' + out!r}, {first}"
    second = m.tensor(lambda t: t.ndim == 2 and t.shape[0] == value.shape[-1] and t.dtype is value.dtype)
    second = second or m.parameter_of((value.shape[-1], m.pick(m.sizes)), value.dtype.name)
    out = m.pick([letters[:-1] + "z", "z" + letters[:-1], letters[:-1], letters + "z"])
    return f"{letters},{letters[-1]}z->{out}".join("''") + f", {first}, {second}"


NAMES: dict[str, Candidate] = {
    **dict.fromkeys(("dim", "dim0", "dim1", "dim2", "start_dim", "end_dim", "dimension", "source", "destination"), dim),
    **dict.fromkeys(("dims", "along"), order),
    **dict.fromkeys(
        ("keepdim", "descending", "stable", "largest", "sorted", "right", "accumulate", "equal_nan", "as_tuple"), truth
    ),
    **dict.fromkeys(("unbiased", "return_indices", "full", "ceil_mode", "count_include_pad", "log_target", "log_input"), truth),
    **dict.fromkeys(
        ("training", "use_input_stats", "is_causal", "swap", "upper", "left", "unitriangular", "full_matrices"), truth
    ),
    **dict.fromkeys(("index",), index),
    **dict.fromkeys(("mask", "condition"), mask),
    **dict.fromkeys(("shape",), target_shape),
    **dict.fromkeys(("size", "fill_size"), new_shape),
    **dict.fromkeys(("sizes",), broadcast_shape),
    **dict.fromkeys(("repeats",), counts),
    **dict.fromkeys(("offset", "diagonal", "shifts", "decimals"), signed),
    **dict.fromkeys(
        ("k", "n", "m", "chunks", "length", "step", "steps", "groups", "num_groups", "correction", "num_classes"), small
    ),
    **dict.fromkeys(
        ("kernel_size", "stride", "dilation", "padding", "output_size", "upscale_factor", "downscale_factor"), window
    ),
    **dict.fromkeys(("scale_factor",), window),
    **dict.fromkeys(("start", "end"), size_below),
    **dict.fromkeys(("alpha", "beta", "value", "fill_value", "nan", "posinf", "neginf"), any_number),
    **dict.fromkeys(("min", "max"), partner),
    **dict.fromkeys(("eps", "rtol", "atol"), tiny),
    **dict.fromkeys(("p", "dropout_p", "label_smoothing", "momentum"), fraction),
    **dict.fromkeys(("ord", "norm_type", "delta", "margin", "scale", "threshold", "lambd"), positive),
    **dict.fromkeys(("mat1", "mat2", "batch1", "batch2", "mat"), matrix),
    **dict.fromkeys(("vec", "vec2", "boundaries", "sorted_sequence"), vector),
    **dict.fromkeys(("src", "values", "tensor", "target", "positive", "negative", "key", "x2", "input2"), same_kind),
    **dict.fromkeys(("split_size_or_sections", "indices_or_sections"), sections),
    **dict.fromkeys(("normalized_shape",), last_sizes),
    **dict.fromkeys(("pad",), pads),
    "tensors": several,
    "indices": shape_list,
    "equation": equation,
    "dtype": dtype,
    "reduction": text_of("mean", "sum", "none"),
    "approximate": text_of("tanh", "none"),
    "mode": text_of("constant", "reflect", "replicate", "circular", "nearest", "bilinear", "linear"),
    "rounding_mode": text_of("floor", "trunc"),
    "indexing": text_of("ij", "xy"),
    "UPLO": text_of("L", "U"),
    "side": text_of("left", "right"),
    "reduce": text_of("add", "multiply"),
}
# Where one function means something else by a name.
OWN_NAMES: dict[tuple[str, str], Candidate] = {
    ("unsqueeze", "dim"): insertion,
    ("stack", "dim"): insertion,
    ("select", "index"): position,
    ("select_scatter", "index"): position,
    ("unfold", "size"): window,
    ("expand", "size"): broadcast_shape,
    ("broadcast_to", "size"): broadcast_shape,
    ("tile", "dims"): counts,
    ("tensordot", "dims"): small,
    ("repeat_interleave", "repeats"): small,
    ("index_add", "source"): same_kind,
    ("index_copy", "source"): same_kind,
    ("index_reduce", "source"): same_kind,
    ("put", "source"): same_kind,
    ("scatter_reduce", "src"): same_kind,
    ("scatter_reduce", "reduce"): text_of("sum", "prod", "mean", "amax", "amin"),
    ("index_reduce", "reduce"): text_of("prod", "mean", "amax", "amin"),
    ("masked_scatter", "source"): same_kind,
    ("size", "dim"): dim,
    ("matmul", "other"): matrix,
    ("linspace", "end"): any_number,
    ("arange", "bounds"): small,
    ("randint", "bounds"): lambda m, x: f"{m.pick([2, 5, 9])}, {m.shape()}",
    ("item", ""): real,
    ("lerp", "weight"): partner,
    ("norm", "p"): positive,
    ("norm", "dim"): dims,
    ("normal", "mean"): real,
    ("normal", "std"): positive,
    ("normal", "size"): new_shape,
    ("copy_", "source"): tensor_like,
    ("scatter", "value"): any_number,
    ("one_hot", "num_classes"): lambda m, x: str(m.pick([4, 6, -1])),
    ("multi_dot", "tensors"): lambda m, x: _chain(m),
    ("movedim", "source"): dim,
    ("select_scatter", "src"): smaller,
    ("diagonal_scatter", "src"): smaller,
    ("local_response_norm", "size"): window,
    ("cholesky", "input"): lambda m, x: positive_definite(m),
    ("where", "condition"): mask,
    ("mvlgamma", "p"): lambda m, x: "1",
    **dict.fromkeys((("lu_solve", "pivots"), ("lu_solve", "LU_pivots"), ("lu_unpack", "LU_pivots")), pivots),
    ("unravel_index", "indices"): index,
    ("unravel_index", "shape"): lambda m, x: repr(m.shape(2)),
    ("embedding_bag", "mode"): text_of("sum", "mean", "max"),
}


def _chain(m: Maker) -> str:
    first = m.tensor(lambda t: t.ndim == 2 and t.dtype.is_floating_point) or m.parameter_of(m.shape(2), "float32")
    return f"[{first}, {matrix(m, m.value(first))}]"


# Functions whose tensors' shapes depend on each other: a letter is a size, k a small one.  Integers are classes or positions below N.
# "=I" is a size itself, "=(NI)" a tuple of them, and "'1" the argument.
SHAPES: dict[str, dict[str, str]] = {
    "conv1d": {"input": "NCW", "weight": "OCk", "bias": "O"},
    "conv2d": {"input": "NCHW", "weight": "OCkk", "bias": "O"},
    "conv3d": {"input": "NChhw", "weight": "OCkkk", "bias": "O"},
    "conv_transpose1d": {"input": "NCW", "weight": "COk", "bias": "O"},
    "conv_transpose2d": {"input": "NChw", "weight": "COkk", "bias": "O"},
    "conv_transpose3d": {"input": "NChhw", "weight": "COkkk", "bias": "O"},
    "linear": {"input": "NI", "weight": "OI", "bias": "O"},
    "bilinear": {"input1": "NI", "input2": "NJ", "weight": "OIJ", "bias": "O"},
    "embedding": {"input": "NI int", "weight": "VI"},
    "layer_norm": {"input": "NCI", "normalized_shape": "=(I)", "weight": "I", "bias": "I"},
    "rms_norm": {"input": "NCI", "normalized_shape": "=(I)", "weight": "I"},
    "batch_norm": {"input": "NCW", "running_mean": "C", "running_var": "C", "weight": "C", "bias": "C"},
    "instance_norm": {"input": "NCW", "running_mean": "C", "running_var": "C", "weight": "C", "bias": "C"},
    "group_norm": {"input": "NGW", "weight": "G", "bias": "G"},
    "prelu": {"input": "NC", "weight": "C"},
    "cross_entropy": {"input": "NV", "target": "N int", "weight": "V"},
    "nll_loss": {"input": "NV", "target": "N int", "weight": "V"},
    "multi_margin_loss": {"input": "NV", "target": "N int", "weight": "V"},
    "gaussian_nll_loss": {"input": "NI", "target": "NI", "var": "NI"},
    "cosine_embedding_loss": {"input1": "NI", "input2": "NI", "target": "N"},
    "margin_ranking_loss": {"input1": "NI", "input2": "NI", "target": "NI"},
    "triplet_margin_loss": {"anchor": "NI", "positive": "NI", "negative": "NI"},
    "scaled_dot_product_attention": {"query": "NIJ", "key": "NWJ", "value": "NWJ", "attn_mask": "IW"},
    "local_response_norm": {"input": "NCW"},
    "pixel_shuffle": {"input": "NGhw"},
    "pixel_unshuffle": {"input": "NCGG"},
    "interpolate": {"input": "NChw"},
    "one_hot": {"tensor": "NI int"},
    "addmm": {"input": "NO", "mat1": "NI", "mat2": "IO"},
    "addmv": {"input": "N", "mat": "NI", "vec": "I"},
    "addr": {"input": "NI", "vec1": "N", "vec2": "I"},
    "addbmm": {"input": "NO", "batch1": "CNI", "batch2": "CIO"},
    "baddbmm": {"input": "CNO", "batch1": "CNI", "batch2": "CIO"},
    "bmm": {"input": "CNI", "mat2": "CIO"},
    "mm": {"input": "NI", "mat2": "IO"},
    "mv": {"input": "NI", "vec": "I"},
    "cdist": {"x1": "NI", "x2": "OI"},
    "cross": {"input": "N3", "other": "N3"},
    "solve": {"a": "NII", "b": "NIJ"},
    "solve_triangular": {"a": "II", "b": "IJ"},
    **{name: {"a": "NII"} for name in ("det", "inv", "eigh", "eigvalsh", "cholesky", "slogdet", "matrix_power")},
    **{f"{kind}_pool{n}d": {"input": "NC" + "HWw"[:n]} for n in (1, 2, 3) for kind in ("avg", "max", "lp", "adaptive_avg", "adaptive_max")},
    **{name: {"input": "II"} for name in ("inverse", "logdet", "trace", "matrix_power")},
    "gather": {"input": "IJ", "index": "IJ int"},
    "scatter": {"input": "IJ", "index": "IJ int", "src": "IJ"},
    "scatter_add": {"input": "IJ", "index": "IJ int", "src": "IJ"},
    "take_along_dim": {"input": "IJ", "indices": "IJ int"},
    "index_add": {"input": "IJ", "index": "I int", "source": "IJ"},
    "index_copy": {"input": "IJ", "index": "I int", "source": "IJ"},
    "index_reduce": {"input": "IJ", "index": "I int", "source": "IJ"},
    "scatter_reduce": {"input": "IJ", "index": "IJ int", "src": "IJ"},
    "put": {"input": "IJ", "index": "k int", "source": "k"},
    "index_select": {"input": "IJ", "index": "k int"},
    "multi_head_attention_forward": {
        "query": "NCI", "key": "WCI", "value": "WCI", "embed_dim_to_check": "=I", "num_heads": "'1", "in_proj_weight": "TI",
        "in_proj_bias": "T", "bias_k": "'None", "bias_v": "'None", "add_zero_attn": "'False", "dropout_p": "'0.0", "out_proj_weight": "II",
        "out_proj_bias": "I", "training": "'False",
    },
    **{f"max_unpool{n}d": {"input": "NC" + "HWw"[:n], "indices": "NC" + "HWw"[:n] + " int", "kernel_size": "'2"} for n in (1, 2, 3)},
    "embedding_bag": {"input": "NI int", "weight": "VI"},
    "affine_grid": {"theta": "N23", "size": "=(NCHW)"},
    "searchsorted": {"sorted_sequence": "I", "input": "NJ"},
    "lu_solve": {"input": "NIJ", "LU_data": "NII", "LU": "NII", "B": "NIJ"},
    "lu_unpack": {"LU_data": "NII"},
}  # fmt: skip


def _sizes(m: Maker) -> dict[str, int]:
    letters = {letter: m.pick([2, 3, 4, 5]) for letter in "NCIJOVHW"}
    return {**letters, "h": 3, "w": 4, "k": m.pick([1, 2, 3]), "G": m.pick([4, 8]), "2": 2, "3": 3, "T": 3 * letters["I"]}


def _shaped(m: Maker, word: str, sizes: dict[str, int], kind: str) -> str:
    if word[0] == "'":
        return word[1:]
    if word[0] == "=":
        return repr(tuple([sizes[c] for c in word[2:-1]]) if word[1] == "(" else sizes[word[1]])
    letters, *is_integer = word.split()
    shape = tuple(sizes[c] for c in letters)
    name = "int64" if is_integer else kind
    found = m.tensor(lambda t: tuple(t.shape) == shape and t.dtype.name == name)
    return found if found and not is_integer and m.chance(0.5) else m.parameter_of(shape, name, 2 if is_integer else None)


def _argument(m: Maker, operation: Operation, parameter: inspect.Parameter, x: Any) -> str | None:
    """A candidate, or None if nothing is known about a parameter that may be left out."""
    own = OWN_NAMES.get((operation.name.rstrip("_"), parameter.name)) or OWN_NAMES.get((operation.name, parameter.name))
    if own:
        return own(m, x)
    annotation = str(parameter.annotation)
    if parameter.name == "dim" and ("Dim" in annotation or "Sequence" in annotation):
        return dims(m, x)
    if parameter.name in NAMES:
        return NAMES[parameter.name](m, x)
    if parameter.name == "generator" or "device" in parameter.name:
        return None
    if annotation.startswith("bool"):
        return truth(m, x)
    if annotation.startswith("int"):
        return small(m, x)
    if annotation.startswith("float"):
        return real(m, x)
    if parameter.default is not inspect.Parameter.empty:
        return None
    return partner(m, x)


def call_text(m: Maker, operation: Operation) -> str | None:
    """The text of a call; None if there is nothing to call it on."""
    table = SHAPES.get(operation.name.removesuffix("_"))
    sizes, kind = _sizes(m), m.pick(FLOATS)
    positional: list[str] = []
    keywords: list[str] = []
    first: str | None = None
    x: Any = None
    skipped = False
    for number, parameter in enumerate(operation.parameters):
        optional = parameter.default is not inspect.Parameter.empty
        if parameter.kind is inspect.Parameter.VAR_KEYWORD or (
            operation.prefix == "T.linalg." and parameter.name == "attributes"
        ):
            continue
        if optional and parameter.name in ("device", "memory_format", "compute_mode", "named", "requires_grad"):
            continue
        shaped = table and parameter.name in table
        if optional and not m.chance(0.5 if shaped else 0.3):
            skipped = True
            continue
        text: str | None
        if shaped and table:
            text = _shaped(m, table[parameter.name], sizes, kind)
        elif (
            number == 0
            and (operation.style != "function" or _takes_tensor(parameter))
            and (operation.name, parameter.name) not in OWN_NAMES
        ):
            text = m.tensor() or m.parameter_of(m.shape(), m.dtype())
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL and parameter.name in ("tensors", "operands"):
            text = "" if operation.name == "einsum" else several_apart(m, x)
        else:
            text = _argument(m, operation, parameter, x)
        if text is None:
            skipped = True
            continue
        if number == 0:
            first = text
            try:
                x = m.value(text)
            except Exception:
                return None
            if operation.style != "function":
                continue
        if not text:
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY or (
            skipped and parameter.kind is not inspect.Parameter.VAR_POSITIONAL
        ):
            keywords.append(f"{parameter.name}={text}")
        elif optional and m.chance(0.4) and parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
            keywords.append(f"{parameter.name}={text}")
            skipped = True
        else:
            positional.append(text)
    arguments = ", ".join([*positional, *keywords])
    if operation.style == "function":
        return f"{operation.prefix}{operation.name}({arguments})"
    return None if first is None else f"{first}.{operation.name}({arguments})"


def _takes_tensor(parameter: inspect.Parameter) -> bool:
    return parameter.name in (
        "input",
        "self",
        "x",
        "x1",
        "a",
        "query",
        "input1",
        "anchor",
        "tensor",
        "condition",
        "sorted_sequence",
    )
