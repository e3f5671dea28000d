"""Convolutions over one to three (or more) spatial axes, channels first."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.broadcast import dtype_of, shape_of
from compiler.operators.cast import as_dtype
from compiler.operators.graph import Graph, Value
from compiler.operators.matmul import cast_stage, product_dtype
from compiler.operators.phases import by_long_steps, by_phases, by_rows
from compiler.operators.places_at_once import in_order, several_places
from compiler.operators.registry import composition, operator
from compiler.operators.rows_as_channels import by_kernel_rows
from compiler.operators.windows import Windows, check_kernel_shape


@composition("Conv")
def conv(
    graph: Graph,
    x: Value,
    w: Value,
    b: Value | None = None,
    *,
    kernel_shape: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    dilations: tuple[int, ...] | None = None,
    auto_pad: str = "NOTSET",
    group: int = 1,
) -> Any:
    check_kernel_shape(kernel_shape, w)
    windows = convolution_windows(x, w, strides, pads, dilations, auto_pad, group)
    if group == 1 and _are_patches(x, windows):
        return patches_product(graph, x, w, b, windows)
    return convolve(graph, x, w, b, windows, group)


def _are_patches(x: Value, windows: Windows) -> bool:
    """Windows side by side over few channels, with rows of a block or more.

    The cube would see a whole block of channels, most of them zero; to move rows of that length costs less.
    """
    block = channel_block(dtype_of(x))
    covered = tuple(count * step for count, step in zip(windows.outputs, windows.strides, strict=True))
    side_by_side = windows.kernel == windows.strides and covered == windows.extents
    plain = not any(windows.pads) and all(step == 1 for step in windows.dilations)
    return side_by_side and plain and shape_of(x)[1] * 2 <= block <= windows.kernel[-1]


def patches_product(graph: Graph, x: Value, w: Value, b: Value | None, windows: Windows) -> Any:
    """A convolution whose windows share nothing: the product of a matrix with a window in each row."""
    (batch, channels, *_), outputs, rank = shape_of(x), shape_of(w)[0], len(windows.kernel)
    places = int(np.prod(windows.outputs))
    sides = [side for pair in zip(windows.outputs, windows.kernel, strict=True) for side in pair]
    apart = graph.call("Reshape", x, np.array([batch, channels, *sides]))
    perm = (0, *range(2, 2 + 2 * rank, 2), 1, *range(3, 3 + 2 * rank, 2))
    rows = graph.call("Reshape", graph.call("Transpose", apart, perm=perm), np.array([batch * places, -1]))
    product = graph.call("Gemm", rows, graph.call("Reshape", w, np.array([outputs, -1])), b, transB=1)
    of_batch = graph.call("Reshape", product, np.array([batch, places, outputs]))
    return graph.call(
        "Reshape", graph.call("Transpose", of_batch, perm=(0, 2, 1)), np.array([batch, outputs, *windows.outputs])
    )


def convolve(
    graph: Graph, x: Value, w: Value, b: Value | None, windows: Windows, group: int, pad_value: int = 0
) -> Any:
    """The call of the operator, once its operands are what the cube wants.

    The cube works on a whole block of channels: groups that have fewer, down to one channel in depthwise convolutions,
    share a block. What is made in long steps is padded with zeros only, other paddings are put around it first.
    """
    bare, padded, around = x, x, windows
    if pad_value and any(windows.pads):
        sides = np.array([0, 0, *windows.begins, 0, 0, *windows.ends], np.int64)
        x = padded = graph.call("Pad", x, sides, np.array([pad_value], dtype_of(x)))
        windows = Windows.of(shape_of(x)[2:], windows.kernel, windows.strides, None, windows.dilations)
    w, windows = _without_what_meets_nothing(graph, w, windows)
    if _is_of_channels_alone(x, w, windows, group):
        return _affine(graph, x, w, b)
    places, block = windows.outputs, channel_block(dtype_of(w))
    x, w, windows = by_rows(graph, x, w, windows)
    if windows.rank > len(places):
        rows = convolve(graph, x, w, b, windows, group)
        flat = graph.call("Reshape", rows, np.array([*shape_of(rows)[:2], -1]))
        return graph.call("Slice", flat, np.array([0]), np.array(places), np.array([2]))
    counts: tuple[int, ...] = ()
    if group == 1:
        x, w, b, windows, counts = several_places(graph, x, w, b, windows, block)
    x, w, windows = by_long_steps(graph, x, w, windows, group, block)
    if x is padded is not bare:  # nothing was so far: what follows pads with any number
        x, windows = bare, around
    if group == 1:
        x, w, windows = by_phases(graph, x, w, windows, block)
        x, w, windows = by_kernel_rows(graph, x, w, windows, block, pad_value)
    outputs, channels, *_ = shape_of(w)
    blocks = -(-group // max(1, block // channels))
    sharing = -(-group // blocks)
    if sharing > 1:
        w, group = block_diagonal(graph, w, group, sharing), blocks
        b = b if b is None else _padded(graph, b, shape_of(w)[0])
    b = b if b is None else graph.wide(b)
    made = graph.call(
        "tilewright::Convolution",
        x,
        packed_weights(graph, w, group),
        b,
        kernel=windows.kernel,
        strides=windows.strides,
        pads=windows.pads,
        dilations=windows.dilations,
        channels=channels * sharing,
        outputs=outputs,
        padding=pad_value,
    )
    return in_order(graph, made, counts, places)


def _without_what_meets_nothing(graph: Graph, w: Value, windows: Windows) -> tuple[Value, Windows]:
    """Without the sides of the weights, where they are known, that see padding only."""
    meeting = windows.meeting()
    if meeting is None or w.constant is None:
        return w, windows
    first = [
        (before - begin) // dilation
        for before, begin, dilation in zip(windows.begins, meeting.begins, windows.dilations, strict=True)
    ]
    behind = [begin + extent for begin, extent in zip(first, meeting.kernel, strict=True)]
    axes = np.arange(2, 2 + windows.rank)
    return graph.call("Slice", w, np.array(first), np.array(behind), axes), meeting


def _is_of_channels_alone(x: Value, w: Value, windows: Windows, group: int) -> bool:
    """Each channel times its own weight: nothing is summed, and the vector unit does it where the elements are."""
    is_plain = windows.elements == 1 and set(windows.strides) == {1} and not any(windows.pads)
    return is_plain and group == shape_of(x)[1] == shape_of(w)[0] and "float" in dtype_of(x)


def _affine(graph: Graph, x: Value, w: Value, b: Value | None) -> Any:
    channels = shape_of(x)[1]
    shift = graph.constant(np.zeros(channels, np.float32)) if b is None else b
    factor = graph.call("Reshape", w, np.array([channels]))
    return graph.call("tilewright::ChannelAffine", x, *(as_dtype(graph, term, dtype_of(x)) for term in (factor, shift)))


def block_diagonal(graph: Graph, w: Value, group: int, sharing: int) -> Value:
    """Weights of groups of which ``sharing`` become one: zero where an output does not see a channel.

    [group * outputs, channels, *kernel] -> [blocks * sharing * outputs, sharing * channels, *kernel]; the last block
    may have fewer groups, and zeros behind them.
    """
    rows, channels, *kernel = shape_of(w)
    blocks, outputs = -(-group // sharing), rows // group
    w = _padded(graph, w, blocks * sharing * outputs)
    apart = graph.call("Reshape", w, np.array([blocks, sharing, outputs, 1, channels, *kernel]))
    own = np.eye(sharing, dtype=bool).reshape(1, sharing, 1, sharing, 1, *(1 for _ in kernel))
    # What is known is of the model's type, whatever it is compiled to, and is folded with its like only.
    zeros = np.zeros(1, dtype_of(w) if apart.constant is None else apart.constant.dtype)
    spread = graph.call("Where", own, apart, zeros)
    result: Value = graph.call("Reshape", spread, np.array([-1, sharing * channels, *kernel]))
    return result


def _padded(graph: Graph, value: Value, length: int) -> Value:
    """With zeros behind the first axis."""
    first, *rest = shape_of(value)
    if first == length:
        return value
    result: Value = graph.call("Pad", value, np.array([0] * (len(rest) + 1) + [length - first] + [0] * len(rest)))
    return result


def packed_weights(graph: Graph, w: Value, group: int) -> Value:
    """As the cube loads them: [outputs, channels, *kernel] -> [group, depth, c1, height, width, outputs, c0].

    Channel ``c1 * extent of c0 + c0``; a block of c0 takes 32 bytes, the last one has zeros behind its channels. By
    calls of ONNX's own operators, which are folded where the weights are constant.
    """
    outputs, channels, *kernel = shape_of(w)
    if len(kernel) > 3:
        raise refusals.wrong_shape("w must have one to three spatial axes", w=w)
    block = channel_block(dtype_of(w))
    blocks = -(-channels // block)
    if channels % block:
        ends = [0, blocks * block - channels] + [0] * len(kernel)
        w = graph.call("Pad", w, np.array([0] * len(shape_of(w)) + ends, np.int64))
    kernel_3d = [1] * (3 - len(kernel)) + kernel
    split = np.array([group, outputs // group, blocks, block, *kernel_3d], np.int64)
    return graph.call("Transpose", graph.call("Reshape", w, split), perm=(0, 4, 2, 5, 6, 1, 3))


def channel_block(dtype: str) -> int:
    """Channels in 32 bytes."""
    return 32 // np.dtype(dtype if dtype != "bfloat16" else "float16").itemsize


@operator("tilewright::Convolution", schedule="convolution")
def convolution(
    x: te.Tensor,
    packed: te.Tensor,
    b: te.Tensor | None = None,
    *,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    channels: int,
    outputs: int,
    padding: int = 0,
) -> te.Tensor:
    """A product of the windows' matrix with packed weights. Integers give int32; sums are cast back to floats' type.

    Around x is ``padding``. A group sees ``channels`` of x, the last one those that are left; of all groups' columns
    the first ``outputs`` are the result.

    The stages: "windows" [n, group, do, ho, wo, kd, c1, kh, kw, c0], the product "convolution" [n, group, do, ho, wo,
    o], bias and cast in the same order of axes, and "channels_first".
    """
    rank = len(kernel)
    windows = Windows.of(shape_of(x)[2:], kernel, strides, pads, dilations)
    sums = product_dtype(x=x, w=packed)
    missing = 3 - rank
    group, _, c1_extent, *_, per_group, block = shape_of(packed)

    def window(n: Any, g: Any, do: Any, ho: Any, wo: Any, kd: Any, c1: Any, kh: Any, kw: Any, c0: Any) -> Any:
        channel = c1 * block + c0
        positions = windows.positions((do, ho, wo)[missing:], (kd, kh, kw)[missing:])
        conditions = windows.inside(positions)
        if channels % block:
            conditions.append(channel < channels)
        if group * channels > shape_of(x)[1]:
            conditions.append(g * channels + channel < shape_of(x)[1])
        value = x[(n, g * channels + channel, *positions)]
        if not conditions:
            return value
        return tirx.if_then_else(tirx.all(*conditions), value, tirx.const(padding, dtype_of(x)))

    places = (shape_of(x)[0], group, *(1,) * missing, *windows.outputs)
    kernel_3d = (1,) * missing + tuple(kernel)
    matrix = te.compute((*places, kernel_3d[0], c1_extent, *kernel_3d[1:], block), window, "windows")
    extents = {"kd": kernel_3d[0], "c1": c1_extent, "kh": kernel_3d[1], "kw": kernel_3d[2], "c0": block}
    kd, c1, kh, kw, c0 = axes = [te.reduce_axis((0, extent), name) for name, extent in extents.items()]

    def sum_of_products(n: Any, g: Any, do: Any, ho: Any, wo: Any, o: Any) -> Any:
        element = matrix[n, g, do, ho, wo, kd, c1, kh, kw, c0].astype(sums)
        return te.sum(element * packed[g, kd, c1, kh, kw, o, c0].astype(sums), axis=axes)

    products = te.compute((*places, per_group), sum_of_products, "convolution", attrs={"tw.role": "convolution"})
    rounded = _biased_rows(products, b, dtype_of(x) if sums == "float32" else sums)

    def channel_first(n: Any, o: Any, *place: Any) -> Any:
        position = (0,) * missing + place
        g, own = (0, o) if group == 1 else (tirx.floordiv(o, per_group), tirx.floormod(o, per_group))
        return rounded[(n, g, *position, own)]

    return te.compute((shape_of(x)[0], outputs, *windows.outputs), channel_first, "channels_first")


def _biased_rows(products: te.Tensor, b: te.Tensor | None, dtype: str) -> te.Tensor:
    """The bias of each column added in the type of the sums, then cast to ``dtype``. Integers without are copied: the
    stage that scales them has their order of axes then.
    """
    if b is None and dtype == "int32":
        return te.compute(shape_of(products), lambda *i: products[i], "taken")
    if b is None:
        return cast_stage(products, dtype)
    group, per_group = shape_of(products)[1], shape_of(products)[-1]
    if shape_of(b) != (group * per_group,):
        raise refusals.wrong_shape("the bias must have one element for each output channel", b=b, output=products)
    sums = dtype_of(products)
    return te.compute(
        shape_of(products), lambda *i: (products[i] + b[i[1] * per_group + i[5]].astype(sums)).astype(dtype), "biased"
    )


def convolution_windows(
    x: Any,
    w: Any,
    strides: tuple[int, ...] | None,
    pads: tuple[int, ...] | None,
    dilations: tuple[int, ...] | None,
    auto_pad: str,
    group: int,
) -> Windows:
    """The windows of ``w`` over ``x``, once their shapes agree."""
    x_shape, w_shape = shape_of(x), shape_of(w)
    if len(x_shape) < 3 or len(x_shape) != len(w_shape):
        raise refusals.wrong_shape("x must be [batch, channels, ...] and w [outputs, channels, ...]", x=x, w=w)
    if group < 1 or w_shape[0] % group:
        raise refusals.wrong_value(f"must divide the {w_shape[0]} output channels", "group", group)
    if x_shape[1] != w_shape[1] * group:
        raise refusals.wrong_shape(f"x must have {group} times the channels of w", x=x, w=w)
    return Windows.of(x_shape[2:], w_shape[2:], strides, pads, dilations, auto_pad)
