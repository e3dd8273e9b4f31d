"""tracejit.backends: the switches of libraries that PyTorch computes with.  They can be set, and change nothing.

Must not know: what computes here.
Start reading: cudnn.py; the other modules are alike.
"""

from tracejit.backends import cuda, cudnn, mkl, mkldnn, mps, openmp

__all__ = ["cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp"]
