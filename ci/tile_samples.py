"""Tiles of kernels, lowered and timed on the simulator: what ranking learns from, and what it is judged by."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any
from zlib import crc32

from tvm.s_tir import ScheduleError

from ci.kernel_shapes import machine_of
from compiler import pipeline
from compiler.codegen.kernel import KernelCode, generate
from compiler.codegen.memory import MemoryOverflow
from compiler.emission.errors import NotEmittable
from compiler.errors import TilewrightError
from compiler.kernel_pool import Job
from compiler.kernels import spaces
from compiler.pipeline import Observer
from compiler.sim.expand import MAX_STEPS
from compiler.target import Chip
from compiler.tiling.ranking import Forest, Ranked, least_of, ranked
from compiler.tiling.search import Space, Work
from compiler.tiling.template import NoFeasibleTile
from compiler.timing import kernel_cycles


@dataclass(frozen=True)
class Sample:
    """A tile and its cycles on the simulator."""

    tile: Any
    work: Work
    cycles: int
    at_random: bool = True  # drawn from all tiles alike; not for where a ranking has it


@dataclass(frozen=True)
class Sampled:
    """The tiles of one kernel that were timed."""

    name: str
    chip: Chip
    samples: tuple[Sample, ...]
    tiles: int  # that there are
    least: Any = None  # `least_of` all of them


def space_of(job: Job, chip: Chip) -> Space | None:
    """That of the first template whose tiles fit."""
    return next((space for _, space in spaces(job.func, job.schedule, chip)), None)


def code_of(space: Space, tile: Any, chip: Chip, name: str) -> KernelCode | None:
    """None where the tile does not become a kernel."""
    with suppress(MemoryOverflow, NoFeasibleTile, NotEmittable, ScheduleError):
        lowered = pipeline.run(pipeline.kernel_passes(), space.apply(tile).func, chip, Observer())
        return generate(lowered, chip, name)
    return None


def timed(space: Space, tile: Any, chip: Chip, name: str) -> int | None:
    code = code_of(space, tile, chip, name)
    with suppress(TilewrightError):  # data decides, or it is too large to be simulated
        return None if code is None else kernel_cycles(code, chip, MAX_STEPS)
    return None


def drawn_tiles(found: list[Ranked], count: int, name: str) -> dict[Any, bool]:
    """All, or so many: a half of the first in order, where ranking has to be right, the others of all alike.

    With each, whether it is one of the others.
    """
    if len(found) <= count:
        return {one.tile: True for one in found}
    random = Random(crc32(name.encode()))
    first = random.sample(range(len(found[: 2 * count])), count // 2)
    others = random.sample(range(len(found)), count - len(first))
    drawn = dict.fromkeys(first, False) | dict.fromkeys(others, True)
    return {found[index].tile: drawn[index] for index in sorted(drawn)}


def sampled(job: Job, chip: Chip, count: int, always: Iterable[Any] = ()) -> Sampled:
    """A sample of a kernel's tiles, timed; and those that are to be in it."""
    chip = machine_of(job, chip)
    space = space_of(job, chip)
    if space is None:
        return Sampled(job.name, chip, (), 0)
    found = ranked(space, chip, learned=False)
    chosen = dict.fromkeys(always, False) | drawn_tiles(found, count, job.name)
    samples = [
        Sample(one.tile, one.work, cycles, chosen[one.tile])
        for one in found
        if one.tile in chosen and (cycles := timed(space, one.tile, chip, job.name))
    ]
    return Sampled(job.name, chip, tuple(samples), len(found), least_of([one.work for one in found], chip))


def with_picks(known: tuple[Job, Sampled], forest: Forest, count: int) -> Sampled:
    """A sample and the tiles that what was learned so far would pick: where it is wrong there, it is to learn."""
    job, kernel = known
    space = space_of(job, kernel.chip)
    if space is None:
        return kernel
    sampled_tiles = {sample.tile for sample in kernel.samples}
    picks = [one for one in ranked(space, kernel.chip, forest=forest)[:count] if one.tile not in sampled_tiles]
    timings = [(one, timed(space, one.tile, kernel.chip, job.name)) for one in picks]
    found = [Sample(one.tile, one.work, cycles, at_random=False) for one, cycles in timings if cycles]
    return replace(kernel, samples=(*kernel.samples, *found))


class _Inherited:
    """What forked processes find where it is: IR need not be sent."""

    work: Any = None
    jobs: list[Any] = []  # noqa: RUF012  set before the fork, and only then


def _in_process(index: int) -> Any:
    return _Inherited.work(_Inherited.jobs[index])


def in_processes(work: Any, jobs: list[Any], processes: int) -> Iterator[Any]:
    """``work`` of each job, in order."""
    if processes < 2:
        yield from map(work, jobs)
        return
    _Inherited.work, _Inherited.jobs = work, jobs
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap(_in_process, range(len(jobs)))
