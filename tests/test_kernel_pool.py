"""Kernels compiled one after another, in processes, or not at all because the cache has them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tvm import te, tirx

from compiler import kernel_pool
from compiler.codegen.storage import to_tables
from compiler.kernel_cache import KernelCache
from compiler.kernel_pool import LEAST_PER_PROCESS, Job, Result, WorkerDied, compile_jobs
from compiler.kernels import Kernel, NoRoadLeft, Road
from compiler.pipeline import Observer, Stopped
from compiler.target import load_chip

TINY = load_chip("tiny")


def plus_one(extent: int) -> Any:
    x = te.placeholder((extent,), "float32", "x")
    return te.create_prim_func([x, te.compute((extent,), lambda i: x[i] + tirx.const(1, "float32"), "y")])


def jobs(count: int) -> list[Job]:
    return [Job(plus_one(20 + number), "elementwise", f"kernel{number}") for number in range(count)]


def contents(results: list[Result]) -> list[Any]:
    assert all(isinstance(result, Kernel) for result in results)
    return [(k.name, k.tile, k.roads, k.statistics, to_tables(k.code)) for k in results if isinstance(k, Kernel)]


def test_processes_give_what_one_process_gives_in_order_and_with_its_times() -> None:
    wanted = jobs(2 * LEAST_PER_PROCESS)
    alone, together = Observer(), Observer()
    expected = contents(compile_jobs(wanted, TINY, alone, None, 1))
    assert contents(compile_jobs(wanted, TINY, together, None, 2)) == expected
    assert [name for name, *_ in expected] == [job.name for job in wanted]
    assert set(alone.seconds) == set(together.seconds)
    assert min(together.seconds.values()) > 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not tell a process so")
def test_processes_end_with_the_one_that_needs_them(tmp_path: Path) -> None:
    """However it ends: they would keep memory, and what it wrote to open."""
    code = f"""
import os, pathlib, time
from compiler.kernel_pool import in_processes

def work(index):
    pathlib.Path({str(tmp_path)!r}, str(os.getpid())).touch()
    time.sleep(600)

