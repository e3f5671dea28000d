"""Windows that slide over spatial axes: what convolution and pooling have in common.

``pads`` of ONNX hold all begins, then all ends; here each axis has its own pair. A negative pad cuts the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.broadcast import shape_of

_LARGEST = 2**31 - 1


def check_steps(**values: tuple[int, ...]) -> None:
    """Of an axis there is no more than 32 bits count."""
    for name, given in values.items():
        if min(given, default=1) < 1:
            raise refusals.wrong_value("must be at least 1", name, given)
        if max(given, default=1) > _LARGEST:
            raise refusals.wrong_value(f"must be at most {_LARGEST}", name, given)


def check_auto_pad(auto_pad: str) -> None:
    if auto_pad not in ("NOTSET", "", "SAME_UPPER", "SAME_LOWER", "VALID"):
        raise refusals.wrong_value("must be NOTSET, SAME_UPPER, SAME_LOWER or VALID", "auto_pad", auto_pad)


def check_kernel_shape(kernel_shape: tuple[int, ...] | None, w: Any) -> None:
    """What a node says of the extents of its windows is what its weights have."""
    if kernel_shape is not None and kernel_shape != shape_of(w)[2:]:
        raise refusals.wrong_shape("kernel_shape must be that of w", kernel_shape=kernel_shape, w=w)


@dataclass(frozen=True)
class Windows:
    """For each spatial axis: the input's extent, the window's, its step, its holes, and the padding around."""

    extents: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    ceil_mode: bool = False

    @staticmethod
    def of(
        extents: tuple[int, ...],
        kernel: tuple[int, ...],
        strides: tuple[int, ...] | None,
        pads: tuple[int, ...] | None,
        dilations: tuple[int, ...] | None,
        auto_pad: str = "NOTSET",
        ceil_mode: bool = False,
    ) -> Windows:
        """From ONNX's attributes, all checked; those left out step by one and pad nothing."""
        rank = len(extents)
        if len(kernel) != rank:
            raise refusals.wrong_shape("the window needs one extent for each spatial axis", kernel=kernel, axes=extents)
        strides = _per_axis("strides", strides, rank, 1)
        dilations = _per_axis("dilations", dilations, rank, 1)
        check_steps(kernel_shape=kernel, strides=strides, dilations=dilations)
        check_auto_pad(auto_pad)
        pads = pads or (0,) * (2 * rank)
        if len(pads) != 2 * rank:
            raise refusals.wrong_value("needs a begin and an end for each spatial axis", "pads", pads)
        begins, ends = pads[:rank], pads[rank:]
        spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            begins, ends = same_padding(extents, spans, strides, auto_pad)
            ceil_mode = False
        elif auto_pad == "VALID":
            begins, ends = (0,) * rank, (0,) * rank
        windows = Windows(extents, kernel, strides, dilations, begins, ends, ceil_mode)
        if min(windows.outputs, default=1) < 1:
            raise refusals.wrong_shape("the window must fit the padded input", kernel=spans, input=extents)
        return windows

    @property
    def rank(self) -> int:
        return len(self.extents)

    @property
    def outputs(self) -> tuple[int, ...]:
        """How often the window stands on each axis. With ``ceil_mode`` the last may hang over the end padding."""
        counts = []
        for axis in range(self.rank):
            span = (self.kernel[axis] - 1) * self.dilations[axis] + 1
            room = self.extents[axis] + self.begins[axis] + self.ends[axis] - span
            count = room // self.strides[axis] + 1
            if self.ceil_mode and room % self.strides[axis]:
                starts_inside = count * self.strides[axis] < self.extents[axis] + self.begins[axis]
                count += int(starts_inside)
            counts.append(count)
        return tuple(counts)

    @property
    def pads(self) -> tuple[int, ...]:
        return (*self.begins, *self.ends)

    @property
    def elements(self) -> int:
        """In one window."""
        product = 1
        for extent in self.kernel:
            product *= extent
        return product

    def meeting(self) -> Windows | None:
        """The same windows without the elements on their sides that meet the input nowhere; None where all do so.

        A dilated window, or one over a small input, has elements that are in the padding wherever it stands.
        """
        sides = [self._missing(axis) for axis in range(self.rank)]
        if self.ceil_mode or not any(map(any, sides)):
            return None
        before, behind = ([side[end] for side in sides] for end in (0, 1))
        kernel = tuple(k - first - last for k, first, last in zip(self.kernel, before, behind, strict=True))
        begins, ends = (
            tuple(pad - d * cut for pad, d, cut in zip(pads, self.dilations, cuts, strict=True))
            for pads, cuts in ((self.begins, before), (self.ends, behind))
        )
        return replace(self, kernel=kernel, begins=begins, ends=ends)

    def _missing(self, axis: int) -> tuple[int, int]:
        """How many elements at the begin and at the end of the window meet the input nowhere.

        No more than the padding has room for, which stays padding; none where no element meets it.
        """
        extent, step, begin = self.extents[axis], self.strides[axis], self.begins[axis]

        def meets(offset: int) -> bool:
            first = max(0, -(-(begin - offset) // step))
            return first < self.outputs[axis] and first * step + offset - begin < extent

        dilation, last = self.dilations[axis], self.kernel[axis] - 1
        inside = [k for k in range(self.kernel[axis]) if meets(k * dilation)]
        if not inside:
            return 0, 0
        room = max(begin, 0) // dilation, max(self.ends[axis], 0) // dilation
        return min(inside[0], room[0]), min(last - inside[-1], room[1])

    def reduce_axes(self) -> list[Any]:
        return [te.reduce_axis((0, extent), f"k{axis}") for axis, extent in enumerate(self.kernel)]

    def positions(self, outputs: Sequence[Any], offsets: Sequence[Any]) -> list[Any]:
        """Where in the input the element ``offsets`` of the window at ``outputs`` lies; outside where it is padding."""
        return [
            output * self.strides[axis] + offset * self.dilations[axis] - self.begins[axis]
            for axis, (output, offset) in enumerate(zip(outputs, offsets, strict=True))
        ]

    def inside(self, positions: Sequence[Any]) -> list[Any]:
        """The conditions under which ``positions`` are in the input; none for an axis that never leaves it."""
        conditions = []
        for axis, position in enumerate(positions):
            last = (self.outputs[axis] - 1) * self.strides[axis] + (self.kernel[axis] - 1) * self.dilations[axis]
            if self.begins[axis] > 0:
                conditions.append(position >= 0)
            if last - self.begins[axis] >= self.extents[axis]:
                conditions.append(position < self.extents[axis])
        return conditions

    def padded(self, tensor: Any, leading: Sequence[Any], positions: Sequence[Any], padding: Any) -> Any:
        """``tensor[*leading, *positions]``, or ``padding`` outside: of a padded copy, which windows share."""
        if not self.inside(positions):
            return tensor[(*leading, *positions)]
        around = self._around(tensor, padding)
        return around[(*leading, *(p + begin for p, begin in zip(positions, self.begins, strict=True)))]

    def _around(self, tensor: Any, padding: Any) -> te.Tensor:
        """The tensor with as much padding around it as the windows reach."""
        reached = [
            (self.outputs[axis] - 1) * self.strides[axis] + (self.kernel[axis] - 1) * self.dilations[axis] + 1
            for axis in range(self.rank)
        ]
        leading = list(tensor.shape)[: len(tensor.shape) - self.rank]

        def element(*index: Any) -> Any:
            places = index[len(leading) :]
            positions = [place - begin for place, begin in zip(places, self.begins, strict=True)]
            value = tensor[(*index[: len(leading)], *positions)]
            return tirx.if_then_else(tirx.all(*self.inside(positions)), value, padding)

        return te.compute((*leading, *reached), element, "padded")


def same_padding(
    extents: tuple[int, ...], spans: tuple[int, ...], strides: tuple[int, ...], auto_pad: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding that gives ``ceil(extent / stride)`` windows; the odd element goes to the end for SAME_UPPER."""
    begins, ends = [], []
    for extent, span, stride in zip(extents, spans, strides, strict=True):
        total = max((-(-extent // stride) - 1) * stride + span - extent, 0)
        small, large = total // 2, total - total // 2
        begins.append(small if auto_pad == "SAME_UPPER" else large)
        ends.append(large if auto_pad == "SAME_UPPER" else small)
    return tuple(begins), tuple(ends)


def _per_axis(name: str, values: tuple[int, ...] | None, rank: int, default: int) -> tuple[int, ...]:
    if not values:
        return (default,) * rank
    if len(values) != rank:
        raise refusals.wrong_value(f"needs one value for each of {rank} spatial axes", name, values)
    return values
