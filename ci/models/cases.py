"""What is observed: cases, the tiers that select them, and how they come to workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple
from zlib import crc32

from models import zoo

TIERS = ("smoke", "gate", "full")
SMOKE_CHIPS, SMOKE_PRECISIONS = ("tiny", "tw1"), ("fp16",)  # of the models that are marked so


class Case(NamedTuple):
    model: str
    chip: str
    precision: str

    def __str__(self) -> str:
        return "/".join(self)

    @property
    def variant(self) -> str:
        """What tells it from the other cases of its model."""
        return f"{self.chip}/{self.precision}"


@dataclass(frozen=True)
class Task:
    """Cases that share a process, model by model: each is built, and run by onnxruntime, once."""

    cases: tuple[Case, ...]


def parsed(text: str) -> Case:
    model, chip, precision = text.rsplit("/", 2)
    return Case(model, chip, precision)


def cases(tier: str, models: Sequence[str], chips: Sequence[str], precisions: Sequence[str]) -> list[Case]:
    """The tier's cases that are chosen; no choice is all of them, a model may be chosen by a pattern."""
    return [
        case
        for name in zoo.names()
        if not models or any(fnmatchcase(name, pattern) for pattern in models)
        for case in _of_tier(name, tier)
        if not chips or case.chip in chips
        if not precisions or case.precision in precisions
    ]


def _of_tier(name: str, tier: str) -> list[Case]:
    """smoke: models that are marked so, on the smaller chips; gate: one case of every model; full: all there are.

    Which one the gate has is drawn from the name, so that all chips and precisions have their share.
    """
    manifest = zoo.manifest(name)
    every = [Case(name, chip, precision) for chip in manifest.chips for precision in manifest.precisions]
    if tier == "full":
        return every
    if tier == "gate":
        return [every[crc32(name.encode()) % len(every)]]
    smoke = [case for case in every if case.chip in SMOKE_CHIPS and case.precision in SMOKE_PRECISIONS]
    return smoke if manifest.tier == "smoke" else []


def tasks(chosen: Iterable[Case], seconds: Mapping[Case, float] | None = None) -> list[Task]:
    """A task for each model, in order; or those first that took longest when they were recorded."""
    by_model: dict[str, list[Case]] = {}
    for case in chosen:
        by_model.setdefault(case.model, []).append(case)
    found = [Task(tuple(each)) for each in by_model.values()]
    if seconds is None:
        return found
    return sorted(found, key=lambda task: -sum(seconds.get(case, 0.0) for case in task.cases))
