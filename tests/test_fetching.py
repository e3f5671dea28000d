"""What a model is given comes to LLB while kernels work on what came before, where these have DDR to spare."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler import driver, fetching
from compiler.codegen import KernelCode, PlacedKernel
from compiler.codegen.fetches import Fetch
from compiler.compilation import Compilation
from compiler.cost import Prediction
from compiler.driver import compile_model
from compiler.fetching import (
    FETCHES,
    LEAST_BYTES,
    PATH,
    SPARE_SHARE,
    Brought,
    Traffic,
    brought,
    is_whole,
    wanted,
    with_fetches,
)
from compiler.options import Options
from compiler.pipeline import Observer
from compiler.runtime.loaded import load
from compiler.target import Chip, load_chip
from compiler.target.chip import Path_
from tests.codegen.kernels import place
from tests.codegen.test_link import added

TW1 = load_chip("tw1")
SMALL = replace(TW1, memory=replace(TW1.memory, llb_bytes=1 << 20))


def model() -> bytes:
    """Convolutions over images of which few fit in LLB."""
    rng = np.random.default_rng(2)
    shapes = {"w": (32, 3, 3, 3), "v": (32, 32, 3, 3), "u": (16, 32, 3, 3)}
    weights = {name: rng.standard_normal(shape).astype(np.float32) / 16 for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "v"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Conv", ["d", "v"], ["e"], pads=[1] * 4),
        helper.make_node("Conv", ["e", "u"], ["f"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["f"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (16, 3, 128, 128))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (16, 16, 1, 1))],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())


def compiled(without: str = "") -> Compilation:
    observer = Observer(without=frozenset({without} - {""}))
    return compile_model(model(), SMALL, Options(precision="fp16", jobs=1), observer)


@pytest.fixture(scope="module")
def both() -> tuple[Compilation, Compilation]:
    """With fetches, and without."""
    return compiled(), compiled(FETCHES)


def test_images_are_brought_while_others_are_worked_on(both: tuple[Compilation, Compilation]) -> None:
    one, other = both
    assert one.kernels.fetched and not other.kernels.fetched
    assert one.simulated_cycles is not None and other.simulated_cycles is not None
    assert one.simulated_cycles < 0.98 * other.simulated_cycles
    sizes = [one.kernels.buffers.declared[name].size_bytes for name in one.kernels.fetched]
    (brought,), (nothing,) = ([linked.fetched_bytes for linked in each.linked] for each in both)
    assert nothing == 0 < brought <= one.clusters * sum(sizes)
    listed = [line for segment in one.model.segments for line in segment.listing if line.endswith("to LLB")]  # type: ignore[union-attr]
    assert len(listed) >= len(one.kernels.fetched)


def test_results_are_the_same(both: tuple[Compilation, Compilation]) -> None:
    images = np.random.default_rng(3).standard_normal((16, 3, 128, 128)).astype(np.float32)
    first, second = (load(one.model).run({"x": images}, hazards=True)["y"] for one in both)
    np.testing.assert_allclose(first, second, rtol=2**-9, atol=2**-12)  # readers have other tiles, and so other sums


def test_what_was_fetched_is_fetched_again(
    both: tuple[Compilation, Compilation], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = both
    monkeypatch.setattr(driver, "_searched", None)
    second = compiled()
    assert first.kernels.fetched == second.kernels.fetched
    assert first.decisions == second.decisions
    assert [s.program for s in first.model.segments] == [s.program for s in second.model.segments]  # type: ignore[union-attr]


CHIP = TW1.one_cluster()
SIZE = 512 * 256
RATE = CHIP.bandwidth.ddr_bytes_per_kilocycle / 1000


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> list[PlacedKernel]:
    """Three kernels that compute and leave DDR alone, and one that reads a given ``x`` and waits for DDR."""
    uses = [(added(8, 0.0, 8), ("t", "u")), (added(512, 1.0, 8), ("x", "o"))]
    (slow, reader), _ = place(uses, CHIP, {"t": "input", "u": "output", "x": "input", "o": "output"})
    took = {slow.code.name: (round(SIZE / RATE), 0), reader.code.name: (round(SIZE / RATE), SIZE)}

    def predicted(code: KernelCode, chip: Chip) -> Prediction:
        cycles, moved = took[code.name]
        return Prediction(cycles, {}, moved, 0, 0)

    monkeypatch.setattr(fetching, "predict", predicted)
    return [*(replace(slow, name=f"k{number}") for number in range(3)), reader]


def asked(
    placed: Sequence[PlacedKernel], chip: Chip = CHIP, size: int = SIZE, given: str = "x", *, shared: bool = False
) -> list[str]:
    return wanted(placed, {"x": size, "t": 512, "u": 512, "o": SIZE}, given.__eq__, (), Traffic(chip), shared=shared)


def fetched(kernels: list[PlacedKernel], common: Collection[str] = ()) -> list[PlacedKernel]:
    copies, sizes = {"x": "c"}, {"x": SIZE}
    parts = brought(kernels, copies, sizes, common, Traffic(CHIP))
    assert is_whole(parts, kernels, copies, sizes)
    return with_fetches(kernels, copies, parts, common)


@pytest.mark.parametrize("parts", [
    (),
    (Brought("x", 0, 0, SIZE - 1),),
    (Brought("x", 0, 0, 64), Brought("x", 1, 128, SIZE)),
    (Brought("x", 3, 0, SIZE),),  # its reader
    (Brought("x", -1, 0, SIZE),),
    (Brought("x", 0, 0, SIZE), Brought("x", 1, SIZE, SIZE)),
    (Brought("x", 0, 0, SIZE), Brought("z", 0, 0, SIZE)),
])  # fmt: skip
def test_parts_that_are_not_the_whole_are_known(placed: list[PlacedKernel], parts: tuple[Brought, ...]) -> None:
    kernels = [*placed[:3], replace(placed[3], arguments=("c", "o"))]
    assert not is_whole(parts, kernels, {"x": "c"}, {"x": SIZE})
    assert is_whole((Brought("x", 2, 64, SIZE), Brought("x", 0, 0, 64)), kernels, {"x": "c"}, {"x": SIZE})


def test_kernels_with_time_to_spare_bring_the_last_bytes_last(placed: list[PlacedKernel]) -> None:
    assert asked(placed) == ["x"]
    reader = replace(placed[3], arguments=("c", "o"))
    found = fetched([*placed[:3], reader])
    parts = [(fetch.low, fetch.high) for kernel in reversed(found) for fetch in kernel.fetches]
    assert len(parts) == 3 and parts[0][1] == SIZE and parts[-1][0] == 0
    assert all(low == high for (low, _), (_, high) in pairwise(parts))
    assert all(low % CHIP.transfer.ddr_line_bytes == 0 for low, _ in parts)
    assert all(abs(high - low - SPARE_SHARE * SIZE) <= CHIP.transfer.ddr_line_bytes for low, high in parts[:2])


def test_what_cores_bring_to_llb_together_is_asked_for_as_well(placed: list[PlacedKernel]) -> None:
    """Their kernel reads it from DDR only; made for LLB it is another one."""
    reader = placed[3]
    fixed = replace(reader.code, touched=replace(reader.code.touched, movable=()))
    kernels = [*placed[:3], replace(reader, code=fixed)]
    assert asked(kernels) == []
    assert asked(kernels, shared=True) == ["x"]


def test_clusters_that_are_sent_the_same_need_less_time_for_it(placed: list[PlacedKernel]) -> None:
    reader = replace(placed[3], arguments=("c", "o"))
    found = fetched([*placed[:3], reader], {"x"})
    assert [kernel.fetches for kernel in found] == [(), (), (Fetch("x", "c", 0, SIZE, is_common=True),), ()]


NOT_WORTH_WHILE: dict[str, Callable[[list[PlacedKernel]], list[str]]] = {
    "it is read twice": lambda placed: asked([*placed, replace(placed[3], name="again")]),
    "a kernel writes it": lambda placed: asked(placed, given=""),
    "its reader is the first": lambda placed: asked(placed[::-1]),
    "nobody has the time": lambda placed: asked(placed[2:]),
    "its reader does not wait": lambda placed: asked(placed, given="t"),
    "it is small": lambda placed: asked(placed, size=LEAST_BYTES - 1),
    "paths are slow": lambda placed: asked(placed, with_path(replace(CHIP.path[PATH], bytes_per_cycle=8))),
    "there is no path": lambda placed: asked(placed, with_path(None)),
    "clusters have no LLB in common": lambda placed: asked(placed, TW1),
}


def with_path(path: Path_ | None) -> Chip:
    others = {name: each for name, each in CHIP.path.items() if name != PATH}
    return replace(CHIP, path=others if path is None else others | {PATH: path})


@pytest.mark.parametrize("why", NOT_WORTH_WHILE)
def test_it_is_left_where_it_is_where(why: str, placed: list[PlacedKernel]) -> None:
    assert NOT_WORTH_WHILE[why](placed) == []


def test_what_nobody_has_the_time_for_comes_right_before_its_reader(placed: list[PlacedKernel]) -> None:
    reader = replace(placed[3], arguments=("c", "o"))
    found = fetched([placed[2], reader])
    assert [kernel.fetches for kernel in found] == [(Fetch("x", "c", 0, SIZE),), ()]
