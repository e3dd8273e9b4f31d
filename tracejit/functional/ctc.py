"""Connectionist temporal classification: Graves et al. (2006), "Labelling unsegmented sequence data with recurrent neural networks".

The forward algorithm over the extended label (a blank before, between and after the labels), in logarithms, as a loop over time; the
gradient is that of the composition.
"""

from __future__ import annotations

from typing import Any

from tracejit.core.dtypes import int64
from tracejit.core.precision import in_float32
from tracejit.functional.support import reduced
from tracejit.ops import indexing
from tracejit.ops import reduce as primitives
from tracejit.ops.composites.over_time import looped
from tracejit.ops.creation import arange, full
from tracejit.ops.elementwise.arithmetic import cast
from tracejit.ops.elementwise.comparison import maximum, where
from tracejit.ops.elementwise.mathematics import exp, log
from tracejit.ops.movement.copies import cat, pad
from tracejit.ops.movement.views import detach, reshape, select, slice_
from tracejit.ops.public.keywords import of_tensors
from tracejit.ops.public.movement import stack
from tracejit.ops.scan import cumsum

__all__ = ["ctc_loss"]

_NEVER = float("-inf")


def _as_lengths(lengths: Any) -> Any:
    """Lengths, given as numbers or as a tensor, as an int64 vector."""
    if hasattr(lengths, "dtype"):
        return cast(lengths.reshape(-1), dtype=int64)
    numbers = list(lengths) if isinstance(lengths, tuple | list) else [lengths]
    return stack([full(n, shape=(), dtype=int64) for n in numbers]) if numbers else full(0, shape=(0,), dtype=int64)


def _padded_targets(targets: Any, target_lengths: Any, batch: int) -> Any:
    """Targets (N, S); those of all sequences one after the other become that."""
    targets = cast(targets, dtype=int64)
    if targets.ndim == 2:
        return targets
    longest = int(primitives.amax(target_lengths, dims=(0,), keepdim=False).item()) if batch else 0
    begins = reshape(cumsum(target_lengths, dim=0) - target_lengths, shape=(batch, 1))
    last = max(targets.shape[0] - 1, 0)
    positions = begins + arange(0, 1, length=longest, dtype=int64)
    if not targets.shape[0]:
        return full(0, shape=(batch, longest), dtype=int64)
    return indexing.index_select(targets, where(positions > last, last, positions), dim=0)


def _log_of_sum(terms: list[Any]) -> Any:
    """log(sum(exp(terms))), -inf where all of them are, with a gradient there too."""
    high = terms[0]
    for term in terms[1:]:
        high = maximum(high, term)
    high = detach(high)
    base = where(high == _NEVER, 0.0, high)
    total = exp(terms[0] - base)
    for term in terms[1:]:
        total = total + exp(term - base)
    nothing = total == 0
    return where(nothing, _NEVER, log(where(nothing, 1.0, total)) + base)


def _followed(carried: list[Any], slices: list[Any], shared: list[Any]) -> tuple[list[Any], list[Any]]:
    """The logarithms of one step later, of sequences that are not over."""
    (alpha,), (scores, goes_on), (skips,) = carried, slices, shared
    jump = where(skips, _shifted(alpha, min(2, alpha.shape[1])), _NEVER)
    following = _log_of_sum([alpha, _shifted(alpha, 1), jump]) + scores
    return [where(goes_on, following, alpha)], []


def _shifted(alpha: Any, by: int) -> Any:
    """alpha moved to the right by that many labels, -inf coming in."""
    moved = slice_(alpha, dim=1, start=0, stop=alpha.shape[1] - by, step=1)
    return pad(moved, _NEVER, low=(0, by), high=(0, 0))


@of_tensors
@in_float32
def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:
    """The negative log likelihood of the targets, summed over all their alignments with the inputs.

    log_probs: logarithms of probabilities (T, N, C) or (T, C).  targets: (N, S), or all of them in one vector, or (S,) without N.  Lengths:
    tensors or numbers, one for each sequence.  reduction "mean": each loss is divided by its target length first.  zero_infinity: losses of
    targets that do not fit are zero.  Raises RuntimeError for lengths that do not fit."""
    single = log_probs.ndim == 2
    if single:
        log_probs = log_probs.unsqueeze(1)
        targets = targets.unsqueeze(0) if targets.ndim == 1 else targets
    steps, batch, _ = log_probs.shape
    inputs, wanted = _as_lengths(input_lengths), _as_lengths(target_lengths)
    for name, lengths in (("input_lengths", inputs), ("target_lengths", wanted)):
        if lengths._sizes != (batch,):
            raise RuntimeError(f"ctc_loss(): {name} must be of size batch_size ({batch}), got {list(lengths.shape)}")
    labels = _padded_targets(targets, wanted, batch)
    count = 2 * labels.shape[1] + 1
    blanks = full(blank, shape=(batch, labels.shape[1]), dtype=int64)
    extended = cat(stack([blanks, labels], 2).reshape(batch, count - 1), full(blank, shape=(batch, 1), dtype=int64), dim=1)
    position = arange(0, 1, length=count, dtype=int64)
    earlier = pad(
        slice_(extended, dim=1, start=0, stop=max(count - 2, 0), step=1), blank, low=(0, count - max(count - 2, 0)), high=(0, 0)
    )
    skips = (extended != blank) & (extended != earlier) & (position > 1)
    ends = reshape(wanted * 2, shape=(batch, 1))
    table = indexing.gather(log_probs, extended.unsqueeze(0).expand(steps, batch, count).contiguous(), dim=2)  # (T, N, labels)
    alpha = where((position < 2) & (position <= ends), select(table, 0, dim=0), _NEVER)
    if steps > 1:
        time = reshape(arange(1, 1, length=steps - 1, dtype=int64), shape=(steps - 1, 1, 1))
        scores = slice_(table, dim=0, start=1, stop=steps, step=1)
        (alpha,), _ = looped(_followed, [alpha], [scores, reshape(inputs, shape=(1, batch, 1)) > time], [skips], False)
    final = indexing.gather(alpha, ends, dim=1)
    before = indexing.gather(alpha, where(ends == 0, 0, ends - 1), dim=1)
    loss = -reshape(_log_of_sum([final, where(ends == 0, _NEVER, before)]), shape=(batch,))
    loss = loss + _normaliser(log_probs, inputs)
    if zero_infinity:
        loss = where(loss == float("inf"), 0.0, loss)
    if reduction == "mean":
        loss = loss / cast(where(wanted < 1, 1, wanted), dtype=loss.dtype)
    elif single and reduction == "none":
        loss = reshape(loss, shape=())
    return reduced("ctc_loss", loss, reduction)


def _normaliser(log_probs: Any, inputs: Any) -> Any:
    """Zero, with the gradient exp(log_probs) at all steps that count: PyTorch's gradient is that of log_probs made by log_softmax, which
    after going through log_softmax is the same one."""
    steps, batch, _ = log_probs.shape
    time = reshape(arange(0, 1, length=steps, dtype=int64), shape=(steps, 1))
    mass = primitives.sum_(exp(log_probs), dims=(2,), keepdim=False)
    mass = primitives.sum_(where(time < reshape(inputs, shape=(1, batch)), mass, 0.0), dims=(0,), keepdim=False)
    return mass - detach(mass)
