"""Trains a convolutional network to read handwritten digits: make digits.

The 1797 images of 8 x 8 come with scikit-learn; every fifth is kept from the training. The numbers
are the same in every run.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from tinytensor import Tensor, manual_seed, nn, no_grad, optim
from tinytensor.lazy import lazy_import
from tinytensor.nn.functional import cross_entropy

EPOCHS = 12
BATCH = 64
WANTED = 0.98
WIDTH = 30  # characters of the bar


def load() -> tuple[np.ndarray, np.ndarray]:
    """Return images (n, 1, 8, 8) float32 in 0 .. 1, and labels (n,) int64."""
    found = lazy_import("sklearn.datasets", "examples", "digits").load_digits()
    return (found.images[:, None] / 16).astype(np.float32), found.target.astype(np.int64)


def make_network() -> nn.Sequential:
    """Return a network of 76,586 parameters: images (n, 1, 8, 8) -> scores (n, 10)."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.3)),
        *(nn.Linear(512, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, 10)),
    )


def count_right(network: nn.Module, images: np.ndarray, labels: np.ndarray) -> int:
    """Return how many images a network reads."""
    network.eval()
    with no_grad():
        right = network(Tensor(images)).argmax(1) == Tensor(labels)
    return int(right.sum().item())


def show_progress(epoch: int, done: float, text: str) -> None:
    """Draw one line over the last one; `done` is a share of the epoch."""
    full = round(done * WIDTH)
    bar = "#" * full + "." * (WIDTH - full)
    sys.stdout.write(f"\repoch {epoch:2}/{EPOCHS} [{bar}] {text:40}")
    sys.stdout.flush()


def train_epoch(
    network: nn.Module,
    optimizer: optim.Optimizer,
    images: np.ndarray,
    labels: np.ndarray,
    order: np.ndarray,
    epoch: int,
) -> float:
    """Take a step for each whole batch; return the mean loss."""
    network.train()
    batches = order[: len(order) // BATCH * BATCH].reshape(-1, BATCH)
    total = 0.0
    for number, chosen in enumerate(batches, start=1):
        loss = cross_entropy(network(Tensor(images[chosen])), Tensor(labels[chosen]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        show_progress(epoch, number / len(batches), f"loss {total / number:.4f}")
    return total / len(batches)


def main() -> int:
    """Train, show each epoch, and return 0 if the network reads enough of what it never saw."""
    manual_seed(0)
    random = np.random.default_rng(0)
    images, labels = load()
    is_test = np.arange(len(images)) % 5 == 0
    test = images[is_test], labels[is_test]
    images, labels = images[~is_test], labels[~is_test]
    network = make_network()
    optimizer = optim.AdamW(network.parameters(), lr=3e-3)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    share = 0.0
    for epoch in range(1, EPOCHS + 1):
        start = time.perf_counter()
        order = random.permutation(len(images))
        loss = train_epoch(network, optimizer, images, labels, order, epoch)
        seconds = time.perf_counter() - start
        share = count_right(network, *test) / len(test[1])
        show_progress(epoch, 1.0, f"loss {loss:.4f}  test {share:.2%}  {seconds:.2f} s\n")
        scheduler.step()
    verdict = "enough" if share >= WANTED else "too little"
    print(f"{share:.2%} of {len(test[1])} digits were read that it never saw: {verdict}.")
    return int(share < WANTED)


if __name__ == "__main__":
    sys.exit(main())
