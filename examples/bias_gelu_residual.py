"""``residual + gelu(x + bias)``: what follows the first product of a transformer's MLP, in one pass over memory."""

from tvm import te, tirx

from compiler import operator


@operator(
    "com.example::BiasGeluResidual",
    schedule="elementwise",
    sweep={"x": "[n, c]", "bias": "[c]", "residual": "[n, c]", "approximate": ["tanh", "none"]},
)
def bias_gelu_residual(x: te.Tensor, bias: te.Tensor, residual: te.Tensor, *, approximate: str = "none") -> te.Tensor:
    def constant(number):
        return tirx.const(number, x.dtype)

    def gelu(v):
        if approximate == "tanh":
            inner = constant(0.7978845608028654) * (v + constant(0.044715) * v * v * v)
            return constant(0.5) * v * (constant(1) + tirx.tanh(inner))
        return constant(0.5) * v * (constant(1) + tirx.erf(v * constant(0.7071067811865476)))

    # Stages stay in a core's memory; the one in the middle is a single instruction of the vector unit.
    biased = te.compute(x.shape, lambda *i: x(*i) + bias(i[-1]), "biased")
    activated = te.compute(x.shape, lambda *i: gelu(biased(*i)), "activated")
    return te.compute(x.shape, lambda *i: residual(*i) + activated(*i), "bias_gelu_residual")
