"""What was decided for a model is kept, and a second compilation searches for nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler import driver, kernel_pool
from compiler.compilation import Compilation
from compiler.decisions import Decisions, Memory
from compiler.driver import compile_model
from compiler.fetching import Brought
from compiler.frontend import import_model
from compiler.options import Options
from compiler.pipeline import Observer
from compiler.target import load_chip
from passes.graph import divide_batch

TW1 = load_chip("tw1")


@pytest.fixture(scope="module", autouse=True)
def _all_clusters() -> Iterator[None]:
    """One alone would have all of the model in its LLB, and less to decide."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(divide_batch, "cycles_on_chip", lambda module, chip: float("inf"))
        yield


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Compilation, Path]:
    """A first compilation, and the cache that it leaves."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_CACHE", str(folder))
        return compiled(), folder


@pytest.fixture
def first(searched: tuple[Compilation, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compilation:
    """It, with a copy of its cache."""
    found, folder = searched
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(shutil.copytree(folder, tmp_path / "cache")))
    return found


def model() -> bytes:
    """Two convolutions that share a kernel, and a product whose sum is taken in parts."""
    rng = np.random.default_rng(1)
    shapes = {"w": (64, 16, 3, 3), "v": (64, 64, 1, 1), "f": (16384, 64)}
    weights = {name: rng.standard_normal(shape).astype(np.float32) / 32 for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "v"], ["c"]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "f"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 16, 16, 16))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 64))],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())


def compiled(options: Options | None = None, observer: Observer | None = None) -> Compilation:
    return compile_model(model(), TW1, options or Options(precision="fp16", jobs=1), observer)


def no_search(*_: Any, **__: Any) -> Compilation:
    raise AssertionError("it searches")


def memory() -> Memory:
    options = Options(precision="fp16")
    found = Memory.of(import_model(model(), precision="fp16"), TW1, options, Observer())
    assert found is not None
    return found


def listings(compilation: Compilation) -> list[str]:
    return [segment.listing for segment in compilation.model.segments]  # type: ignore[union-attr]


def test_a_second_compilation_does_not_search_and_makes_the_same(
    first: Compilation, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert first.decisions.together
    assert any(first.decisions.split)
    monkeypatch.setattr(driver, "_searched", no_search)
    again = compiled()
    assert again.decisions == first.decisions
    assert listings(again) == listings(first)
    assert again.roads == first.roads


@pytest.mark.usefixtures("first")
def test_a_second_compilation_compiles_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of several calls know of as much room as when they were compared with those of single ones."""

    def no_kernel(*_: Any) -> Any:
        raise AssertionError("it compiles")

    monkeypatch.setattr(kernel_pool, "compile_kernel", no_kernel)
    assert compiled().decisions.together


def test_who_asks_behind_a_compilation_is_told_of_its_kernels(first: Compilation) -> None:
    (kernels,) = driver.last_plans(model(), TW1, Options(precision="fp16", jobs=1))
    assert [use.key for use in kernels.uses()] == [use.key for use in first.kernels.uses()]
    (others,) = driver.last_plans(model(), TW1, Options(precision="fp16", jobs=1, cache=False))
    assert not others.together


@pytest.mark.parametrize(
    "changed",
    [
        lambda known: replace(known, together=(("no", "call"),)),
        lambda known: replace(known, split=()),
        lambda known: replace(known, split=(99,) * len(known.split)),
        lambda known: replace(known, fetched=(Brought("no buffer", 0, 0, 1),)),
        lambda known: replace(known, fetched=(Brought("t0", 0, 0, 1),)),  # which a kernel writes
        lambda known: {**vars(known), "way": None, "fetched": "none"},
        lambda known: {**vars(known), "way": None, "fetched": [["w0", 1, 2]]},
        lambda known: {**vars(known), "way": None, "fetched": [["w0", "one", 2, 3]]},
        lambda known: {"bands": True},
        lambda known: {**vars(known), "way": None, "together": [1]},
        lambda known: {**vars(known), "way": None, "split": "none"},
        lambda known: {**vars(known), "way": [[0], "one"]},
        lambda known: [],
    ],
)
def test_what_is_not_of_this_model_is_searched_again(first: Compilation, changed: Callable[[Decisions], Any]) -> None:
    wrong, kept = changed(first.decisions), memory()
    if isinstance(wrong, Decisions):
        kept.keep(wrong)
    else:
        kept.cache.store_content(kept.key, wrong)
    again = compiled()
    assert again.decisions == first.decisions
    assert listings(again) == listings(first)


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize(
    ("options", "observer"),
    [
        (Options(precision="fp16", cache=False, jobs=1), Observer()),
        (Options(precision="fp16", jobs=1), Observer(watchers=[lambda *_: None])),
        (Options(precision="fp16", jobs=1), Observer(without=frozenset({"keep-in-l1"}))),
    ],
)
def test_who_asks_for_no_cache_or_watches_is_shown_the_search(
    monkeypatch: pytest.MonkeyPatch, options: Options, observer: Observer
) -> None:
    monkeypatch.setattr(driver, "_searched", no_search)
    with pytest.raises(AssertionError, match="it searches"):
        compiled(options, observer)


@pytest.mark.usefixtures("first")
def test_other_options_are_decided_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_searched", no_search)
    with pytest.raises(AssertionError, match="it searches"):
        compiled(Options(jobs=1))
