"""REINFORCE (Williams, 1992) on a pole that is to be balanced on a cart; the environment is 20 lines of this file.

A random policy lasts about 20 steps; after 250 episodes the mean of the last 20 is above 60, of at most 200.
Run it: `python examples/cartpole.py` (needs tqdm).
"""

from __future__ import annotations

import math
import random

from tqdm import tqdm

import tracejit as tj
from tracejit import nn, optim
from tracejit.distributions import Categorical


class CartPole:
    """Barto, Sutton and Anderson (1983): force left or right on a cart, a pole on top of it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def reset(self) -> list[float]:
        """A state near the upright one: position, speed, angle, angular speed."""
        self.state = [self.random.uniform(-0.05, 0.05) for _ in range(4)]
        return self.state

    def step(self, action: int) -> tuple[list[float], bool]:
        """(the state a fiftieth of a second later, whether the pole or the cart is out of bounds)."""
        x, speed, angle, turn = self.state
        sine, cosine = math.sin(angle), math.cos(angle)
        pull = ((10.0 if action else -10.0) + 0.05 * turn * turn * sine) / 1.1
        spin = (9.8 * sine - cosine * pull) / (0.5 * (4 / 3 - 0.1 * cosine * cosine / 1.1))
        self.state = [
            x + 0.02 * speed,
            speed + 0.02 * (pull - 0.05 * spin * cosine / 1.1),
            angle + 0.02 * turn,
            turn + 0.02 * spin,
        ]
        return self.state, abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21


def main(episodes: int = 250, longest: int = 200) -> dict[str, float]:
    """Train; return what the tests look at."""
    tj.manual_seed(0)
    environment = CartPole(0)
    policy = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = optim.Adam(policy.parameters(), lr=1e-2)
    lengths: list[int] = []
    bar = tqdm(range(episodes), desc="episodes")
    for _ in bar:
        state, states, actions = environment.reset(), [], []
        for _ in range(longest):
            states.append(state)
            with tj.no_grad():
                actions.append(int(Categorical(logits=policy(tj.tensor(state))).sample()))
            state, over = environment.step(actions[-1])
            if over:
                break
        returns, total = [], 0.0
        for _ in actions:
            total = 1.0 + 0.99 * total
            returns.append(total)
        weights = tj.tensor(returns[::-1])
        weights = (weights - weights.mean()) / (weights.std() + 1e-6)
        loss = -(Categorical(logits=policy(tj.tensor(states))).log_prob(tj.tensor(actions)) * weights).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lengths.append(len(actions))
        recent = sum(lengths[-20:]) / len(lengths[-20:])
        bar.set_postfix(steps=f"{recent:.0f}")
    first = sum(lengths[:20]) / len(lengths[:20])
    print(f"{first:.0f} steps at first, {recent:.0f} at last")
    return {"first": first, "last": recent}


if __name__ == "__main__":
    main()
