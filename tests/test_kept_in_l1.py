"""Results that stay in L1: where that is faster, where a schedule says so, and where it cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import compiler
from compiler import driver, kept_in_l1, one_piece
from compiler.compilation import Compilation
from compiler.errors import InvalidError
from compiler.kept_in_l1 import SWITCH
from compiler.kernel_uses import Use
from compiler.model_kernels import ModelKernels
from compiler.options import Options
from compiler.pipeline import Observer
from compiler.schedule.chains import PAIR, chains
from compiler.schedule.files import parse_schedule
from compiler.schedule.noted import members_of
from compiler.target import load_chip
from compiler.tir.near import room_bytes
from passes.graph import divide_batch
from tests.test_driver import model, node

RNG = np.random.default_rng(11)
SHAPE = (1, 16, 48, 48)


def weights(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32) / 8


WEIGHTS = {"w": weights(64, 16, 1, 1), "d": weights(64, 1, 3, 3), "p": weights(16, 64, 1, 1)}
NODES = [
    node("Conv", "x w", "a"),
    node("Relu", "a", "b"),
    node("Conv", "b d", "c", pads=[1, 1, 1, 1], group=64),
    node("Relu", "c", "e"),
    node("Conv", "e p", "f"),
    node("Add", "f x", "y"),
]
SOURCE = model(NODES, {"x": SHAPE}, ["y"], **WEIGHTS)
LINES = ['"b" = 1  # a b', '"e" = 1  # c e', '"y" = 1  # f y']
PLAIN = "clusters = 1\n[pieces]\n" + "\n".join(LINES) + "\n"
KEPT = PLAIN.replace('"e" = 1', '"e" = { pieces = 1, in_l1 = true }')
LESS_BYTES = 65536
ALL_KEPT = KEPT.replace('"b" = 1', '"b" = { pieces = 1, in_l1 = true }')


def expected(source: bytes, x: np.ndarray) -> np.ndarray:
    return np.asarray(ReferenceEvaluator(onnx.load_from_string(source)).run(None, {"x": x})[0])


def test_what_is_faster_is_chosen_and_written_and_means_the_same(tmp_path: Path) -> None:
    artifact = compiler.compile(SOURCE, "tw1", precision="fp16")
    assert artifact.schedule.count("in_l1 = true") == 3 - len(artifact.report.kernels) > 0
    x = RNG.standard_normal(SHAPE).astype(np.float32)
    result = artifact.run({"x": x}, hazards=True)["y"]
    np.testing.assert_allclose(result, expected(SOURCE, x), rtol=1e-2, atol=2e-2)
    file = tmp_path / "schedule.toml"
    file.write_text(artifact.schedule)
    assert compiler.compile(SOURCE, "tw1", precision="fp16", schedule=file).schedule == artifact.schedule


def test_one_instruction_that_adds_and_cuts_off_is_not_thought_to_be_three() -> None:
    """Each operation by itself, an expansion and its depthwise convolution look slower as one kernel."""
    nodes = [
        node("Conv", "x v", "r"),
        node("Conv", "r w", "a"),
        node("Clip", "a low high", "b"),
        node("Conv", "b d", "c", pads=[1, 1, 1, 1], strides=[2, 2], group=96),
        node("Clip", "c low high", "e"),
        node("Conv", "e p", "y"),
    ]
    known = {"v": weights(24, 16, 1, 1), "w": weights(96, 24, 1, 1), "d": weights(96, 1, 3, 3)}
    known |= {"p": weights(32, 96, 1, 1), "low": np.float32(0), "high": np.float32(6)}
    source = model(nodes, {"x": (4, 16, 56, 56)}, ["y"], **known)
    artifact = compiler.compile(source, "tw1", precision="fp16")
    assert '"b" = { pieces = 1, in_l1 = true }' in artifact.schedule


def test_it_is_left_where_the_program_as_a_whole_would_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Compilation, "simulated_cycles", property(lambda found: -len(found.steps)))
    assert len(driver.compile_model(SOURCE, load_chip("tw1"), Options("fp16", cache=False)).steps) == 3


def test_it_is_tried_without_what_others_read_where_nothing_is_left_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kept_or_not = kept_in_l1.kept_in_l1

    def nothing_if_kept(kernels: ModelKernels, manual: None, *, kept: bool) -> ModelKernels:
        return kernels if kept else kept_or_not(kernels, manual, kept=kept)

    monkeypatch.setattr(one_piece, "kept_in_l1", nothing_if_kept)
    for others_read, steps in ((False, 3), (True, 2)):
        monkeypatch.setattr(one_piece, "others_read", lambda kernels, told=others_read: told)
        found = driver.compile_model(SOURCE, load_chip("tw1"), Options("fp16", cache=False))
        assert len(found.steps) == steps


def test_what_is_slower_in_the_program_than_when_it_was_compared_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    in_program, cycles = ModelKernels.with_together, ModelKernels.cycles

    def with_less_room(self: ModelKernels, chosen: Any) -> ModelKernels:
        other = in_program(self, chosen)
        other._jobs.rooms = dict.fromkeys(other._jobs.rooms, LESS_BYTES)
        return other

    def slower_with_less_room(self: ModelKernels, use: Use, *, simulated: bool) -> float:
        assert not simulated
        return 1e9 if room_bytes(use.job.func, self.chip) == LESS_BYTES else cycles(self, use)

    monkeypatch.setattr(ModelKernels, "with_together", with_less_room)
    monkeypatch.setattr(ModelKernels, "cycles", slower_with_less_room)
    chip, options, observer = load_chip("tw1"), Options("fp16", cache=False, jobs=1), Observer()
    kernels = driver.plan(SOURCE, chip, options, observer)
    assert kept_in_l1.kept_in_l1(kernels, None) is kernels
    monkeypatch.setattr(ModelKernels, "cycles", cycles)
    assert kept_in_l1.kept_in_l1(kernels, None) is not kernels


def test_ablations_leave_it_out() -> None:
    without = Observer(without=frozenset({SWITCH, driver.SECTIONS}))  # which pay where each call has a kernel
    compilation = driver.compile_model(SOURCE, load_chip("tw1"), Options("fp16"), without)
    assert len(compilation.steps) == 3


@pytest.mark.usefixtures("first_tiles")
@pytest.mark.parametrize("chip", ["tw1", "tw2", "tiny"])
def test_a_schedule_decides(chip: str) -> None:
    x = RNG.standard_normal(SHAPE).astype(np.float32)
    for text, kernels in ((PLAIN, 3), (KEPT, 2), (ALL_KEPT, 1)):
        if (chip, text) == ("tiny", ALL_KEPT):  # three rows of 64 channels are more than its L1
            continue
        artifact = compiler.compile(SOURCE, chip, schedule=parse_schedule(text))
        assert len(artifact.report.kernels) == kernels
        np.testing.assert_allclose(artifact.run({"x": x}, hazards=True)["y"], expected(SOURCE, x), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("changed", "line", "said"), [
    (('"y" = 1', '"y" = { pieces = 1, in_l1 = true }'), 5, "y cannot stay in L1: it is no convolution or product"),
    (('"e" = 1', '"e" = { pieces = 1, in_l1 = 1 }'), 4, "in_l1 of e must be true or false"),
])  # fmt: skip
def test_what_cannot_be_is_named(changed: tuple[str, str], line: int, said: str) -> None:
    with pytest.raises(InvalidError) as caught:
        schedule = parse_schedule(PLAIN.replace(*changed), "s.toml")
        driver.compile_model(SOURCE, load_chip("tw1"), Options("fp16", schedule=schedule))
    (found,) = caught.value.problems
    assert said in found.message
    assert found.place is not None
    assert found.place.line == line


def test_what_others_read_first_does_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    # One cluster alone would have all of it in LLB, where it hardly matters.
    monkeypatch.setattr(divide_batch, "cycles_on_chip", lambda module, chip: float("inf"))
    nodes = [*NODES[:4], node("MaxPool", "e", "z", kernel_shape=[2, 2]), NODES[4]]
    source = model(nodes, {"x": SHAPE}, ["f", "z"], **WEIGHTS)
    compilation = driver.compile_model(source, load_chip("tw1"), Options("fp16"))
    kept = compilation.module["main"].attrs["tw.in_l1"]
    assert [str(name) for name in kept] == ["b"]


BLOCK = [
    node("Conv", "x w", "a"),
    node("Add", "a z", "b"),
    node("Relu", "b", "r"),
    node("Conv", "r p", "c"),
    node("Relu", "c", "y"),
    node("Sigmoid", "r", "s"),
]
BLOCK_SHAPES = {"x": (4, 32, 28, 28), "z": (4, 128, 28, 28)}
BLOCK_SCHEDULE = 'clusters = 1\n[pieces]\n"r" = { pieces = 1, in_l1 = true }\n"y" = 1\n"s" = 1\n'


def block(nodes: Any = BLOCK, results: Any = ("y", "s")) -> bytes:
    return model(nodes, BLOCK_SHAPES, [*results], w=weights(128, 32, 1, 1), p=weights(32, 128, 1, 1))


@pytest.mark.usefixtures("first_tiles")
@pytest.mark.parametrize("chip", ["tw1", "tw2", "tiny"])
def test_what_others_read_may_stay_too_where_a_schedule_says_so(chip: str) -> None:
    x = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in BLOCK_SHAPES.items()}
    source = block()
    artifact = compiler.compile(source, chip, precision="fp16", schedule=parse_schedule(BLOCK_SCHEDULE, "s.toml"))
    assert len(artifact.report.kernels) == 2
    results = artifact.run(x, hazards=True)
    expected_ = ReferenceEvaluator(onnx.load_from_string(source)).run(None, x)
    for result, right in zip((results["y"], results["s"]), expected_, strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-2, atol=2e-2)


@pytest.mark.parametrize("chip", ["tw1", "tw2"])
def test_what_others_read_stays_too_where_that_is_faster(chip: str) -> None:
    """The end of a block goes to where the next one adds it; what widens it there has it in L1."""
    nodes = [node("Softmax", "x", "u", axis=1), node("Softmax", "z", "v", axis=1)]
    nodes += [node("Conv", "u w", "a"), node("Add", "a v", "b"), *BLOCK[2:5]]
    nodes += [node("MaxPool", name, f"{name}s", kernel_shape=[3, 3], strides=[2, 2]) for name in "yr"]
    shapes = {"x": (1, 96, 14, 14), "z": (1, 32, 14, 14)}
    source = model(nodes, shapes, ["ys", "rs"], w=weights(32, 96, 1, 1), p=weights(96, 32, 1, 1))
    compilation = driver.compile_model(source, load_chip(chip), Options("fp16", cache=False))
    assert [str(name) for name in compilation.module["main"].attrs["tw.in_l1"]] == ["r"]


@pytest.mark.parametrize(
    "nodes",
    [
        # what reads it first is no convolution, or one of which a place is no place of it
        [*BLOCK[:3], node("Sigmoid", "r", "s"), *BLOCK[3:5]],
        [*BLOCK[:3], node("Conv", "r p", "c", strides=[2, 2]), *BLOCK[4:]],
    ],
)
def test_what_others_read_does_not_stay_where_it_cannot(nodes: Any) -> None:
    kernels = driver.plan(block(nodes), load_chip("tw1"), Options("fp16"), Observer())
    assert [chain.names for chain in chains(kernels.module)] == []


def test_chains_of_calls_that_are_alike_are_thought_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    thought, least_cycles = list[Any](), kept_in_l1._least_cycles
    monkeypatch.setattr(kept_in_l1, "_least_cycles", lambda *given: thought.append(given) or least_cycles(*given))
    nodes, arrays, depth = list[Any](), dict[str, np.ndarray](), 8
    for at in range(depth):
        arrays[f"w{at}"] = weights(16, 16, 3, 3)
        nodes.append(node("Conv", f"x{at} w{at}", f"x{at + 1}", pads=[1, 1, 1, 1]))
    source = model(nodes, {"x0": SHAPE}, [f"x{depth}"], **arrays)
    plain = driver.plan(source, load_chip("tw1"), Options("fp16", jobs=1), Observer())
    kept_in_l1.kept_in_l1(plain, None)
    # The first reads what the model is given and the last makes its result; those between them are alike. So there are
    # three kinds of two calls and three of three, where there are seven and six.
    assert 0 < len(thought) <= 6


SIDES = {"w": weights(32, 16, 3, 3), "d": weights(64, 32, 1, 1), "s": weights(64, 16, 1, 1), "v": weights(64, 64, 1, 1)}
RESIDUAL = [
    node("Conv", "x w", "a", pads=[1, 1, 1, 1], strides=[2, 2]),
    node("Relu", "a", "b"),
    node("Conv", "b d", "c"),
    node("Conv", "x s", "e", strides=[2, 2]),
    node("Add", "e c", "f"),
    node("Relu", "f", "y"),
]
ADDED = model(RESIDUAL, {"x": SHAPE}, ["y"], **{name: SIDES[name] for name in "wds"})
ADDED_LINES = ['"b" = 1', '"c" = {}', '"y" = 1']


def added_schedule(*, in_l1: bool) -> str:
    kept = "{ pieces = 1, in_l1 = true }" if in_l1 else "1"
    return "clusters = 1\n[pieces]\n" + "\n".join(ADDED_LINES).format(kept) + "\n"


@pytest.mark.usefixtures("first_tiles")
@pytest.mark.parametrize("chip", ["tw1", "tw2", "tiny"])
@pytest.mark.parametrize("in_l1", [False, True])
def test_a_result_that_is_added_to_another_one(chip: str, in_l1: bool) -> None:
    x = RNG.standard_normal(SHAPE).astype(np.float32)
    artifact = compiler.compile(ADDED, chip, precision="fp16", schedule=parse_schedule(added_schedule(in_l1=in_l1)))
    assert len(artifact.report.kernels) == 3 - in_l1
    result = artifact.run({"x": x}, hazards=True)["y"]
    np.testing.assert_allclose(result, expected(ADDED, x), rtol=1e-2, atol=2e-2)


def test_added_results_are_chosen_where_that_is_faster() -> None:
    artifact = compiler.compile(ADDED, "tw1", precision="fp16")
    assert '"c" = { pieces = 1, in_l1 = true }' in artifact.schedule
    assert len(artifact.report.kernels) == 2


def test_what_is_added_goes_before_the_feature_map() -> None:
    """Both results are read by the last one only: it can share a kernel with one of them."""
    nodes = [
        node("Conv", "x s", "m"),
        node("Relu", "m", "n"),
        node("Conv", "x s", "e"),
        node("Conv", "n v", "o"),
        node("Add", "o e", "y"),
    ]
    source = model(nodes, {"x": SHAPE}, ["y"], s=SIDES["s"], v=SIDES["v"])
    module = driver.plan(source, load_chip("tw1"), Options("fp16", cache=False), Observer()).module
    (found,) = chains(module)
    assert [members_of(module, call)[-1] for call in found.calls] == ["e", "y"]
    assert found.kind == PAIR


def test_a_kernel_that_adds_has_two_convolutions() -> None:
    text = added_schedule(in_l1=True).replace('"b" = 1', '"b" = { pieces = 1, in_l1 = true }')
    with pytest.raises(InvalidError, match="a kernel that adds results of convolutions has two of them"):
        compiler.compile(ADDED, "tw1", precision="fp16", schedule=parse_schedule(text))


# ---- products of matrices ----------------------------------------------------------------------------------------


def feed_forward(rows: int, *, features: int = 64, wide: int = 256) -> bytes:
    nodes = [
        node("MatMul", "x w", "a"),
        node("Add", "a b", "c"),
        node("Relu", "c", "d"),
        node("MatMul", "d v", "e"),
        node("Add", "e x", "y"),
    ]
    known = {"w": weights(features, wide), "b": weights(wide), "v": weights(wide, features)}
    return model(nodes, {"x": (4, rows, features)}, ["y"], **known)


PRODUCTS_APART = 'clusters = 1\n[pieces]\n"d" = 1  # a c d\n"y" = 1  # e y\n'


@pytest.mark.parametrize("chip", ["tw1", "tw2"])
def test_products_share_a_kernel_where_that_is_faster(chip: str) -> None:
    source, x = feed_forward(512), RNG.standard_normal((4, 512, 64)).astype(np.float32)
    together = compiler.compile(source, chip, precision="fp16")
    result = together.run({"x": x}, hazards=True)["y"]
    np.testing.assert_allclose(result, expected(source, x), rtol=1e-2, atol=2e-2)
    without = Observer(without=frozenset({SWITCH}))
    apart = driver.compile_model(source, load_chip(chip), Options("fp16", cache=False), without)
    assert len(apart.steps) == 2
    assert len(together.report.kernels) == 1
    assert together.report.cycles is not None
    assert together.report.cycles < apart.predicted_cycles


@pytest.mark.usefixtures("first_tiles")
def test_a_schedule_says_it_of_products() -> None:
    text = PRODUCTS_APART.replace('"d" = 1', '"d" = { pieces = 1, in_l1 = true }')
    source, x = feed_forward(24, wide=128), RNG.standard_normal((4, 24, 64)).astype(np.float32)
    artifact = compiler.compile(source, "tiny", schedule=parse_schedule(text))
    assert len(artifact.report.kernels) == 1
    np.testing.assert_allclose(artifact.run({"x": x}, hazards=True)["y"], expected(source, x), rtol=1e-3, atol=1e-3)


def test_products_that_another_one_reads_do_not() -> None:
    """What is between both is an output of the model, too."""
    nodes = [node("MatMul", "x w", "a"), node("MatMul", "a v", "y"), node("Relu", "a", "z")]
    source = model(nodes, {"x": (2, 32, 64)}, ["y", "z"], w=weights(64, 32), v=weights(32, 16))
    module = driver.plan(source, load_chip("tw1"), Options("fp16", cache=False), Observer()).module
    assert chains(module) == []


# ---- maps that are made on their way -----------------------------------------------------------------------------


def scaled(images: int) -> bytes:
    nodes = [
        node("Mul", "x g", "m"),
        node("Add", "m h", "a"),
        node("Relu", "a", "r"),
        node("Conv", "r k", "c"),
        node("Relu", "c", "d"),
        node("Conv", "d v", "y", pads=[1, 1, 1, 1]),
    ]
    rng = np.random.default_rng(7)
    shapes = {"g": (1, 256, 1, 1), "h": (1, 256, 1, 1), "k": (64, 256, 1, 1), "v": (16, 64, 3, 3)}
    given = {name: (rng.standard_normal(shape) / 8).astype(np.float32) for name, shape in shapes.items()}
    return model(nodes, {"x": (images, 256, 14, 14)}, ["y"], **given)


SCALED = scaled(1)
SCALED_LINES = ['"r" = 1  # m a r', '"d" = 1  # c d', '"y" = 1  # y']


def scaled_schedule(*in_l1: str) -> str:
    text = "clusters = 1\n[pieces]\n" + "\n".join(SCALED_LINES) + "\n"
    for name in in_l1:
        text = text.replace(f'"{name}" = 1', f'"{name}" = {{ pieces = 1, in_l1 = true }}')
    return text


@pytest.mark.usefixtures("first_tiles")
@pytest.mark.parametrize("chip", ["tw1", "tw2"])
def test_what_makes_a_map_shares_the_kernel_where_a_schedule_says_so(chip: str) -> None:
    x = RNG.standard_normal((1, 256, 14, 14)).astype(np.float32)
    for in_l1, kernels in (((), 3), (("r",), 2), (("d",), 2)):
        artifact = compiler.compile(SCALED, chip, precision="fp16", schedule=parse_schedule(scaled_schedule(*in_l1)))
        assert len(artifact.report.kernels) == kernels
        result = artifact.run({"x": x}, hazards=True)["y"]
        np.testing.assert_allclose(result, expected(SCALED, x), rtol=1e-2, atol=2e-2)


@pytest.mark.usefixtures("first_tiles")
def test_a_map_is_made_on_its_way_in_bands_of_rows() -> None:
    text = scaled_schedule("r").replace("pieces = 1, in", "pieces = 2, axis = 2, in")
    text = text.replace("= 1  #", "= { pieces = 2, axis = 2 }  #")
    artifact = compiler.compile(SCALED, "tw1", precision="fp16", schedule=parse_schedule(text))
    assert [kernel.tile.endswith("by way of UB") for kernel in artifact.report.kernels] == [True, False] * 2
    x = RNG.standard_normal((1, 256, 14, 14)).astype(np.float32)
    np.testing.assert_allclose(artifact.run({"x": x}, hazards=True)["y"], expected(SCALED, x), rtol=1e-2, atol=2e-2)


def test_a_map_is_made_on_its_way_where_that_is_faster() -> None:
    artifact = compiler.compile(scaled(16), "tw1", precision="fp16")
    assert '"r" = { pieces = 1, in_l1 = true }' in artifact.schedule
    assert len(artifact.report.kernels) == 2
    assert compiler.compile(scaled(16), "tw1", precision="fp16").schedule == artifact.schedule  # as it was decided


def test_a_kernel_that_makes_a_map_has_one_convolution() -> None:
    with pytest.raises(InvalidError, match="one that makes a map on its way or pools a result one"):
        compiler.compile(SCALED, "tw1", precision="fp16", schedule=parse_schedule(scaled_schedule("r", "d")))


def test_what_two_read_is_no_map_of_one() -> None:
    nodes = [node("Relu", "x", "r"), node("Conv", "r k", "c"), node("Add", "c r", "y")]
    source = model(nodes, {"x": (1, 64, 14, 14)}, ["y"], k=weights(64, 64, 1, 1))
    module = driver.plan(source, load_chip("tw1"), Options("fp16", cache=False), Observer()).module
    assert chains(module) == []


def test_what_is_added_is_no_map() -> None:
    nodes = [node("Relu", "z", "r"), node("Conv", "x k", "c"), node("Add", "c r", "y")]
    inputs = {"x": (1, 64, 14, 14), "z": (1, 64, 14, 14)}
    source = model(nodes, inputs, ["y"], k=weights(64, 64, 1, 1))
    module = driver.plan(source, load_chip("tw1"), Options("fp16", cache=False), Observer()).module
    assert chains(module) == []


# ---- of one place ------------------------------------------------------------------------------------------------


def excited(images: int, *, added: bool = False) -> tuple[bytes, dict[str, np.ndarray]]:
    """Factors of channels, made of the mean of each; another input may be ``added`` within."""
    nodes = [
        node("GlobalAveragePool", "x", "m"),
        node("Conv", "m k a", "c"),
        node("Add", "c z", "e") if added else node("Identity", "c", "e"),
        node("Relu", "e", "d"),
        node("Conv", "d v b", "f"),
        node("Sigmoid", "f", "s"),
        node("Mul", "x s", "y"),
    ]
    shapes = {"k": (8, 96, 1, 1), "a": (8,), "v": (96, 8, 1, 1), "b": (96,)}
    inputs = {"x": (images, 96, 16, 16), **({"z": (images, 8, 1, 1)} if added else {})}
    given = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in inputs.items()}
    return model(nodes, inputs, ["y"], **{name: weights(*shape) for name, shape in shapes.items()}), given


@pytest.mark.usefixtures("first_tiles")
@pytest.mark.parametrize("chip", ["tw1", "tw2"])
@pytest.mark.parametrize("added", [False, True])
def test_convolutions_of_one_place_may_share_a_kernel(chip: str, added: bool) -> None:
    source, given = excited(1, added=added)
    names = ["m", "c e d" if added else "c d", "f s", "y"]
    lines = [f'"{each.split()[-1]}" = 1  # {each}' for each in names]
    text = "clusters = 1\n[pieces]\n" + "\n".join(lines).replace('"d" = 1', '"d" = { pieces = 1, in_l1 = true }') + "\n"
    artifact = compiler.compile(source, chip, precision="fp16", schedule=parse_schedule(text))
    assert len(artifact.report.kernels) == 3
    wanted = np.asarray(ReferenceEvaluator(onnx.load_from_string(source)).run(None, given)[0])
    np.testing.assert_allclose(artifact.run(given, hazards=True)["y"], wanted, rtol=1e-2, atol=2e-2)


def test_a_border_between_kernels_counts() -> None:
    """Both convolutions in one kernel of one core take hardly less than in two kernels of many, but for the border."""
    artifact = compiler.compile(excited(1)[0], "tw2", precision="fp16")
    assert '"d" = { pieces = 1, in_l1 = true }' in artifact.schedule
