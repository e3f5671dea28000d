"""Train the digits network and store its weights: ``python -m models.train_digits``.

Two 3 x 3 convolutions, a 2 x 2 maximum, two dense layers; cross-entropy and Adam, in numpy. One seed decides initial
weights, batches and shifts. The bits of the result also depend on the BLAS in use: that is why the weights are stored.

``--fetch-data`` writes the data anew from scikit-learn, which is needed for nothing else.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from models import initial
from models.digits import dataset

Weights: TypeAlias = dict[str, np.ndarray]

CHANNELS = (16, 32)
HIDDEN = 32
EPOCHS = 40
BATCH = 32
RATE = 3e-3


def initial_weights(rng: np.random.Generator) -> Weights:
    first, second = CHANNELS
    shapes = {
        "conv1": (first, 1, 3, 3),
        "conv2": (second, first, 3, 3),
        "fc1": (HIDDEN, second * 16),
        "fc2": (10, HIDDEN),
    }
    weights: Weights = {}
    for name, shape in shapes.items():
        weights[f"{name}.weight"] = initial.filters(rng, shape, initial.RELU)
        weights[f"{name}.bias"] = np.zeros(shape[0], np.float32)
    return weights


# ---- layers: each forward step, and beside it the gradient of its operands -----------------------------------------


def windows(x: np.ndarray) -> np.ndarray:
    """The 3 x 3 neighbourhoods of every pixel, zeros around: [n, c, h, w] to [n, h, w, c * 9]."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    view: np.ndarray = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    n, c, h, w = x.shape
    return view.transpose(0, 2, 3, 1, 4, 5).reshape(n, h, w, c * 9)


def convolve(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    result: np.ndarray = windows(x) @ weight.reshape(len(weight), -1).T + bias
    return result.transpose(0, 3, 1, 2)


def convolve_gradients(x: np.ndarray, weight: np.ndarray, grad: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the input and of the weights; the input's is a convolution with the weights mirrored."""
    flat = grad.transpose(0, 2, 3, 1).reshape(-1, len(weight))
    of_weight = (flat.T @ windows(x).reshape(len(flat), -1)).reshape(weight.shape)
    mirrored = weight[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
    return convolve(grad, mirrored, np.zeros(1, np.float32)), of_weight


def blocks(x: np.ndarray) -> np.ndarray:
    """The 2 x 2 blocks: [n, c, h, w] to [n, c, h / 2, w / 2, 4]."""
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, h // 2, w // 2, 4)


def pool_gradient(x: np.ndarray, grad: np.ndarray) -> np.ndarray:
    """Every block's gradient goes to its maximum, the first one of equals."""
    n, c, h, w = x.shape
    chosen = blocks(x).argmax(-1)[..., None] == np.arange(4)
    spread: np.ndarray = (chosen * grad[..., None]).reshape(n, c, h // 2, w // 2, 2, 2)
    return spread.transpose(0, 1, 2, 4, 3, 5).reshape(x.shape)


# ---- the network ---------------------------------------------------------------------------------------------------


def logits(weights: Weights, images: np.ndarray) -> np.ndarray:
    return _forward(weights, images)[-1]


def _forward(weights: Weights, images: np.ndarray) -> tuple[np.ndarray, ...]:
    first = np.maximum(convolve(images, weights["conv1.weight"], weights["conv1.bias"]), 0)
    second = np.maximum(convolve(first, weights["conv2.weight"], weights["conv2.bias"]), 0)
    pooled = blocks(second).max(-1).reshape(len(images), -1)
    hidden = np.maximum(pooled @ weights["fc1.weight"].T + weights["fc1.bias"], 0)
    return first, second, pooled, hidden, hidden @ weights["fc2.weight"].T + weights["fc2.bias"]


def gradients(weights: Weights, images: np.ndarray, labels: np.ndarray) -> Weights:
    """Of the mean cross-entropy by every weight."""
    first, second, pooled, hidden, scores = _forward(weights, images)
    exps = np.exp(scores - scores.max(1, keepdims=True))
    grad = exps / exps.sum(1, keepdims=True)
    grad[np.arange(len(labels)), labels] -= 1
    grad /= len(labels)
    found: Weights = {"fc2.weight": grad.T @ hidden, "fc2.bias": grad.sum(0)}
    grad = (grad @ weights["fc2.weight"]) * (hidden > 0)
    found |= {"fc1.weight": grad.T @ pooled, "fc1.bias": grad.sum(0)}
    n, c, h, w = second.shape
    grad = pool_gradient(second, (grad @ weights["fc1.weight"]).reshape(n, c, h // 2, w // 2)) * (second > 0)
    below, found["conv2.weight"] = convolve_gradients(first, weights["conv2.weight"], grad)
    found["conv2.bias"] = grad.sum((0, 2, 3))
    grad = below * (first > 0)
    found["conv1.weight"] = convolve_gradients(images, weights["conv1.weight"], grad)[1]
    found["conv1.bias"] = grad.sum((0, 2, 3))
    return found


def accuracy(weights: Weights, part: dataset.Part) -> float:
    return float((logits(weights, part.images).argmax(1) == part.labels).mean())


# ---- training ------------------------------------------------------------------------------------------------------


def batches(rng: np.random.Generator, part: dataset.Part) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """One epoch in random order; each batch is shifted by up to a pixel each way."""
    order = rng.permutation(len(part.labels))
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        down, right = rng.integers(0, 3, 2)
        padded = np.pad(part.images[chosen], ((0, 0), (0, 0), (1, 1), (1, 1)))
        yield padded[:, :, down : down + 8, right : right + 8], part.labels[chosen]


def train(seed: int, part: dataset.Part) -> Weights:
    """Adam with a rate that falls to zero along a cosine."""
    rng = np.random.default_rng(seed)
    weights = initial_weights(rng)
    means = {name: np.zeros_like(weight) for name, weight in weights.items()}
    squares = {name: np.zeros_like(weight) for name, weight in weights.items()}
    step, steps = 0, EPOCHS * -(-len(part.labels) // BATCH)
    for _ in range(EPOCHS):
        for images, labels in batches(rng, part):
            step += 1
            rate = np.float32(RATE * (1 + np.cos(np.pi * step / steps)) / 2)
            for name, grad in gradients(weights, images, labels).items():
                means[name] += np.float32(0.1) * (grad - means[name])
                squares[name] += np.float32(0.001) * (grad * grad - squares[name])
                mean = means[name] / np.float32(1 - 0.9**step)
                deviation = np.sqrt(squares[name] / np.float32(1 - 0.999**step)) + np.float32(1e-8)
                weights[name] -= rate * mean / deviation
    return {name: weight.astype(np.float32) for name, weight in weights.items()}


def fetch_data() -> None:
    """Write the data as scikit-learn distributes them."""
    from sklearn.datasets import load_digits  # a tool for this alone

    data = load_digits()
    np.savez_compressed(
        dataset.DATA, images=data.images.astype(np.uint8), labels=data.target.astype(np.uint8), allow_pickle=False
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m models.train_digits", description="train the digits network")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fetch-data", action="store_true", help="write the data anew from scikit-learn first")
    args = parser.parse_args(argv)
    if args.fetch_data:
        fetch_data()
    weights = train(args.seed, dataset.training())
    np.savez_compressed(dataset.WEIGHTS, allow_pickle=False, **weights)
    print(f"training accuracy {accuracy(weights, dataset.training()):.4f}")
    print(f"hold-out accuracy {accuracy(weights, dataset.held_out()):.4f}")
    print(f"wrote {dataset.WEIGHTS.name}: {dataset.WEIGHTS.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
