"""Train a classifier of handwritten digits by several processes, each on its share of every batch.  The whole step is compiled, with the
averages of gradients between the pieces of the program.

Run it: `mpirun -n 4 python examples/distributed_digits.py` (needs `pip install 'tracejit[mpi]'`, and scikit-learn for the images), or
`python examples/distributed_digits.py` for one process, with or without MPI.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import tracejit as tj
from tracejit import distributed, nn, optim
from tracejit.data import DataLoader, DistributedSampler, digits
from tracejit.serialization import save_by_rank_0

EPOCHS = 12
BATCH = 64


def main(epochs: int = EPOCHS) -> dict[str, float]:
    """Train, print accuracy; return what the tests look at."""
    distributed.init_process_group()
    rank, processes = distributed.get_rank(), distributed.get_world_size()
    training, held_out = digits()
    sampler = DistributedSampler(training, shuffle=True, drop_last=True)
    loader = DataLoader(training, batch_size=BATCH // processes, sampler=sampler, drop_last=True)

    tj.manual_seed(1)
    network = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    model = nn.parallel.DistributedDataParallel(network)
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.Adam(model.parameters(), lr=2e-3)

    # backward() averages the gradients of all processes, so all of them take the same step.
    @tj.compile
    def step(x: tj.Tensor, y: tj.Tensor) -> tj.Tensor:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    start = time.perf_counter()
    for epoch in range(epochs):
        sampler.set_epoch(epoch)  # another order, the same in all processes
        total = sum((step(x, y) for x, y in loader), tj.zeros(()))
        mean = total / len(loader)
        distributed.all_reduce(mean, distributed.ReduceOp.AVG)
        if rank == 0 and epoch % 3 == 2:
            print(f"epoch {epoch + 1:2}: mean loss {mean.item():.4f}")
    seconds = time.perf_counter() - start

    # Each process looks at its part of the held-out images; the counts are added.
    images, labels = held_out.tensors
    with tj.no_grad():
        right = (network(images[rank::processes]).argmax(1) == labels[rank::processes]).sum()
    distributed.all_reduce(right)
    accuracy = right.item() / len(held_out)

    # Rank 0 writes the file; when the call returns it is there for all.
    path = Path(tempfile.gettempdir()) / "distributed_digits.safetensors"
    save_by_rank_0(network.state_dict(), path)
    if rank == 0:
        print(f"{processes} processes: {step.stats.calls} steps in {seconds:.2f} s, {step.stats.compiled_calls} of them compiled")
        print(f"accuracy on {len(held_out)} held-out digits: {accuracy:.2%}; saved to {path}")
    distributed.destroy_process_group()
    return {"accuracy": accuracy, "calls": step.stats.calls, "compiled_calls": step.stats.compiled_calls}


if __name__ == "__main__":
    main()
