"""One step of the heat equation on a plane with cold surroundings: each point and its four neighbours, weighted."""

from tvm import te, tirx

from compiler import operator


@operator("com.example::HeatStep", schedule="elementwise", sweep={"x": "[h, w]", "rate": [0.1, 0.2]})
def heat_step(x: te.Tensor, *, rate: float = 0.1) -> te.Tensor:
    height, width = x.shape

    def with_border(i, j):
        inside = tirx.all(i > 0, i <= height, j > 0, j <= width)
        return tirx.if_then_else(inside, x[i - 1, j - 1], tirx.const(0, x.dtype))

    # A stage of its own: what reads it is free of conditions, and both are done a tile at a time in a core's memory.
    padded = te.compute((height + 2, width + 2), with_border, "padded")

    def value(i, j):
        around = padded[i, j + 1] + padded[i + 2, j + 1] + padded[i + 1, j] + padded[i + 1, j + 2]
        return tirx.const(rate, x.dtype) * around + tirx.const(1 - 4 * rate, x.dtype) * padded[i + 1, j + 1]

    return te.compute((height, width), value, "heat_step")
