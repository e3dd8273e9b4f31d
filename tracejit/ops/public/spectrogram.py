"""Fourier transforms of windows of a signal."""

from __future__ import annotations

from typing import Any

from tracejit.core.library_warnings import warn
from tracejit.ops.movement.copies import pad
from tracejit.ops.movement.views import permute
from tracejit.ops.public import fourier
from tracejit.ops.public.arrangement import unfold
from tracejit.ops.public.derive import FUNCTIONS, public
from tracejit.ops.public.movement import flip

__all__ = ["stft"]


@public()
def stft(
    input: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
) -> Any:
    """Short-time Fourier transform: the transforms of windows of n_fft positions of a signal (time) or signals (batch, time), hop_length
    (n_fft // 4) apart, each times `window` of win_length (n_fft) weights in its middle.

    center: the first window is centred on the first sample, the signal being continued by "reflect" or by zeros ("constant").  The result
    is (*, frequencies, windows): n_fft // 2 + 1 frequencies, or n_fft unless onesided.  return_complex=True: a pair (real, imag), as the
    functions of fft give; False: a tensor (*, 2) of both, with PyTorch's warning.  normalized: divided by sqrt(n_fft).

    Raises RuntimeError for sizes that do not fit, and without return_complex."""
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    if return_complex is None:
        raise RuntimeError("stft requires the return_complex parameter be given for real inputs")
    if input.ndim not in (1, 2):
        raise RuntimeError(f"stft(): expected a 1D or 2D tensor, got {input.ndim}D")
    if hop <= 0 or not 0 < width <= n_fft:
        raise RuntimeError(f"stft(): expected hop_length > 0 and 0 < win_length <= n_fft, got {hop}, {width} and {n_fft}")
    if window is not None and window._sizes != (width,):
        raise RuntimeError(f"stft(): expected a 1D window tensor of size equal to win_length={width}, got {list(window.shape)}")
    signal = _continued(input, n_fft // 2, pad_mode) if center else input
    time = signal.ndim - 1
    if not 0 < n_fft <= signal.shape[time]:
        raise RuntimeError(f"stft(): expected 0 < n_fft <= {signal.shape[time]}, but got n_fft={n_fft}")
    weights = FUNCTIONS["ones"](width, dtype=input.dtype) if window is None else window
    left = (n_fft - width) // 2
    weights = pad(weights, 0, low=(left,), high=(n_fft - width - left,))
    windows = unfold(signal, time, n_fft, hop) * weights
    transform = fourier.rfft if onesided in (None, True) else fourier.fft
    real, imag = transform(windows, norm="ortho" if normalized else None)
    order = (*range(time), time + 1, time)
    parts = fourier.Parts(permute(real, dims=order), permute(imag, dims=order))
    if return_complex:
        return parts
    warn(
        "stft with return_complex=False is deprecated. In a future pytorch release, stft will return complex tensors for all inputs"
    )
    return FUNCTIONS["stack"](tuple(parts), -1)


def _continued(x: Any, count: int, mode: str) -> Any:
    """A signal with `count` positions more at both ends.  Raises RuntimeError where there is nothing to reflect, or for another mode."""
    length, time = x.shape[-1], x.ndim - 1
    if mode == "constant":
        return pad(x, 0, low=(0,) * time + (count,), high=(0,) * time + (count,))
    if mode != "reflect":
        raise RuntimeError(f"stft(): expected pad_mode 'reflect' or 'constant', got {mode!r}")
    if count >= length:
        raise RuntimeError(
            f"stft(): a signal of {length} positions cannot be reflected at {count}; use a smaller n_fft or center=False"
        )
    begin, end = x[..., 1 : count + 1], x[..., length - 1 - count : length - 1]
    return FUNCTIONS["cat"]([flip(begin, (time,)), x, flip(end, (time,))], time)
