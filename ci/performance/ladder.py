"""What graph scheduling is good for: served models at the batch they are served at, with one more part of it each time.

The models and batches are those by which the scheduling that this follows was judged (OSDI'23), on the chip that is
modelled on its own. Four rungs: kernel by kernel through DDR; results on the chip, between kernels and in kernels that
several operators share; the graph in pieces whose tensors fit there; and kernels that overlap across their borders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import pairwise
from multiprocessing import get_context

from ci.performance.measure import Measured, measured_run
from ci.performance.tables import geometric_mean, markdown
from compiler.driver import compile_model
from compiler.options import Options
from compiler.pipeline import Observer
from compiler.report.bounds import Bound
from compiler.report.model_bounds import model_bound
from compiler.target import load_chip
from models import zoo
from models.architectures.bert import bert
from models.architectures.conformer import conformer
from models.architectures.densenet import densenet
from models.architectures.dlrm import dlrm
from models.architectures.mobilenet_v2 import mobilenet_v2
from models.architectures.resnet import resnet
from models.architectures.vit import vit
from models.feeds import bert_inputs, clicks, image, signal
from models.manifest import Model

CHIPS = ("tw1", "tw2")
TABLES = (10_000, 2_000, 40_000, 500, 8_000, 160, 10_000, 10_000)
SERVED: tuple[Model, ...] = (
    Model("resnet50", resnet, "", image(224, batch=64), {"blocks": (3, 4, 6, 3), "bottleneck": True}, opset=13),
    Model("bert-base-128", bert, "", bert_inputs(32, 128, 30522), {"vocabulary": 30522, "layers": 12}, opset=14),
    Model("mobilenet-v2", mobilenet_v2, "", image(224, batch=128), opset=13),
    Model("vit-base", vit, "", image(224, batch=32), {"width": 768, "heads": 12}),
    Model("densenet121", densenet, "", image(224, batch=32)),
    Model(
        "dlrm",
        dlrm,
        "",
        clicks(1024, 13, TABLES),
        {"rows": TABLES, "width": 64, "bottom": (512, 256), "top": (512, 256)},
        opset=13,
    ),
    Model(
        "conformer",
        conformer,
        "",
        signal(12, 256, 256, name="features"),
        {"width": 256, "heads": 4, "layers": 4, "subsampled": False},
    ),
)
ALL = "and kernels overlap"
# By rung: what is left out.
RUNGS: Mapping[str, frozenset[str]] = {
    "kernel by kernel": frozenset(
        {"divide-batch", "schedule-graph", "schedule-bands", "keep-in-l1", "llb-placement", "overlap"}
    ),
    "results on the chip": frozenset({"schedule-graph", "schedule-bands", "overlap"}),
    "in pieces, depth first": frozenset({"overlap"}),
    ALL: frozenset(),
}
MEAN_LIMIT, WORST_LIMIT = 1.35, 1.6


@dataclass(frozen=True)
class Rung:
    measured: Measured
    far_results: int  # of kernels, that go through DDR to other kernels
    far_bytes: int


@dataclass(frozen=True)
class Row:
    model: str
    chip: str
    batch: int
    bound: Bound
    rungs: Mapping[str, Rung]

    @property
    def ratio(self) -> float:
        return self.rungs[ALL].measured.cycles / self.bound.cycles

    @property
    def peak_share(self) -> float:
        """Of the cube's peak, what the model's own products are."""
        return self.bound.cube_cycles / self.rungs[ALL].measured.cycles


def row(model: Model, chip: str, share: int) -> Row:
    """``share``: the part of the batch that is run, for a quick look."""
    inputs = tuple(replace(each, shape=(max(1, each.shape[0] // share), *each.shape[1:])) for each in model.inputs)
    model = replace(model, inputs=inputs)
    source, machine = zoo.build(model), load_chip(chip)
    shapes = {each.name: each.shape for each in inputs if each.symbols}
    feeds, found = zoo.inputs(model), dict[str, Rung]()
    for name, without in RUNGS.items():
        options = Options(precision="fp16", shapes=shapes, cache=False, jobs=1)
        compilation = compile_model(source.SerializeToString(), machine, options, Observer(without=without))
        far = compilation.far_results
        measured = measured_run(compilation.model, feeds)
        found[name] = Rung(measured, len(far), sum(each.size_bytes for each in far))
    return Row(model.name, chip, inputs[0].shape[0], model_bound(source, machine, "fp16", shapes, feeds=feeds), found)


def rows(names: Sequence[str], chips: Sequence[str], jobs: int, share: int = 1) -> Iterator[Row]:
    chosen = [
        (model, chip, share)
        for model in SERVED
        if not names or any(fnmatchcase(model.name, pattern) for pattern in names)
        for chip in chips
    ]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        yield from pool.map(row, *zip(*chosen, strict=True)) if chosen else ()


HEAD = ("model", "chip", "batch", *RUNGS, "lower bound", "ratio", "of peak", "cube busy", "results in DDR", "queue")


def cells(one: Row) -> tuple[str, ...]:
    last, counts = one.rungs[ALL], [rung.far_results for rung in one.rungs.values()]
    return (
        one.model, one.chip, str(one.batch), *(f"{rung.measured.cycles:,}" for rung in one.rungs.values()),
        f"{one.bound.cycles:,.0f} {one.bound.by}", f"{one.ratio:.2f}", f"{one.peak_share:.0%}",
        f"{last.measured.cube_share:.0%}", " -> ".join(map(str, counts)), last.measured.reason,
    )  # fmt: skip


def summary(found: Sequence[Row]) -> list[str]:
    lines, names = [], list(RUNGS)
    for chip in dict.fromkeys(one.chip for one in found):
        mine = [one for one in found if one.chip == chip]
        gains = [
            f"{after}: {geometric_mean(_gain(one, before, after) for one in mine):.2f}x"
            for before, after in pairwise(names)
        ]
        mean, worst = geometric_mean(one.ratio for one in mine), max(mine, key=lambda one: one.ratio)
        lines.append(f"{chip}: {'; '.join(gains)}; all: {geometric_mean(_gain(o, names[0], ALL) for o in mine):.2f}x")
        lines.append(
            f"{chip}: {mean:.2f} of the lower bound in the geometric mean (target {MEAN_LIMIT}), "
            f"worst {worst.ratio:.2f} ({worst.model}; target {WORST_LIMIT})"
        )
    return lines


def _gain(one: Row, before: str, after: str) -> float:
    return one.rungs[before].measured.cycles / one.rungs[after].measured.cycles


def section(found: Sequence[Row]) -> str:
    return "\n\n".join([markdown(HEAD, map(cells, found)), "\n".join(f"- {line}" for line in summary(found))])
