"""Compile a trained network, run it on the emulated chip, and show what it predicts and costs: `python -m ci.demo`."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import numpy as np

import compiler
from compiler.errors import TilewrightError
from compiler.isa.dtypes import Queue
from compiler.report.text import summary
from compiler.runtime.loaded import LoadedModel
from models import zoo
from models.digits import dataset

MODEL, SEED = "digits-cnn", 0
CHIPS = ("tw1", "tw2")
SHOWN = 6  # digits as pictures
SHADES = " .:-=+*#%@"
LEAST_ACCURACY = 0.95  # of the hold-out set; the network was trained to more


def predictions(model: LoadedModel, images: np.ndarray) -> np.ndarray:
    """The digit for each image; the first batch is checked for hazards."""
    (port,) = model.inputs
    batch = port.shape[0]
    found = [
        model.run({port.name: images[start : start + batch]}, hazards=start == 0)["logits"].argmax(1)
        for start in range(0, len(images), batch)
    ]
    return np.concatenate(found)


def pictures(images: np.ndarray, captions: Iterable[str]) -> list[str]:
    """Images side by side, two characters a pixel, with a caption below each."""
    shades = np.clip((images * len(SHADES)).astype(int), 0, len(SHADES) - 1)
    rows = [
        "   ".join("".join(SHADES[shade] * 2 for shade in image[0, row]) for image in shades)
        for row in range(images.shape[2])
    ]
    width = 2 * images.shape[3]
    return [*(row.rstrip() for row in rows), "   ".join(f"{caption:<{width}}" for caption in captions).rstrip()]


def cost(model: LoadedModel) -> list[str]:
    (stats,) = model.statistics
    busy = ", ".join(f"{queue.name} {100 * stats.busy_share(queue):.1f} %" for queue in Queue)
    batch = model.inputs[0].shape[0]
    return [
        f"{stats.cycles:,} cycles for {batch} images = {1e6 * stats.seconds:.1f} us at {stats.clock_mhz:,} MHz",
        f"cube {100 * stats.mac_utilisation:.1f} % and DDR {100 * stats.ddr_utilisation:.1f} % of their peaks",
        f"queues busy: {busy}",
        "hazards: none",
    ]


def show(chip: str, with_pictures: bool) -> bool:
    """Compile, run and print; whether the network is as accurate as it has to be."""
    artifact = compiler.compile(zoo.build(MODEL, SEED), chip=chip)
    model = compiler.load(artifact.to_bytes())
    images, labels = dataset.held_out()
    predicted = predictions(model, images)
    right = int((predicted == labels).sum())
    lines = [
        line for line in summary(artifact.report, sum(artifact.report.seconds.values())) if "compiled in" not in line
    ]
    print("\n".join(lines), end="\n\n")
    if with_pictures:
        captions = [f"{p}, is {label}" for p, label in zip(predicted[:SHOWN], labels[:SHOWN], strict=True)]
        print("\n".join(pictures(images[:SHOWN], captions)), end="\n\n")
    print(f"{right} of {len(labels)} digits that it was not trained on are right ({100 * right / len(labels):.1f} %)")
    print("\n".join(cost(model)), end="\n\n")
    return right >= LEAST_ACCURACY * len(labels)


def main() -> int:
    failed = 0
    for chip in CHIPS:
        try:
            if not show(chip, with_pictures=chip == CHIPS[0]):
                print(f"{MODEL} on {chip}: too many digits are wrong", file=sys.stderr)
                failed = 1
        except TilewrightError as error:
            print(f"{MODEL} on {chip} failed: {error}", file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
