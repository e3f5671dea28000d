"""The trained network: it is as good as claimed, by numpy and by onnxruntime, and its training does what it should."""

from __future__ import annotations

import numpy as np

from models import train_digits, zoo
from models.checks import run
from models.digits import dataset

LEAST = 0.97


def test_the_parts_share_no_image_and_hold_every_digit() -> None:
    training, held_out = dataset.training(), dataset.held_out()
    assert (len(training.labels), len(held_out.labels)) == (1437, 360)
    seen = {image.tobytes() for image in training.images}
    assert not any(image.tobytes() in seen for image in held_out.images)
    assert set(training.labels) == set(held_out.labels) == set(range(10))


def test_the_trained_network_reaches_its_accuracy_in_onnxruntime() -> None:
    model, part = zoo.build("digits-cnn"), dataset.held_out()
    found = [run(model, {"image": images})["logits"] for images in np.split(part.images, 12)]
    assert (np.concatenate(found).argmax(1) == part.labels).mean() >= LEAST


def test_the_onnx_model_is_the_network_that_was_trained() -> None:
    inputs = zoo.inputs("digits-cnn")
    expected = train_digits.logits(dataset.weights(), inputs["image"])
    np.testing.assert_allclose(run(zoo.build("digits-cnn"), inputs)["logits"], expected, rtol=1e-4, atol=1e-4)


def test_gradients_agree_with_differences() -> None:
    rng = np.random.default_rng(0)
    weights = {name: weight.astype(np.float64) for name, weight in train_digits.initial_weights(rng).items()}
    images, labels = rng.random((4, 1, 8, 8)), np.array([3, 1, 4, 1])

    def loss() -> float:
        scores = train_digits.logits(weights, images)
        return float((np.log(np.exp(scores).sum(1)) - scores[np.arange(4), labels]).mean())

    step = 1e-6
    for name, gradient in train_digits.gradients(weights, images, labels).items():
        for index in rng.choice(weights[name].size, 3):
            place = np.unravel_index(index, weights[name].shape)
            before = weights[name][place]
            weights[name][place] = before + step
            above = loss()
            weights[name][place] = before - step
            below = loss()
            weights[name][place] = before
            np.testing.assert_allclose(gradient[place], (above - below) / (2 * step), rtol=1e-4, atol=1e-7)
