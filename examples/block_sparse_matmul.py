"""``w @ x`` for a band of blocks: block row b of ``w`` has columns ``step * b`` to ``step * b + k`` only.

The sum over k reads ``x`` at a place that moves with the block, so it is one batched product for the matrix unit, and
the zeros outside the band cost neither time nor memory.
"""

from tvm import te

from compiler import operator


@operator("com.example::BandMatMul", schedule="matmul", sweep={"w": "[3, r, 4*k]", "x": "[8*k, n]", "step": [1, 2]})
def band_matmul(w: te.Tensor, x: te.Tensor, *, step: int) -> te.Tensor:
    """``w`` is [blocks, rows, k]; the result is [blocks, rows, n], the block rows one after another."""
    blocks, rows, depth = (int(n) for n in w.shape)
    if step * (blocks - 1) + depth > int(x.shape[0]):
        raise ValueError(f"{blocks} blocks of {depth} columns, {step} apart, need more than {x.shape[0]} rows of x")
    k = te.reduce_axis((0, depth), "k")

    def value(b, i, j):
        return te.sum(w[b, i, k].astype("float32") * x[b * step + k, j].astype("float32"), axis=k)

    sums = te.compute((blocks, rows, x.shape[1]), value, "sums")
    return te.compute(sums.shape, lambda *i: sums(*i).astype(x.dtype), "rounded")
