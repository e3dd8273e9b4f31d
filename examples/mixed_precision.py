"""Training in mixed precision: products in float16, the loss and the parameters in float32, gradients scaled so that none becomes zero.

The step is compiled as a whole.  Whether an update is left out, because a gradient is not finite, is a check inside the program.

Run it: `python examples/mixed_precision.py` (needs tqdm).
"""

from __future__ import annotations

from tqdm import tqdm

import tracejit as tj
import tracejit.nn.functional as F
from tracejit import nn
from tracejit.amp import GradScaler, autocast


def main() -> dict[str, float]:
    """Fit three cycles of a sine; return what the tests look at."""
    tj.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = tj.optim.Adam(model.parameters(), lr=3e-3)
    scaler = GradScaler("cpu", init_scale=2.0**24, growth_interval=100)
    x = tj.linspace(-1, 1, 256).reshape(-1, 1)
    y = tj.sin(3 * x)

    @tj.compile
    def step() -> tj.Tensor:
        optimizer.zero_grad()
        with autocast("cpu", dtype=tj.float16):
            output = model(x)  # float16: Linear is one of the functions that autocast lowers
            loss = F.mse_loss(output, y)  # float32: losses are not
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    losses = []
    bar = tqdm(range(300), desc="steps")
    for _ in bar:
        losses.append(step().item())
        bar.set_postfix(loss=f"{losses[-1]:.5f}")
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.5f}, scale 2**24 -> {scaler.get_scale():.0f}")
    print(f"{step.stats.compiled_calls} of {step.stats.calls} steps ran compiled")
    return {
        "first": losses[0],
        "last": losses[-1],
        "scale": scaler.get_scale(),
        "compiled_calls": step.stats.compiled_calls,
        "calls": step.stats.calls,
    }


if __name__ == "__main__":
    main()
