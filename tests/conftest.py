"""What holds for every test."""

import os
from collections.abc import Iterator

import pytest

from compiler.processors import processors


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests leave the kernels of whoever runs them alone, in this process and in those it starts. Processes that run
    tests at the same time share what they compile: each has a folder of its own in one of all.
    """
    own = tmp_path_factory.getbasetemp()
    folder = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_CACHE", str(folder / "cache"))
        yield


@pytest.fixture(autouse=True, scope="session")
def _own_processor() -> None:
    """Where as many processes run tests as there are processors, each keeps to one: none of them starts others for
    kernels, which would only be in the way of its neighbours.
    """
    worker, count = os.environ.get("PYTEST_XDIST_WORKER", ""), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if worker and processors() <= count and hasattr(os, "sched_setaffinity"):
        mine = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {mine[int(worker.removeprefix("gw")) % len(mine)]})


@pytest.fixture
def forget_operators() -> Iterator[None]:
    """What a test declares or loads is gone after it."""
    from compiler.operators import loading, registry

    registry.load_builtins()
    before = registry.declared()
    yield
    registry.restore(before)
    loading.forget_files()


@pytest.fixture
def first_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels have the first tile of their ranking, and a cache of their own: for tests of what programs compute, which
    need not be the fastest.
    """
    monkeypatch.setattr("compiler.kernels.rivals_of", lambda *_: [])
    monkeypatch.setenv("TILEWRIGHT_CACHE", f"{os.environ['TILEWRIGHT_CACHE']}-first-tiles")


@pytest.fixture
def as_planned(first_tiles: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Besides, models run as the graph passes plan it, or a schedule says: nothing else is compiled and compared."""
    from compiler.programs import compilation_of

    monkeypatch.setattr("compiler.driver.in_one_piece", compilation_of)
    monkeypatch.setattr("compiler.driver._worth_sections", lambda _: None)
    monkeypatch.setenv("TILEWRIGHT_CACHE", f"{os.environ['TILEWRIGHT_CACHE']}-as-planned")
