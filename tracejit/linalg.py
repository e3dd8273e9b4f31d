"""tracejit.linalg: linear algebra under PyTorch's names."""

from tracejit.core.missing import missing_names
from tracejit.functions import det
from tracejit.ops.decompositions import LinAlgError
from tracejit.ops.public.factors import lu, lu_factor, lu_factor_ex, lu_solve
from tracejit.ops.public.linalg import matmul
from tracejit.ops.public.linear_algebra import cholesky_ as cholesky
from tracejit.ops.public.linear_algebra import (
    cross,
    eigh,
    eigvalsh,
    matrix_power,
    multi_dot,
    qr,
    slogdet,
    solve,
    solve_triangular,
    svd,
    svdvals,
    vecdot,
)
from tracejit.ops.public.linear_algebra import diagonal_of as diagonal
from tracejit.ops.public.linear_algebra import inverse as inv
from tracejit.ops.public.matrix_functions import cond, lstsq, matrix_exp, matrix_rank, pinv
from tracejit.ops.public.norms import linalg_norm as norm
from tracejit.ops.public.norms import matrix_norm, vector_norm
from tracejit.ops.public.tensor_equations import cholesky_ex, inv_ex, solve_ex, tensorinv, tensorsolve, vander

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "inv_ex",
    "lstsq", "lu", "lu_factor", "lu_factor_ex", "lu_solve", "matmul", "matrix_exp", "matrix_norm", "matrix_power",
    "matrix_rank", "multi_dot", "norm", "pinv", "qr", "slogdet", "solve", "solve_ex", "solve_triangular", "svd",
    "svdvals", "tensorinv", "tensorsolve", "vander", "vecdot", "vector_norm",
]  # fmt: skip

__getattr__ = missing_names(__name__)
