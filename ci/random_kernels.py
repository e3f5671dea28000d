"""Random TE kernels, compiled, run on the emulated chip and compared with TVM's CPU code of the same kernel.

Chains of elementwise operators, broadcasts, reductions, selections and guards on indices, over sizes that are odd,
prime, one, or larger than a core's memory. Every run is checked for hazards, and what the statements became is counted.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import numpy as np

import patches
from ci.random_cases import Outcome
from compiler.target import load_chip

SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 32, 33, 61, 64, 97, 100, 127, 128, 255, 257, 500, 1021)
MAX_ELEMENTS = 60_000
FLOATS = ("float32", "float32", "float32", "float16")
TOLERANCE = {"float32": (2e-4, 2e-5), "float16": (2e-2, 1e-2), "int32": (0, 0), "bool": (0, 0)}


# ---- kernels -----------------------------------------------------------------------------------------------------


class Generator:
    """One random kernel: placeholders, and stages whose values stay in a range where functions are well behaved."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.dtype = self.random.choice(FLOATS)
        self.inputs: list[Any] = []
        self._stages = 0

    def kernel(self) -> tuple[Any, str]:
        """The kernel, and the class of its schedule."""
        from tvm import te

        shape = self._shape()
        value = self._input(shape)
        schedule = "elementwise"
        for _ in range(self.random.randint(1, 5)):
            kind = self.random.random()
            if kind < 0.15 and len(value.shape) > 0:
                value, schedule = self._reduced(value), "reduction"
            elif kind < 0.3:
                value = self._guarded(value)
            elif kind < 0.36:
                value = self._repeated(value)
            elif kind < 0.6:
                value = self._binary(value)
            else:
                value = self._unary(value)
        if any(value is given for given in self.inputs):  # every stage left it as it is
            value = self._unary(value)
        return te.create_prim_func([*self.inputs, value]), schedule

    def _shape(self) -> tuple[int, ...]:
        rank, left, shape = self.random.randint(1, 4), MAX_ELEMENTS, []
        for _ in range(rank):
            size = self.random.choice([n for n in SIZES if n <= left])
            shape.append(size)
            left //= size
        self.random.shuffle(shape)
        return tuple(shape)

    def _name(self) -> str:
        self._stages += 1
        return f"stage{self._stages}"

    def _input(self, shape: tuple[int, ...]) -> Any:
        from tvm import te

        self.inputs.append(te.placeholder(shape, self.dtype, f"in{len(self.inputs)}"))
        return self.inputs[-1]

    def _unary(self, x: Any) -> Any:
        from tvm import te, tirx

        one = tirx.const(1, self.dtype)
        functions = [
            lambda v: tirx.exp(-tirx.abs(v)),
            lambda v: tirx.tanh(v),
            lambda v: tirx.sigmoid(v),
            lambda v: tirx.sqrt(tirx.abs(v) + one),
            lambda v: tirx.max(v, tirx.const(0, self.dtype)),
            lambda v: one / (tirx.abs(v) + one),
            lambda v: v * tirx.const(0.5, self.dtype) + tirx.const(0.25, self.dtype),
            lambda v: tirx.min(tirx.max(v, tirx.const(-1, self.dtype)), one),
            lambda v: tirx.Select(v > tirx.const(0, self.dtype), v, v * tirx.const(0.125, self.dtype)),
            lambda v: -v,
        ]
        if any(x is given for given in self.inputs):
            # Steps: where a value computed before them is off by one rounding, they are off by one.
            functions += [
                lambda v: tirx.floor(v * tirx.const(4, self.dtype)),
                lambda v: v.astype("int32").astype(self.dtype),
            ]
        function = self.random.choice(functions)
        return te.compute(x.shape, lambda *i: function(x(*i)), self._name())

    def _binary(self, x: Any) -> Any:
        from tvm import te, tirx

        shape = [int(n) for n in x.shape]
        broadcast = [n if self.random.random() < 0.6 else 1 for n in shape]
        other = self._input(tuple(broadcast)) if shape else self._input(())
        functions = [
            lambda a, b: a + b,
            lambda a, b: a - b,
            lambda a, b: a * b,
            lambda a, b: tirx.max(a, b),
            lambda a, b: tirx.min(a, b),
            lambda a, b: a / (tirx.abs(b) + tirx.const(1, self.dtype)),
            lambda a, b: tirx.Select(a < b, a, b * tirx.const(0.5, self.dtype)),
            lambda a, b: tirx.max(a + b, tirx.const(0, self.dtype)),
        ]
        function = self.random.choice(functions)

        def value(*i: Any) -> Any:
            at = tuple(p if n > 1 else 0 for p, n in zip(i, broadcast, strict=True))
            return function(x(*i), other(*at))

        return te.compute(shape, value, self._name())

    def _guarded(self, x: Any) -> Any:
        """Padding, or a choice by position."""
        from tvm import te, tirx

        shape = [int(n) for n in x.shape]
        if not shape:
            return x
        axis = self.random.randrange(len(shape))
        if self.random.random() < 0.5 and np.prod(shape) < MAX_ELEMENTS:
            before, after = self.random.randint(0, 3), self.random.randint(0, 3)
            padded = [n + (before + after if k == axis else 0) for k, n in enumerate(shape)]

            def pad(*i: Any) -> Any:
                at = tuple(p - before if k == axis else p for k, p in enumerate(i))
                inside = tirx.all(i[axis] >= before, i[axis] < shape[axis] + before)
                return tirx.if_then_else(inside, x(*at), tirx.const(0, self.dtype))

            return te.compute(padded, pad, self._name())
        border = self.random.randint(0, shape[axis])
        return te.compute(
            shape, lambda *i: tirx.if_then_else(i[axis] < border, x(*i), tirx.const(0.5, self.dtype)), self._name()
        )

    def _repeated(self, x: Any) -> Any:
        """Each element of an axis two or three times, as upsampling does."""
        from tvm import te

        shape = [int(n) for n in x.shape]
        times = self.random.choice([2, 3])
        if not shape or np.prod(shape) * times > MAX_ELEMENTS:
            return x
        axis = self.random.randrange(len(shape))
        repeated = [n * times if k == axis else n for k, n in enumerate(shape)]

        def value(*i: Any) -> Any:
            return x(*(p // times if k == axis else p for k, p in enumerate(i)))

        return te.compute(repeated, value, self._name())

    def _reduced(self, x: Any) -> Any:
        from tvm import te

        shape = [int(n) for n in x.shape]
        axes = sorted(self.random.sample(range(len(shape)), self.random.randint(1, min(2, len(shape)))))
        reduced = [te.reduce_axis((0, shape[axis]), f"r{axis}") for axis in axes]
        kept = [n for k, n in enumerate(shape) if k not in axes]
        function = self.random.choice([te.sum, te.max, te.min])

        def value(*i: Any) -> Any:
            rest, inner = iter(i), iter(reduced)
            at = tuple(next(inner) if k in axes else next(rest) for k in range(len(shape)))
            element = x(*at).astype("float32") if function is te.sum else x(*at)
            return function(element, axis=reduced)

        summed = te.compute(kept, value, self._name())
        if str(summed.dtype) == self.dtype:
            return summed
        return te.compute(kept, lambda *i: summed(*i).astype(self.dtype), self._name())


# ---- runs --------------------------------------------------------------------------------------------------------


def check(seed: int, chip_name: str) -> Outcome:
    """Compile and run the kernel of a seed."""
    from compiler.kernels import compile_kernel
    from compiler.pipeline import Observer

    chip = load_chip(chip_name)
    func, schedule = Generator(seed).kernel()
    arrays = _arrays(func, seed)
    try:
        kernel = compile_kernel(func, schedule, chip, Observer(), f"seed{seed}")
        outputs = _simulated(kernel, arrays, chip)
    except Exception as error:  # noqa: BLE001  whatever it is, it is this seed's failure
        return Outcome(seed, chip_name, f"{type(error).__name__}: {str(error)[:300]}")
    expected = _on_cpu(func, arrays)
    return Outcome(seed, chip_name, _difference(expected, outputs), Counter(kernel.statistics))


def _arrays(func: Any, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [
        rng.standard_normal([int(n) for n in param.shape]).astype(str(param.dtype)) for param in list(func.params)[:-1]
    ]


def _on_cpu(func: Any, arrays: list[np.ndarray]) -> np.ndarray:
    import tvm

    patches.apply()
    result = func.params[-1]
    out = tvm.runtime.empty([int(n) for n in result.shape], str(result.dtype))
    tvm.compile(func.with_attr("global_symbol", "main"), target="llvm")(*[tvm.runtime.tensor(a) for a in arrays], out)
    return np.asarray(out.numpy())


def _simulated(kernel: Any, arrays: list[np.ndarray], chip: Any) -> np.ndarray:
    from compiler.codegen import GraphBuffer, PlacedKernel, link
    from compiler.errors import HazardError
    from compiler.sim.simulator import simulate

    names = [f"b{index}" for index in range(len(arrays) + 1)]
    parameters = [p for p in kernel.code.parameters if not p.scratch]
    buffers = [
        GraphBuffer(name, p.dtype, p.shape, p.size_bytes, "output" if name == names[-1] else "input")
        for name, p in zip(names, parameters, strict=True)
    ]
    program = link([PlacedKernel("kernel", kernel.code, tuple(names))], chip, buffers).program
    run = simulate(program, chip, dict(zip(names, arrays, strict=False)), hazards=True)
    if run.hazards:
        raise HazardError(run.hazards)
    return run.outputs[names[-1]]


def _difference(expected: np.ndarray, actual: np.ndarray) -> str:
    relative, absolute = TOLERANCE[str(expected.dtype)]
    wide, got = expected.astype(np.float64), actual.astype(np.float64).reshape(expected.shape)
    wrong = ~np.isclose(got, wide, relative, absolute, equal_nan=True)
    if not wrong.any():
        return ""
    first = tuple(int(n) for n in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} elements differ, first at {first}: {got[first]} is not {wide[first]}"
