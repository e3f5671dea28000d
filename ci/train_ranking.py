"""Teach the ranking of tiles what the analytical cost does not know: `python -m ci.train_ranking --chip tw1`.

Tiles of a training set of kernels are lowered and timed on the simulator. A boosted forest learns the logarithm of
simulated by analytical cycles from the features of `compiler.tiling.ranking`, one thread, no chance: the same sources
give the same file. Then the tiles that it would pick are timed, too, and it learns again: of thousands of tiles the
first is often one that it thinks too well of. It is to be run again when templates, passes or the chip have changed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xgboost

import compiler.tiling
from ci.ranking_kernels import drawn_in_turn
from ci.tile_samples import Sampled, in_processes, sampled, with_picks
from compiler.target import Chip, load_chip
from compiler.tiling.ranking import FEATURES, Forest, features
from compiler.tiling.search import analytical_cycles

FOLDER = Path(compiler.tiling.__file__).parent / "models"
KERNELS, TILES = 440, 12
PICKS = 3  # tiles of each that are timed because they come first by what was learned from the others
TREES = 300
COMMON = 0.5  # of what a forest is off by for all tiles of a kernel alike, what it is to learn: order does not need it
PARAMETERS = {
    "objective": "reg:squarederror",
    "tree_method": "exact",
    "max_depth": 5,
    "eta": 0.04,
    "min_child_weight": 1.0,
    "subsample": 0.7,
    "colsample_bytree": 0.6,
    "lambda": 1.0,
    "nthread": 1,
    "seed": 0,
}


class Examples(NamedTuple):
    """All tiles of all kernels; those that are nearly the best of their kernel count the most."""

    rows: np.ndarray  # [tile, feature]
    labels: np.ndarray
    weights: np.ndarray
    kernels: np.ndarray  # whose tile it is, numbered


def examples(kernels: Sequence[Sampled]) -> Examples:
    found = []
    for number, kernel in enumerate(each for each in kernels if each.samples):
        works = [sample.work for sample in kernel.samples]
        cycles = np.array([sample.cycles for sample in kernel.samples], np.float64)
        labels = np.log(cycles / [analytical_cycles(work, kernel.chip) for work in works])
        rows = features(works, kernel.chip, kernel.least)
        found.append(Examples(rows, labels, cycles.min() / cycles, np.full(len(works), number)))
    return Examples(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def trained(of: Examples) -> xgboost.Booster:
    base = float(np.average(of.labels, weights=of.weights))
    data = xgboost.DMatrix(of.rows.astype(np.float32), of.labels, weight=of.weights, feature_names=list(FEATURES))
    whole = np.bincount(of.kernels, of.weights)

    def within_kernels(predicted: np.ndarray, _: xgboost.DMatrix) -> tuple[np.ndarray, np.ndarray]:
        """Gradients of squares, less most of what all tiles of a kernel have in common."""
        off = predicted - of.labels
        common = np.bincount(of.kernels, of.weights * off) / whole
        return of.weights * (off - (1 - COMMON) * common[of.kernels]), of.weights

    return xgboost.train({**PARAMETERS, "base_score": base}, data, num_boost_round=TREES, obj=within_kernels)


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
    jobs = drawn_in_turn(options.kernels, chip, held_out=False)
    kernels = list(in_processes(partial(sampled, chip=chip, count=options.tiles), jobs, options.jobs))
    first = Forest.from_tables(tables(trained(examples(kernels)), chip))
    known = list(zip(jobs, kernels, strict=True))
    kernels = list(in_processes(partial(with_picks, forest=first, count=PICKS), known, options.jobs))
    learned = examples(kernels)
    booster = trained(learned)
    found = tables(booster, chip)
    check(found, booster, learned.rows)
    output = options.output or FOLDER / f"{chip.name}.json"
    output.parent.mkdir(exist_ok=True)
    text = json.dumps(found, separators=(",", ":"), sort_keys=True)
    output.write_text(text + "\n", encoding="utf-8")
    after = learned.labels - Forest.from_tables(found).predict(learned.rows)
    errors = (float(np.sqrt(np.average(off**2, weights=learned.weights))) for off in (after, learned.labels))
    print(
        f"{chip.name}: {len(after)} tiles of {sum(bool(each.samples) for each in kernels)} kernels, "
        f"off by {next(errors):.1%} after and {next(errors):.1%} before; {len(text) / 1e3:.0f} KB in "
        f"{output.name}, {time.perf_counter() - begin:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
