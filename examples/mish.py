"""Mish, ``x * tanh(log(1 + exp(x)))``: the first operator anybody writes. The vector unit has an instruction for it."""

from tvm import te, tirx

from compiler import operator


@operator("com.example::Mish", schedule="elementwise", sweep={"x": "[n, c]"})
def mish(x: te.Tensor) -> te.Tensor:
    # Where exp overflows, log and tanh bring its infinity back to one.
    return te.compute(x.shape, lambda *i: x(*i) * tirx.tanh(tirx.log1p(tirx.exp(x(*i)))), "mish")
