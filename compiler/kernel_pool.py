"""Many kernels at once: what the cache has, and the rest in parallel processes."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

from compiler.codegen.link import LLB_PLACEMENT, OVERLAP
from compiler.codegen.storage import from_tables, to_tables
from compiler.errors import Problem, TilewrightError
from compiler.kernel_cache import KernelCache, Key, key_of
from compiler.kernels import Kernel, NoRoadLeft, compile_kernel
from compiler.pipeline import IN_PARTS, Observer
from compiler.processors import processors
from compiler.sim.collector import uncollected
from compiler.target import Chip

# A second process costs a tenth of a second to fork and to send results from: as much as a simple kernel or two. By
# class, how many of these one of others takes.
LEAST_PER_PROCESS = 4
EFFORTS = {
    "chain": 8, "pair": 8, "prepared": 8, "pooled": 6, "products": 6, "convolution": 4, "attention": 4, "matmul": 3,
}  # fmt: skip
_PR_SET_PDEATHSIG = 1  # of Linux's <sys/prctl.h>
NOT_OF_KERNELS = {OVERLAP, LLB_PLACEMENT, *IN_PARTS}  # what may be left out without any kernel being another one


class WorkerDied(TilewrightError):
    """A process that compiled kernels ended without an answer: a bug below Python."""


@dataclass(frozen=True)
class Job:
    """A kernel to compile: its PrimFunc, the class of its schedule, and a name for messages."""

    func: Any
    schedule: str
    name: str
    tries: int | None = None  # of tiles beside the first, where somebody says how many
    times: int = 1  # the usual cycles that a kernel has to take for as many tries, where it is one of many

    def key(self, chip: Chip) -> Key:
        """Of its kernel in the cache."""
        return key_of(self.func, self.schedule, chip, self.tries, self.times)

    def compiled(self, chip: Chip, observer: Observer) -> Kernel:
        return compile_kernel(self.func, self.schedule, chip, observer, self.name, self.tries, self.times)


Result = Kernel | NoRoadLeft


def compile_jobs(
    jobs: Sequence[Job], chip: Chip, observer: Observer, cache: KernelCache | None, processes: int | None = None
) -> list[Result]:
    """A kernel for each job, or what was tried for it. Somebody who watches the passes gets all of them, in order."""
    watched = bool(observer.watchers or observer.stop_after or observer.without - NOT_OF_KERNELS)
    keys = [None if watched or cache is None else job.key(chip) for job in jobs]
    found: dict[int, Result] = {}
    for index, (job, key) in enumerate(zip(jobs, keys, strict=True)):
        kernel = None if key is None or cache is None else cache.load(key, job.name)
        if kernel is not None:
            found[index] = kernel
    missing = [index for index in range(len(jobs)) if index not in found]
    done = len(jobs) - len(missing)
    observer.report(done, len(jobs))
    efforts = sum(EFFORTS.get(jobs[index].schedule, 1) for index in missing)
    count = 1 if watched else processes_for(min(efforts // LEAST_PER_PROCESS, len(missing)), processes)
    if count > 1:
        missing = _shared_out(missing, jobs)
    for index, result in zip(missing, _compiled([jobs[i] for i in missing], chip, observer, count), strict=True):
        found[index] = result
        done += 1
        observer.report(done, len(jobs), jobs[index].name)
        _remember(cache, keys[index], result)
    return [found[index] for index in range(len(jobs))]


def _shared_out(indices: list[int], jobs: Sequence[Job]) -> list[int]:
    """First a short job, for it may have to run before there are other processes; then the longest first, so that all
    end at about the same time.

    Kernels of many operators take long, and parts that are put together: both show in how many buffers they have.
    """
    longest_first = sorted(indices, key=lambda index: -len(jobs[index].func.params))
    return [longest_first[-1], *longest_first[:-1]]


def _remember(cache: KernelCache | None, key: Key | None, result: Result) -> None:
    if cache is not None and key is not None and isinstance(result, Kernel):
        cache.store(key, result)


def _compiled(jobs: list[Job], chip: Chip, observer: Observer, processes: int) -> Iterator[Result]:
    if processes < 2:
        for job in jobs:
            yield _compile(job, chip, observer)
        return
    # What the first kernel loads (compiled cost functions, patterns of the table) the other processes have, too; and
    # they find the jobs where they are: IR need not be sent.
    while jobs and (len(jobs) == 1 or not _Inherited.is_warm):
        yield _compile(jobs[0], chip, observer)
        jobs = jobs[1:]
    if not jobs:
        return
    names = ", ".join(job.name for job in jobs[:3])
    for tables in in_processes(lambda index: _tables(jobs[index], chip), len(jobs), processes, f"compiled {names}..."):
        for name, spent in tables["seconds"].items():
            observer.seconds[name] = observer.seconds.get(name, 0.0) + spent
        yield _received(tables)


def processes_for(most: int, wanted: int | None) -> int:
    """How many work on what ``most`` could: as many as are wanted, or one on each processor. A worker of somebody's own
    pool may not start processes.
    """
    alone = multiprocessing.current_process().daemon or "fork" not in multiprocessing.get_all_start_methods()
    return 1 if alone else max(1, min(wanted or processors(), most))


def in_processes(work: Callable[[int], Any], count: int, processes: int, what: str) -> Iterator[Any]:
    """``work(0)``, ``work(1)``, ... as far as ``count``, in so many forked processes, which find all that it needs
    where it is; ``what`` one is said to have done that dies.
    """
    _Inherited.work = work
    gc.freeze()  # what the processes inherit is none of their garbage: they need not look through it after each kernel
    try:
        context, parent = multiprocessing.get_context("fork"), os.getpid()
        with ProcessPoolExecutor(processes, context, _end_with, (parent,)) as pool:
            yield from pool.map(_inherited_work, range(count))
    except BrokenProcessPool as error:
        hint = "compile again with --jobs 1 to see which; please report it"
        raise WorkerDied(Problem("TW7003", f"a process that {what} died", hint=hint)) from error
    finally:
        gc.unfreeze()
        _Inherited.work = None


class _Inherited:
    """What a forked process inherits."""

    is_warm = False  # whether a kernel was compiled before
    work: Callable[[int], Any] | None = None  # set before the fork, and only then


def _end_with(parent: int) -> None:
    """Let this process end when its parent does, however that ends: nobody would take what it makes."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was faster
        os._exit(1)


def _inherited_work(index: int) -> Any:
    if _Inherited.work is None:
        raise RuntimeError("not forked")
    return _Inherited.work(index)


def _compile(job: Job, chip: Chip, observer: Observer) -> Result:
    try:
        _Inherited.is_warm = True
        with uncollected():  # while tens of thousands of its tiles are alive
            return job.compiled(chip, observer)
    except NoRoadLeft as error:
        return error
    finally:
        gc.collect(0)  # what came since the last kernel, whoever else lets the collector rest


def _tables(job: Job, chip: Chip) -> dict[str, Any]:
    """A kernel as a process can send it."""
    observer = Observer()
    result = _compile(job, chip, observer)
    if isinstance(result, NoRoadLeft):
        return {"seconds": observer.seconds, "name": result.name, "roads": result.roads}
    rest = {"name": result.name, "tile": result.tile, "roads": result.roads, "statistics": result.statistics}
    return {"seconds": observer.seconds, "code": to_tables(result.code), **rest}


def _received(tables: dict[str, Any]) -> Result:
    if "code" not in tables:
        return NoRoadLeft(tables["name"], list(tables["roads"]))
    code = from_tables(tables["code"])
    return Kernel(tables["name"], code, tables["tile"], tables["roads"], tables["statistics"])