list(in_processes(work, 2, 2, "slept"))
"""
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        until(lambda: len(list(tmp_path.iterdir())) == 2)
        parent.kill()
    workers = [int(path.name) for path in tmp_path.iterdir()]
    until(lambda: not any(Path(f"/proc/{worker}/stat").exists() for worker in workers))


def until(holds: Callable[[], bool]) -> None:
    for _ in range(600):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError("it does not come")


def test_a_short_kernel_is_first_and_long_ones_are_not_last() -> None:
    x = te.placeholder((20,), "float32", "x")
    sum_ = te.compute((20,), lambda i: x[i] + x[i], "sum")
    of_buffers = {
        2: te.create_prim_func([x, te.compute((20,), lambda i: x[i] + x[i], "y")]),
        3: te.create_prim_func([x, sum_, te.compute((20,), lambda i: sum_[i] + x[i], "y")]),
    }
    mixed = [Job(of_buffers[count], "elementwise", "") for count in (3, 2, 2, 3)]
    assert kernel_pool._shared_out([0, 1, 2, 3], mixed) == [2, 0, 3, 1]


@pytest.mark.parametrize(("schedule", "processes"), [("chain", 2), ("elementwise", 1)])
def test_few_kernels_are_shared_out_where_each_takes_long(
    monkeypatch: pytest.MonkeyPatch, schedule: str, processes: int
) -> None:
    counts, compiled = list[int](), kernel_pool._compiled
    monkeypatch.setattr(kernel_pool, "_compiled", lambda *given: counts.append(given[-1]) or compiled(*given[:-1], 1))
    compile_jobs([Job(each.func, schedule, each.name) for each in jobs(2)], TINY, Observer(), None, 2)
    assert counts == [processes]


@pytest.mark.parametrize("is_warm", [True, False])
def test_the_first_kernel_is_not_waited_for_where_one_was_compiled_before(
    monkeypatch: pytest.MonkeyPatch, is_warm: bool
) -> None:
    compile_one = kernel_pool.compile_kernel

    def named(func: Any, schedule: str, chip: Any, observer: Observer, name: str, *searched: int) -> Kernel:
        return replace(compile_one(func, schedule, chip, observer, name, *searched), name=str(os.getpid()))

    monkeypatch.setattr(kernel_pool, "compile_kernel", named)
    monkeypatch.setattr(kernel_pool._Inherited, "is_warm", is_warm)
    here = str(os.getpid())
    names = [result.name for result in compile_jobs(jobs(2 * LEAST_PER_PROCESS), TINY, Observer(), None, 2)]
    assert names.count(here) == (0 if is_warm else 1)


def test_what_the_cache_has_is_not_compiled(tmp_path: Path) -> None:
    found = KernelCache(tmp_path)
    first = compile_jobs(jobs(2), TINY, Observer(), found, 1)
    observer = Observer()
    again = compile_jobs(jobs(2), TINY, observer, found, 1)
    assert contents(again) == contents(first)
    assert not observer.seconds
    assert (found.hits, found.misses, len(list(found.entries()))) == (2, 2, 2)


def test_known_and_unknown_kernels_come_back_in_order(tmp_path: Path) -> None:
    found = KernelCache(tmp_path)
    wanted = jobs(5)
    compile_jobs([wanted[1], wanted[3]], TINY, Observer(), found, 1)
    results = compile_jobs(wanted, TINY, Observer(), found, 1)
    assert [result.name for result in results] == [job.name for job in wanted]
    assert found.hits == 2


@pytest.mark.parametrize("watched", [{"watchers": [lambda *_: None]}, {"without": frozenset({"loop-shift"})}])
def test_who_watches_sees_every_kernel_and_leaves_the_cache_alone(tmp_path: Path, watched: dict[str, Any]) -> None:
    found = KernelCache(tmp_path)
    compile_jobs(jobs(1), TINY, Observer(), found, 1)
    observer = Observer(**watched)
    compile_jobs(jobs(2), TINY, observer, found, 1)
    assert observer.seconds
    assert len(list(found.entries())) == 1


@pytest.mark.parametrize("without", [{"overlap", "llb-placement"}, {"schedule-bands"}, {"schedule-graph"}])
def test_what_no_kernel_knows_of_changes_none(tmp_path: Path, without: set[str]) -> None:
    found = KernelCache(tmp_path)
    compile_jobs(jobs(2), TINY, Observer(), found, 1)
    compile_jobs(jobs(2), TINY, Observer(without=frozenset(without)), found, 1)
    assert found.hits == 2


def test_a_stop_ends_it_at_the_first_kernel() -> None:
    observer = Observer(stop_after="lower-blocks")
    with pytest.raises(Stopped):
        compile_jobs(jobs(2 * LEAST_PER_PROCESS), TINY, observer, None, 2)
    assert observer.kernel == "kernel0"


@pytest.mark.parametrize("processes", [1, 2])
def test_a_kernel_without_a_road_says_what_was_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, processes: int
) -> None:
    compile_one = kernel_pool.compile_kernel

    def sometimes(func: Any, schedule: str, chip: Any, observer: Observer, name: str, *searched: int) -> Kernel:
        if name == "kernel1":
            raise NoRoadLeft(name, [Road("a tile", "too large")])
        return compile_one(func, schedule, chip, observer, name, *searched)

    monkeypatch.setattr(kernel_pool, "compile_kernel", sometimes)
    found = KernelCache(tmp_path)
    results = compile_jobs(jobs(2 * LEAST_PER_PROCESS), TINY, Observer(), found, processes)
    (failed,) = [result for result in results if isinstance(result, NoRoadLeft)]
    assert results.index(failed) == 1
    assert (failed.name, failed.roads) == ("kernel1", (Road("a tile", "too large"),))
    assert len(list(found.entries())) == len(results) - 1


def test_a_process_that_dies_is_an_error_and_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    here, compile_kernel = os.getpid(), kernel_pool.compile_kernel

    def die(*arguments: Any) -> Kernel:
        if os.getpid() != here:  # the first kernel is compiled here
            os.kill(os.getpid(), signal.SIGKILL)
        return compile_kernel(*arguments)

    monkeypatch.setattr(kernel_pool, "compile_kernel", die)
    with pytest.raises(WorkerDied, match="--jobs 1") as caught:
        compile_jobs(jobs(2 * LEAST_PER_PROCESS), TINY, Observer(), None, 2)
    assert caught.value.exit_code == 70


def test_few_kernels_are_not_worth_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_pool, "ProcessPoolExecutor", None)
    assert len(compile_jobs(jobs(2 * LEAST_PER_PROCESS - 1), TINY, Observer(), None, 8)) == 2 * LEAST_PER_PROCESS - 1
    assert compile_jobs([], TINY, Observer(), None) == []


def test_a_worker_of_a_pool_compiles_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a daemon, and these may not start processes."""
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
    wanted = jobs(2 * LEAST_PER_PROCESS)
    assert len(contents(compile_jobs(wanted, TINY, Observer(), None, 2))) == len(wanted)


def test_somebody_is_told_how_far_it_is() -> None:
    told: list[tuple[int, int, str]] = []
    observer = Observer(progress=lambda *given: told.append(given))
    compile_jobs(jobs(2), TINY, observer, None, 1)
    assert told == [(0, 2, ""), (1, 2, "kernel0"), (2, 2, "kernel1")]
