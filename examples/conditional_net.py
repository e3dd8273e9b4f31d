"""A network whose Python branches on the value of a tensor.

The recorded program contains the question as a check (an exit).  When the answer is another one than while recording, nothing has
been changed yet: the call runs eagerly, the other path is recorded, and from then on both are compiled.

Run it: `python examples/conditional_net.py`.
"""

from __future__ import annotations

import tracejit as tj
from tracejit import nn


class ConditionalNet(nn.Module):
    """Two layers; what happens between them depends on what the first one says."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 2)

    def forward(self, x: tj.Tensor) -> tj.Tensor:
        h = self.first(x)
        if h.sum() > 0:
            h = tj.tanh(h)
        else:
            h = -h
        return self.second(h)


def main() -> dict[str, float]:
    """Flip the branch on each call; return what the tests look at."""
    tj.manual_seed(0)
    model = ConditionalNet()
    with tj.no_grad():
        model.first.bias.zero_()  # so that x and -x take different branches
    compiled = tj.compile(model)

    x = tj.randn(1, 8)
    worst = 0.0
    for call in range(10):
        sample = x if call % 2 == 0 else -x
        difference = (compiled(sample) - model(sample)).abs().max().item()
        worst = max(worst, difference)
        stats = compiled.stats
        print(f"call {call}: compiled so far {stats.compiled_calls}, recorded {stats.traces}, exits taken {stats.exits}")
    print(f"greatest difference from eager: {worst:.1e}")
    print(compiled.explain())
    return {"worst": worst, "compiled_calls": compiled.stats.compiled_calls, "traces": compiled.stats.traces}


if __name__ == "__main__":
    main()
