"""RMS norm over groups of channels, with the inverse RMS as a second output: what training reads again."""

from tvm import te, tirx

from compiler import operator


@operator("com.example::GroupedRmsNorm", schedule="norm", sweep={"x": "[n, g, 4*c]", "gain": "[g, 4*c]"})
def grouped_rms_norm(x: te.Tensor, gain: te.Tensor, *, epsilon: float = 1e-5) -> tuple[te.Tensor, te.Tensor]:
    """``x`` is [rows, groups, channels of a group]: a model reshapes to that, which costs nothing."""
    rows, groups, size = (int(n) for n in x.shape)
    k = te.reduce_axis((0, size), "k")

    def square(row, group):
        wide = x[row, group, k].astype("float32")
        return te.sum(wide * wide, axis=k)

    def inverse(row, group):
        mean = sums[row, group] * tirx.const(1 / size, "float32")
        return tirx.rsqrt(mean + tirx.const(epsilon, "float32"))

    sums = te.compute((rows, groups), square, "sums")
    inverse_rms = te.compute((rows, groups), inverse, "inverse_rms")

    def scaled(row, group, channel):
        wide = x[row, group, channel].astype("float32") * inverse_rms[row, group]
        return (wide * gain[group, channel].astype("float32")).astype(x.dtype)

    return te.compute((rows, groups, size), scaled, "normed"), inverse_rms
