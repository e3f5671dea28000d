"""Teach the ranking of tiles what the analytical cost does not know: `python -m ci.train_ranking --chip tw1`.

Tiles of a training set of kernels are lowered and timed on the simulator. A boosted forest learns the logarithm of
simulated by analytical cycles from the features of `compiler.tiling.ranking`, one thread, no chance: the same sources
give the same file. It is to be run again when templates, passes or the chip have changed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xgboost

import compiler.tiling
from ci.kernel_shapes import drawn
from ci.tile_samples import Sampled, in_processes, sampled
from compiler.target import Chip, load_chip
from compiler.tiling.ranking import FEATURES, Forest, features
from compiler.tiling.search import analytical_cycles

FOLDER = Path(compiler.tiling.__file__).parent / "models"
KERNELS, TILES = 200, 16
TREES = 110
PARAMETERS = {
    "objective": "reg:squarederror",
    "tree_method": "exact",
    "max_depth": 5,
    "eta": 0.1,
    "min_child_weight": 3.0,
    "lambda": 1.0,
    "nthread": 1,
    "seed": 0,
}


def examples(kernels: Sequence[Sampled]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(features, labels, weights) of all tiles; those that are nearly the best of their kernel count the most."""
    rows, labels, weights = [], [], []
    for kernel in kernels:
        if not kernel.samples:
            continue
        works = [sample.work for sample in kernel.samples]
        cycles = np.array([sample.cycles for sample in kernel.samples], np.float64)
        rows.append(features(works, kernel.chip, kernel.least))
        labels.append(np.log(cycles / [analytical_cycles(work, kernel.chip) for work in works]))
        weights.append(cycles.min() / cycles)
    return np.concatenate(rows), np.concatenate(labels), np.concatenate(weights)


def trained(rows: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> xgboost.Booster:
    base = float(np.average(labels, weights=weights))
    data = xgboost.DMatrix(rows.astype(np.float32), labels, weight=weights, feature_names=list(FEATURES))
    return xgboost.train({**PARAMETERS, "base_score": base}, data, num_boost_round=TREES)


def tables(booster: xgboost.Booster, chip: Chip) -> dict[str, Any]:
    """What the compiler keeps of the forest."""
    learner = json.loads(booster.save_raw("json"))["learner"]
    trees = [_tree(tree) for tree in learner["gradient_booster"]["model"]["trees"]]
    base = learner["learner_model_param"]["base_score"]
    return {
        "chip": chip.content_hash,
        "features": list(FEATURES),
        "base": float(base.strip("[]")),
        "depth": PARAMETERS["max_depth"],
        "trees": trees,
    }


def _tree(tree: dict[str, Any]) -> dict[str, list[Any]]:
    """A leaf is its own child on both sides."""
    left, right = tree["left_children"], tree["right_children"]
    return {
        "left": [index if child < 0 else child for index, child in enumerate(left)],
        "right": [index if child < 0 else child for index, child in enumerate(right)],
        "feature": [0 if child < 0 else feature for child, feature in zip(left, tree["split_indices"], strict=True)],
        "value": [float(f"{value:.9g}") for value in tree["split_conditions"]],
    }


def check(found: dict[str, Any], booster: xgboost.Booster, rows: np.ndarray) -> None:
    """The compiler's forest says what the library's does."""
    own = Forest.from_tables(found).predict(rows)
    theirs = booster.predict(xgboost.DMatrix(rows.astype(np.float32), feature_names=list(FEATURES)))
    np.testing.assert_allclose(own, theirs, atol=1e-4)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chip", default="tw1", help="a shipped chip (default: %(default)s)")
    parser.add_argument("--kernels", type=int, default=KERNELS, help="kernels to learn from (default: %(default)s)")
    parser.add_argument("--tiles", type=int, default=TILES, help="tiles of each (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="processes that time tiles (default: %(default)s)")
    parser.add_argument("--output", type=Path, help="the model file (default: where the compiler looks for it)")
    options = parser.parse_args(arguments)
    begin = time.perf_counter()
    chip = load_chip(options.chip)
    jobs = drawn(options.kernels, held_out=False)
    kernels = list(in_processes(partial(sampled, chip=chip, count=options.tiles), jobs, options.jobs))
    rows, labels, weights = examples(kernels)
    booster = trained(rows, labels, weights)
    found = tables(booster, chip)
    check(found, booster, rows)
    output = options.output or FOLDER / f"{chip.name}.json"
    output.parent.mkdir(exist_ok=True)
    text = json.dumps(found, separators=(",", ":"), sort_keys=True)
    output.write_text(text + "\n", encoding="utf-8")
    error = float(np.sqrt(np.average((Forest.from_tables(found).predict(rows) - labels) ** 2, weights=weights)))
    print(
        f"{chip.name}: {len(rows)} tiles of {sum(bool(each.samples) for each in kernels)} kernels, off by {error:.1%} "
        f"after and {float(np.sqrt(np.average(labels**2, weights=weights))):.1%} before; {len(text) / 1e3:.0f} KB in "
        f"{output.name}, {time.perf_counter() - begin:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
