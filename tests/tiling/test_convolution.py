"""Convolutions, as tiled for every chip, against numpy in float64."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from compiler.operators.convolution import convolution
from compiler.tiling import convolution as template
from compiler.tiling.convolution_tiles import output_sizes, overlaid_tiles
from compiler.tiling.search import cheapest_first
from tests.tiling.kernels import exact, random, run

CHIPS = ("tw1", "tw2", "tiny")
TOLERANCE = {"float32": 2e-6, "float16": 1e-3, "int8": 0.0}

# image, weights, then what differs from stride 1, no padding, no dilation, one group
CASES: list[dict[str, Any]] = [
    {"x": (1, 3, 23, 19), "w": (5, 3, 3, 3), "pads": (1, 1, 1, 1)},
    {"x": (2, 17, 9, 11), "w": (18, 17, 1, 1)},
    {"x": (1, 16, 15, 13), "w": (7, 16, 3, 3), "pads": (1, 0, 2, 1), "strides": (2, 2)},
    {"x": (1, 8, 15, 13), "w": (7, 8, 3, 2), "pads": (2, 1, 0, 3), "strides": (2, 3), "dilations": (2, 1)},
    {"x": (1, 8, 15, 16), "w": (7, 8, 3, 3), "pads": (1, 2, 1, 2), "strides": (2, 2), "dilations": (2, 2)},
    {"x": (1, 20, 12, 12), "w": (12, 10, 3, 3), "pads": (1, 1, 1, 1), "group": 2},
    {"x": (1, 3, 30, 30), "w": (8, 3, 7, 7), "pads": (3, 3, 3, 3), "strides": (2, 2)},
    {"x": (2, 9, 57), "w": (6, 9, 5), "pads": (2, 1), "strides": (2,)},
    {"x": (1, 4, 5, 6, 7), "w": (6, 4, 3, 3, 3), "pads": (1, 1, 1, 1, 1, 1)},
    {"x": (1, 4, 6, 300), "w": (6, 4, 3, 3), "pads": (1, 1, 1, 1)},
    {"x": (1, 4, 6, 9), "w": (6, 4, 3, 3), "pads": (3, 4, 3, 4)},
    {"x": (1, 4, 9, 12), "w": (6, 4, 3, 3), "pads": (-1, -2, 0, -1)},
    {"x": (1, 4, 9, 7), "w": (6, 4, 3, 3), "pads": (0, 0, -1, -1)},
    {"x": (1, 4, 9, 8), "w": (6, 4, 3, 3), "pads": (0, 0, -1, -1), "strides": (2, 2)},
    {"x": (1, 1, 1, 1), "w": (1, 1, 1, 1)},
    # Conditions that simplification turns into equalities, halves, or nothing.
    {"x": (2, 9, 4, 1), "w": (15, 3, 3, 1), "pads": (2, 3, 2, 2), "strides": (3, 3), "dilations": (3, 2), "group": 3},
    {"x": (1, 33, 20, 13), "w": (16, 33, 3, 3), "pads": (0, 0, 1, 3), "dilations": (2, 2)},
    {"x": (1, 17, 1), "w": (1, 17, 3), "pads": (3, 3), "strides": (2,), "dilations": (2,)},
    {"x": (1, 48, 3, 3, 3), "w": (15, 16, 2, 2, 2), "pads": (2, 3, 0, 0, 1, 0), "strides": (3, 1, 1), "group": 3},
    {"x": (2, 2, 7, 40), "w": (5, 2, 5, 1), "pads": (0, 1, 3, 1), "strides": (2, 2)},
    {"x": (1, 34, 20), "w": (40, 17, 1), "pads": (3, 2), "strides": (2,), "dilations": (3,), "group": 2},
]

# More columns of the kernel than an instruction is told of: parts of rows, or of longer ones than there are.
WIDE: list[dict[str, Any]] = [
    {"x": (1, 4, 340), "w": (5, 4, 260), "pads": (3, 2)},
    {"x": (1, 9, 275), "w": (5, 9, 260)},
    {"x": (1, 1, 900), "w": (3, 1, 256), "strides": (63,)},
    {"x": (1, 3, 5, 300), "w": (4, 3, 2, 256), "strides": (1, 2)},
]


def name_of(case: dict[str, Any]) -> str:
    return "-".join("x".join(map(str, v)) if isinstance(v, tuple) else f"{k}{v}" for k, v in case.items())


def packed(w: Any, group: int) -> Any:
    """As the cube loads weights: [group, depth, c1, height, width, outputs, c0]."""
    block = 32 // w.itemsize
    outputs, channels, *kernel = w.shape
    blocks = -(-channels // block)
    wide = np.zeros((outputs, blocks * block, *(1,) * (3 - len(kernel)), *kernel), w.dtype)
    wide[:, :channels] = w.reshape(outputs, channels, *wide.shape[2:])
    parts = wide.reshape(group, outputs // group, blocks, block, *wide.shape[2:])
    return np.ascontiguousarray(parts.transpose(0, 4, 2, 5, 6, 1, 3))


def convolved(x: Any, w: Any, strides: Any, pads: Any, dilations: Any, group: int) -> Any:
    """The sum over the kernel's elements of a slice of the padded image times that element's matrix."""
    rank = x.ndim - 2
    begins, ends = pads[:rank], pads[rank:]
    image = np.pad(x, [(0, 0), (0, 0), *((max(b, 0), max(e, 0)) for b, e in zip(begins, ends, strict=True))])
    cut = [slice(max(-b, 0), n - max(-e, 0)) for b, e, n in zip(begins, ends, image.shape[2:], strict=True)]
    image = image[(slice(None), slice(None), *cut)]
    sizes = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, d, s in zip(image.shape[2:], w.shape[2:], dilations, strides, strict=True)
    ]
    per_group = w.shape[0] // group
    result = np.zeros((x.shape[0], w.shape[0], *sizes), x.dtype)
    for element in product(*(range(k) for k in w.shape[2:])):
        places = tuple(
            slice(e * d, e * d + (n - 1) * s + 1, s)
            for e, d, n, s in zip(element, dilations, sizes, strides, strict=True)
        )
        for g in range(group):
            channels = slice(g * w.shape[1], (g + 1) * w.shape[1])
            outputs = slice(g * per_group, (g + 1) * per_group)
            part = image[(slice(None), channels, *places)]
            result[:, outputs] += np.einsum("oc,nc...->no...", w[(outputs, slice(None), *element)], part)
    return result


def check(
    chip: str,
    case: dict[str, Any],
    dtype: str,
    bias: str = "",
    relu: bool = False,
    side: bool = False,
    cut: Any = template.schedule,
) -> list[str]:
    """With a ``side``, the result is added to another tensor. Returns the instructions of the kernel, in order."""
    rank, group = len(case["x"]) - 2, case.get("group", 1)
    attributes = {
        "strides": case.get("strides", (1,) * rank),
        "pads": case.get("pads", (0,) * 2 * rank),
        "dilations": case.get("dilations", (1,) * rank),
    }
    rng = np.random.default_rng(len(name_of(case)))
    x, w = random(rng, dtype, *case["x"]), random(rng, dtype, *case["w"])
    arrays = {"x": x, "packed": packed(w, group)}
    if bias:
        arrays["bias"] = random(rng, bias, case["w"][0])

    def define(*tensors: Any) -> Any:
        operands, sizes = tensors[: 3 if bias else 2], {"channels": case["w"][1], "outputs": case["w"][0]}
        result = convolution(*operands, kernel=case["w"][2:], **sizes, **attributes)
        if side:
            before, other = result, tensors[-1]
            result = te.compute(result.shape, lambda *i: before[i] + other[i], "add")
        if not relu:
            return result
        return te.compute(result.shape, lambda *i: tirx.max(result[i], tirx.const(0, str(result.dtype))), "relu")

    wanted = convolved(*exact([x, w]), **attributes, group=group)
    if bias:
        wanted = wanted + exact([arrays["bias"]])[0].reshape(-1, *(1,) * rank)
    if side:
        arrays["side"] = random(rng, dtype, *wanted.shape)
        wanted = wanted + exact([arrays["side"]])[0]
    result = run(cut, chip, arrays, define)
    output = result.output
    if relu:
        wanted = np.maximum(wanted, 0)
    assert output.shape == wanted.shape
    np.testing.assert_allclose(output.astype(np.float64), wanted, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * 10)
    return re.findall(r'"tw\.([a-z0-9]+(?:_flag[a-z0-9.]+)?)', result.func.script())


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_attributes(chip: str, case: dict[str, Any]) -> None:
    check(chip, case, "float16")


@pytest.mark.parametrize("chip", ["tw1", "tw2"])
@pytest.mark.parametrize("case", WIDE, ids=name_of)
def test_wide_kernels(chip: str, case: dict[str, Any]) -> None:
    check(chip, case, "float32")


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("number", [0, 3, 7, 8])
def test_types(chip: str, dtype: str, number: int) -> None:
    check(chip, CASES[number], dtype)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("number", [1, 5, 7])
@pytest.mark.parametrize("bias", ["float16", "float32"])
def test_bias_and_slaves(chip: str, number: int, bias: str) -> None:
    check(chip, CASES[number], "float16", bias=bias, relu=True)


@pytest.mark.parametrize("number", [3, 9, 18])
@pytest.mark.parametrize("relu", [False, True])
def test_sums_begin_with_the_bias_where_there_is_a_table_for_it(number: int, relu: bool) -> None:
    """Then the vector unit has nothing to do: the fixpipe rounds and activates, a store turns what it takes."""
    found = check("tw2", CASES[number], "float16", bias="float32", relu=relu)
    assert {"ldbt", "madbias", "fix", "st"} <= {*found}
    assert not any(name.startswith("v") for name in found)
    # What waits for the bias does not hold up the loads of operands: their rings are opened before.
    opened = [at for at, name in enumerate(found) if name == "set_flag.mte1.mte2"]
    assert not opened or opened[0] < found.index("ldbt")


def test_the_bias_comes_a_part_at_a_time_where_images_go_around_the_channels() -> None:
    def cut(func: Any, target: Any, _: int) -> Any:
        space = template.space(func, target)
        found = [
            t for t in space.tiles() if t.trips[0] > 1 and t.outputs == 32 < 32 * t.trips[5] and t.held != {"weights"}
        ]
        return space.apply(cheapest_first(space, found, target)[0])

    found = check("tw2", {"x": (40, 8, 4, 4), "w": (128, 8, 1, 1)}, "float16", bias="float32", cut=cut)
    assert "ldbt" in found


@pytest.mark.parametrize(
    ("case", "side"),
    [
        ({"x": (1, 32, 20, 21), "w": (64, 32, 1, 1)}, False),
        ({"x": (1, 32, 20, 21), "w": (64, 32, 1, 1)}, True),
        ({"x": (1, 96, 9, 9), "w": (32, 96, 1, 1)}, False),
        ({"x": (1, 256, 9, 9), "w": (32, 256, 1, 1)}, False),
        ({"x": (2, 60, 9, 11), "w": (48, 20, 1, 1), "group": 3}, False),
        ({"x": (1, 6, 30, 30), "w": (32, 6, 3, 2), "pads": (1, 0, 1, 1), "strides": (2, 2)}, False),
    ],
    ids=["alone", "side", "nearly as busy", "half as busy", "groups", "windows"],
)
def test_sums_begin_with_a_product_where_there_is_no_table(case: dict[str, Any], side: bool) -> None:
    """Where the vector unit had more to do than the cube, or half as much and nothing then; it only takes the bias
    apart, and adds what is aside.
    """
    found = check("tw1", case, "float16", bias="float32", relu=True, side=side)
    assert {"filll0a", "stnz", "ldl0b", "mad", "madacc"} <= {*found}
    assert {name for name in found if name.startswith("v")} == {"vmins", "vmaxs", "vconv", "vsub"} | (
        {"vaddrelu"} if side else set()
    )
    # What is always the same is filled once.
    assert found.count("filll0a") == 1
    assert found.index("filll0a") < found.index("mad")


def test_a_cube_that_is_busier_than_the_vector_unit_leaves_the_bias_to_it() -> None:
    for case in (
        {"x": (1, 512, 9, 9), "w": (32, 512, 1, 1)},
        {"x": (1, 32, 9, 9), "w": (32, 32, 3, 3), "pads": (1, 1, 1, 1)},
    ):
        assert "filll0a" not in check("tw1", case, "float16", bias="float32")


@pytest.mark.parametrize("rows", [1, 3])
def test_a_bias_beside_the_cube_stays_or_comes_with_its_channels(rows: int) -> None:
    """Many channels of a core: there is not always room for all of them beside the cube."""

    def cut(func: Any, target: Any, _: int) -> Any:
        space = template.space(func, target)
        stays = lambda tile: tile.bias_stays(space.problem, target)  # noqa: E731
        found = [t for t in space.tiles() if t.trips[5] > 1 and stays(t) == (rows == 1)]
        return space.apply(cheapest_first(space, found, target)[0])

    case = {"x": (40, 16, rows, 32), "w": (2048 if rows > 1 else 64, 16, 1, 1)}
    assert "filll0a" in check("tw1", case, "float16", bias="float32", cut=cut)


def test_a_bias_in_two_parts_is_as_exact_as_the_result() -> None:
    bias = np.concatenate([np.geomspace(1e-7, 65500, 40), -np.geomspace(1e-4, 3e4, 20), [65519, 70000, -1e5, 0]])
    bias = bias.astype(np.float32)
    arrays = {"x": np.zeros((1, 16, 40, 40), np.float16), "packed": packed(np.zeros((64, 16, 1, 1), np.float16), 1)}
    sizes = {"kernel": (1, 1), "strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1), "channels": 16, "outputs": 64}
    result = run(template.schedule, "tw1", arrays | {"bias": bias}, lambda *tensors: convolution(*tensors, **sizes))
    assert "filll0a" in result.func.script()
    with np.errstate(over="ignore"):
        wanted = bias.astype(np.float16)
    np.testing.assert_allclose(result.output[0, :, 0, 0].astype(float), wanted.astype(float), rtol=2**-10, atol=2**-24)
    np.testing.assert_array_equal(result.output.min(axis=(2, 3)), result.output.max(axis=(2, 3)))


@pytest.mark.parametrize("chip", ["tw1", "tw2"])
@pytest.mark.parametrize("number", [1, 5, 7])
def test_what_adds_another_tensor_also_cuts_off_below_zero(chip: str, number: int) -> None:
    found = check(chip, CASES[number], "float16", bias="float32", relu=True, side=True)
    assert "vaddrelu" in found
    assert not {"vadd", "vrelu"} & {*found}


def test_integers_too() -> None:
    check("tw2", CASES[7], "int8", bias="int32")


KINDS = ("map", "weights", "rows", "several products", "one step", "in pieces")


@pytest.mark.parametrize(("chip", "kind"), [*product(("tw1", "tw2"), KINDS), ("tw1", "weights shared")])
def test_kinds_of_tiles(chip: str, kind: str) -> None:
    """The best tile of each kind: what stays in L1, several products beside one another, the order of the cores."""

    def is_of_kind(tile: Any, problem: Any) -> bool:
        if kind in ("map", "weights", "rows"):
            return kind in tile.held
        if kind == "several products":
            return bool(tile.stacked > 1 and tile.rows * tile.columns % 16)
        if kind == "in pieces":
            return bool(tile.pieces > 1 and tile.cores[5] * tile.trips[5] > 1)
        return bool(tile.places_last) if kind == "weights shared" else tile.steps(problem) == 1

    def cut(func: Any, target: Any, _: int) -> Any:
        space = template.space(func, target)
        tiles = [tile for tile in space.tiles() if is_of_kind(tile, space.problem)]
        return space.apply(cheapest_first(space, tiles, target)[0])

    kernel = (1, 1) if kind == "one step" else (3, 3)
    case = {"x": (2, 20, 31, 15), "w": (136, 20, *kernel), "pads": (1, 1, 1, 1)}
    check(chip, case, "float16", bias="float32", relu=True, cut=cut)


@pytest.mark.parametrize(("height", "rows"), [(3, 2), (7, 4)])
def test_the_last_of_several_products_has_fewer_rows(height: int, rows: int) -> None:
    """In turns that share a ring of slots in L0C, where one that took too little room would reach into the next."""

    def cut(func: Any, target: Any, _: int) -> Any:
        space = template.space(func, target)
        wanted = (rows, 2, 2, (1,) * 6)
        found = [t for t in space.tiles() if (t.rows, t.stacked, t.trips[5], t.cores) == wanted]
        return space.apply(cheapest_first(space, found, target)[0])

    check("tw1", {"x": (1, 40, height, 3), "w": (128, 40, 1, 1)}, "float32", cut=cut)


IMAGES: list[dict[str, Any]] = [
    {"x": (5, 20, 4, 3), "w": (40, 20, 3, 3), "pads": (1, 1, 1, 1)},
    {"x": (7, 33, 5, 5), "w": (20, 33, 3, 3), "pads": (1, 1, 1, 1), "strides": (2, 2)},
    {"x": (7, 40, 2, 8), "w": (24, 20, 1, 1), "group": 2},
    {"x": (3, 9, 17), "w": (6, 9, 5), "pads": (2, 1), "strides": (2,)},
]


@pytest.mark.parametrize("chip", ["tw1", "tw2"])
@pytest.mark.parametrize("case", IMAGES, ids=name_of)
@pytest.mark.parametrize("last", [False, True])
def test_images_beside_one_another(chip: str, case: dict[str, Any], last: bool) -> None:
    """Weights meet several images, fewer in the last tile; the cheapest such tile and the dearest."""

    def cut(func: Any, target: Any, _: int) -> Any:
        space = template.space(func, target)
        tiles = [tile for tile in space.tiles() if tile.images > 1 and case["x"][0] % tile.images]
        return space.apply(cheapest_first(space, tiles, target)[-1 if last else 0])

    check(chip, case, "float16", bias="float32", relu=True, cut=cut)


OVERLAID: list[dict[str, Any]] = [
    {"x": (2, 16, 14, 14), "w": (16, 16, 3, 3), "pads": (1, 1, 1, 1)},
    {"x": (1, 33, 12, 20), "w": (40, 33, 3, 3), "pads": (1, 1, 1, 1)},
    {"x": (1, 48, 10, 16), "w": (48, 16, 5, 5), "pads": (2, 2, 2, 2), "group": 3},
    {"x": (1, 20, 12, 12), "w": (24, 10, 3, 3), "pads": (2, 0, 0, 2), "dilations": (2, 1), "group": 2},
    {"x": (1, 8, 15, 31), "w": (7, 8, 3, 2), "pads": (2, 1, 0, 3), "strides": (1, 2)},
    {"x": (1, 4, 9, 12), "w": (6, 4, 3, 3), "pads": (-1, -2, 0, -1)},
    {"x": (5, 4, 6, 9), "w": (6, 4, 3, 3), "pads": (3, 4, 3, 4)},
    {"x": (1, 4, 5, 6, 7), "w": (6, 4, 3, 3, 3), "pads": (1, 1, 1, 1, 1, 1)},
    {"x": (5, 20, 4, 3), "w": (40, 20, 3, 3), "pads": (1, 1, 1, 1)},
]


OVERLAID_KINDS: dict[str, Any] = {
    "best": lambda tile, problem: True,
    "fewer rows at the end": lambda tile, problem: problem.extents[3] % tile.rows,
    "several products": lambda tile, problem: tile.stacked > 1,
    "several images": lambda tile, problem: tile.images > 1,
}


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        (case, kind)
        for case in OVERLAID
        for kind in OVERLAID_KINDS
        if (kind != "several images" or case["x"][0] > 1)
        and (kind != "fewer rows at the end" or case["x"][2] in (10, 14, 15))
    ],
    ids=lambda value: value if isinstance(value, str) else name_of(value),
)
def test_windows_that_lie_over_each_other(case: dict[str, Any], kind: str) -> None:
    """Rows of the kernel are products of their own, of parts of one matrix: the best tile of a kind."""
    cut = _overlaid(OVERLAID_KINDS[kind], last=False)
    assert "img2col" in check("tw2", case, "float16", bias="float32", relu=True, side=kind == "best", cut=cut)


@pytest.mark.parametrize(("chip", "number"), [("tw1", 0), ("tw1", 1), ("tw1", 3), ("tw2", 1), ("tw2", 2), ("tw2", 5)])
def test_tiles_of_such_windows_that_take_long_mean_the_same(chip: str, number: int) -> None:
    cut = _overlaid(OVERLAID_KINDS["best"], last=True)
    assert "img2col" in check(chip, OVERLAID[number], "float16", bias="float32", cut=cut)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("number", [1, 2, 4])
def test_such_windows_of_other_types(dtype: str, number: int) -> None:
    check("tw2", OVERLAID[number], dtype, cut=_overlaid(OVERLAID_KINDS["best"], last=False))


def _overlaid(is_of_kind: Any, last: bool) -> Any:
    def cut(func: Any, target: Any, _: int) -> Any:
        space = template.space(func, target)
        tiles = overlaid_tiles(space.problem, target, output_sizes(space.problem))
        found = [tile for tile in tiles if "map" not in tile.held]
        tiles = [tile for tile in found if is_of_kind(tile, space.problem)]
        return space.apply(cheapest_first(space, tiles, target)[-1 if last else 0])

    return cut
