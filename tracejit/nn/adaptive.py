"""AdaptiveLogSoftmaxWithLoss: a softmax over many classes of which few are frequent (Grave et al., 2017,
https://arxiv.org/abs/1609.04309)."""

from __future__ import annotations

import itertools
from collections import namedtuple
from collections.abc import Sequence
from typing import Any

from tracejit import functional as F
from tracejit.functions import cat, ones_like, where, zeros_like
from tracejit.nn.containers import ModuleList, Sequential
from tracejit.nn.layers import Linear
from tracejit.nn.module import Module
from tracejit.ops.public.keywords import require_tensors

__all__ = ["AdaptiveLogSoftmaxWithLoss"]

_ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-probabilities of targets, and their negative mean: `head` decides between the frequent classes, below cutoffs[0], and the
    clusters of the others, whose modules in `tail` are narrower by div_value each."""

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if (
            cutoffs != sorted(cutoffs)
            or min(cutoffs) <= 0
            or max(cutoffs) > n_classes - 1
            or len(set(cutoffs)) != len(cutoffs)
            or any(int(c) != c for c in cutoffs)
        ):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each value is between "
                "1 and n_classes-1"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, device=device, dtype=dtype)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(itertools.pairwise(self.cutoffs)):
            width = int(in_features // (div_value ** (i + 1)))
            self.tail.append(
                Sequential(
                    Linear(in_features, width, bias=False, device=device, dtype=dtype),
                    Linear(width, high - low, bias=False, device=device, dtype=dtype),
                )
            )

    def reset_parameters(self) -> None:
        """New initial values."""
        self.head.reset_parameters()
        cluster: Any
        for cluster in self.tail:
            for layer in (cluster[0], cluster[1]):
                layer.reset_parameters()

    def forward(self, input_: Any, target_: Any) -> Any:
        """(log-probability of each target, their negative mean)."""
        require_tensors("AdaptiveLogSoftmaxWithLoss", input_=input_, target_=target_)
        if target_.dim() not in (0, 1):
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        if target_.dim() == 1 and input_.dim() == 2 and input_.size(0) != target_.size(0):
            raise RuntimeError("Input and target should have the same size in the batch dimension.")
        if input_.dim() != target_.dim() + 1:
            raise RuntimeError(
                f"{target_.dim()}D target tensor expects {target_.dim() + 1}D input tensors, but found inputs with size {input_.size()}"
            )
        batched = target_.dim() > 0
        x, target = (input_, target_) if batched else (input_.unsqueeze(0), target_.unsqueeze(0))
        if bool(((target < 0) | (target >= self.n_classes)).any()):
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range [{target.min().item()}, "
                f"{target.max().item()}] were found. "
            )
        positions = target
        output = zeros_like(x[:, 0])
        for i, (low, high) in enumerate(itertools.pairwise(self.cutoffs)):
            inside = (target >= low) & (target < high)
            rows = inside.nonzero()[:, 0]
            if not rows.numel():
                continue
            positions = where(inside, ones_like(target) * (self.shortlist_size + i), positions)
            logp = F.log_softmax(self.tail[i](x.index_select(0, rows)), dim=1)
            output = output.index_copy(0, rows, logp.gather(1, (target[rows] - low).unsqueeze(1)).squeeze(1))
        output = output + F.log_softmax(self.head(x), dim=1).gather(1, positions.unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return _ASMoutput(output if batched else output.squeeze(0), loss)

    def log_prob(self, input: Any) -> Any:
        """Log-probabilities of all classes."""
        head = F.log_softmax(self.head(input), dim=1)
        parts = [head[:, : self.shortlist_size]]
        for i in range(self.n_clusters):
            parts.append(F.log_softmax(self.tail[i](input), dim=1) + head[:, self.shortlist_size + i].unsqueeze(1))
        return cat(parts, 1)

    def predict(self, input: Any) -> Any:
        """The likeliest class of each row."""
        return self.log_prob(input).argmax(dim=1)
