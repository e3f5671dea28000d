"""Random convolutional networks of which clusters run sections each on some rows, free of hazards, against onnxruntime.

The networks of :mod:`tests.schedule.random_networks` for images that have equal parts, with transposed convolutions and
channels that become places. They are cut into up to three sections at random, each for two to four clusters or as ever.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import numpy as np

from ci.random_cases import Outcome
from compiler import driver, graph
from compiler.frontend import import_model
from compiler.options import Options
from compiler.pipeline import Observer
from compiler.runtime.loaded import load
from compiler.schedule.spreads import Section
from compiler.target import load_chip
from tests.schedule import random_networks
from tests.schedule.random_networks import TOLERANCE, reference, shown

CHIP = "tw1"  # of the chips, the one of several clusters
ROWS, COLUMNS = (16, 24, 32, 48, 64), (7, 13, 16, 20)


class Network(random_networks.Network):
    rows, columns = ROWS, COLUMNS

    def _convolution(self, last: str) -> str:
        """Mostly of windows that leave as many rows as there were, or half of them."""
        batch, channels, *image = self.made[last]
        if self.random.random() < 0.2:
            return super()._convolution(last)
        size, dilation = self.random.choice((1, 3, 3, 5)), self.random.choice((1, 1, 2))
        stride, pad = self.random.choice((1, 1, 1, 2)), (size - 1) * dilation // 2
        outputs = self.random.choice((4, 8, 16, 24))
        w = self.rng.standard_normal((outputs, channels, size, size)) / np.sqrt(channels * 9)
        self.weights |= {f"w{len(self.nodes)}": w.astype(np.float32)}
        settings = {"strides": [stride] * 2, "dilations": [dilation] * 2, "pads": [pad] * 4}
        sizes = [(extent - 1) // stride + 1 for extent in image]
        return self._add("Conv", f"{last} w{len(self.nodes)}", (batch, outputs, *sizes), **settings)

    def _upsampled(self, last: str) -> str:
        batch, channels, rows, columns = self.made[last]
        if rows > max(self.rows) or columns > max(self.columns):
            return self._pool(last)
        kind = self.random.randrange(3)
        if kind == 0 and channels % 4 == 0:
            shape = (batch, channels // 4, 2 * rows, 2 * columns)
            return self._add("DepthToSpace", last, shape, blocksize=2, mode=self.random.choice(("CRD", "DCR")))
        if kind == 1:
            w = self.rng.standard_normal((channels, 8, 2, 2)) / np.sqrt(channels)
            self.weights |= {f"w{len(self.nodes)}": w.astype(np.float32)}
            shape = (batch, 8, 2 * rows, 2 * columns)
            return self._add("ConvTranspose", f"{last} w{len(self.nodes)}", shape, strides=[2, 2])
        return super()._upsampled(last)


def check(seed: int, chip: str) -> Outcome:
    """On the one chip of several clusters, whatever ``chip`` is."""
    network, source = Network(seed), Random(seed + 1)
    data = network.source()
    x = {"x": network.rng.standard_normal(network.shape).astype(np.float32)}
    try:
        imported = import_model(data)
        sections = _sections([call.name for call in graph.read(imported.module["main"]).calls], source)
        made = driver.in_rows(imported, sections, load_chip(CHIP), Options(), Observer())
        if made is None:
            return Outcome(seed, CHIP, "", Counter({"as ever": 1}))
        found = load(made.model).run(x, hazards=True)
    except Exception as problem:  # noqa: BLE001  whatever it is, it is this seed's failure
        return Outcome(seed, CHIP, f"{shown(network)}: {type(problem).__name__}: {problem!s:.300}")
    for name, expected in zip(network.outputs, reference(data, x), strict=True):
        error = float(np.abs(found[name] - expected).max() / max(np.abs(expected).max(), 0.1))
        if not error <= TOLERANCE:
            what = [(section.clusters, sorted(section.names)) for section in sections]
            return Outcome(seed, CHIP, f"{shown(network)}: {name} in {what} is off by {error:.2g} of the largest")
    return Outcome(seed, CHIP, "", Counter({"in rows": 1}))


def _sections(calls: list[str], source: Random) -> list[Section]:
    cuts = source.sample(range(1, len(calls)), min(len(calls) - 1, source.randrange(3))) if len(calls) > 1 else []
    clusters = source.choice((2, 3, 4, 4))
    return [
        Section(frozenset(calls[first:end]), source.choice((clusters, clusters, clusters, 0)))
        for first, end in pairwise([0, *sorted(cuts), len(calls)])
    ]
