"""tracejit.backends: the switches of libraries that PyTorch computes with.  They can be set, and change nothing."""

from tracejit.backends import cuda, cudnn, mkl, mkldnn, mps, openmp

__all__ = ["cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp"]
