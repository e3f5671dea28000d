"""Compiled models that the artifact and runtime tests store and run, made of programs written by hand.

``x`` (int64) and ``y`` go in; a first program computes ``t = a * weights`` and ``s = b + b`` of them, a function of
the host turns ``t`` into ``u = t + 1``, and a second program computes ``u * weights + s``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from compiler.isa.assembler import assemble
from compiler.isa.program import Program
from compiler.runtime.model import CompiledModel, HostSegment, Port, ProgramSegment, Segment
from compiler.target import Chip, load_chip

COUNT = 64

_LOAD = "    ld.ddr.ub.fp32.1d [{to}; 1], [{name}; 1], <{count}>\n"
_FIRST = """\
.program "first"
.chip tiny
.cores 1
.input in0 ddr int32 [{count}]
.input in1 ddr fp32 [{count}]
.input w0 ddr fp32 [{count}]
.output t0 ddr fp32 [{count}]
.output t1 ddr fp32 [{count}]
k0_mul:
    ld.ddr.ub.int32.1d [0; 1], [in0; 1], <{count}>
    ld.ddr.ub.fp32.1d [512; 1], [in1; 1], <{count}>
    ld.ddr.ub.fp32.1d [1024; 1], [w0; 1], <{count}>
    set_flag.mte2.v 0
    wait_flag.mte2.v 0
    vconv.int32.fp32.rne.1d [1536; 1], [0; 1], <{count}>
    vmul.fp32.1d [1536; 1], [1536; 1], [1024; 1], <{count}>
k1_add:
    vadd.fp32.1d [2048; 1], [512; 1], [512; 1], <{count}>
    set_flag.v.mte3 0
    wait_flag.v.mte3 0
    st.ddr.fp32.1d [t0; 1], [1536; 1], <{count}>
    st.ddr.fp32.1d [t1; 1], [2048; 1], <{count}>
    halt
"""
_SECOND = """\
.program "second"
.chip tiny
.cores 1
.input t2 ddr fp32 [{count}]
.input t1 ddr fp32 [{count}]
.input w0 ddr fp32 [{count}]
.output out0 ddr fp32 [{count}]
k0_last:
    ld.ddr.ub.fp32.1d [0; 1], [t2; 1], <{count}>
    ld.ddr.ub.fp32.1d [512; 1], [t1; 1], <{count}>
    ld.ddr.ub.fp32.1d [1024; 1], [w0; 1], <{count}>
    set_flag.mte2.v 0
    wait_flag.mte2.v 0
    vmul.fp32.1d [0; 1], [0; 1], [1024; 1], <{count}>
    vadd.fp32.1d [0; 1], [0; 1], [512; 1], <{count}>
    set_flag.v.mte3 0
    wait_flag.v.mte3 0
    st.ddr.fp32.1d [out0; 1], [0; 1], <{count}>
    halt
"""
RACE = ("    set_flag.mte2.v 0\n    wait_flag.mte2.v 0\n", "")


def chip() -> Chip:
    return load_chip("tiny")


def program(text: str, name: str) -> Program:
    assembled = assemble(text.replace("{count}", str(COUNT)), file=f"{name}.twasm", chip=chip())
    # The linker's labels have a point, which assembly text has not.
    return replace(assembled, labels=tuple((name.replace("_", ".", 1), at) for name, at in assembled.labels))


def weights() -> np.ndarray:
    return np.linspace(-1, 1, COUNT, dtype=np.float32)


def inputs() -> dict[str, np.ndarray]:
    return {"x": np.arange(COUNT, dtype=np.int64) - 7, "y": np.linspace(3, 9, COUNT, dtype=np.float32)}


def expected(given: dict[str, np.ndarray], host: bool = True) -> np.ndarray:
    between = given["x"].astype(np.float32) * weights() + np.float32(1 if host else 0)
    return between * weights() + given["y"] * 2


def add_one() -> str:
    """The host function as JSON; imports TVM."""
    from tvm import te

    from compiler.runtime.host import to_json

    t = te.placeholder((COUNT,), "float32", "t")
    return to_json(te.create_prim_func([t, te.compute((COUNT,), lambda i: t[i] + 1.0, "u")]))


def model(function: str = "{}", *, host: bool = True, race: bool = False) -> CompiledModel:
    """With ``host`` three segments, else two; with ``race`` the first program lacks synchronisation."""
    first, second = _FIRST, _SECOND if host else _SECOND.replace("t2", "t0")
    if race:
        first = first.replace(*RACE)
    between = (HostSegment("plus", "no instruction adds one", function, ("t0", "t2"), ("t2",)),) if host else ()
    segments: tuple[Segment, ...] = (
        ProgramSegment(program(first, "first"), tuple(f"first, line {n}" for n in range(1, 40))),
        *between,
        ProgramSegment(program(second, "second"), ()),
    )
    return CompiledModel(
        name="sample",
        chip=chip(),
        segments=segments,
        inputs=(Port("x", "in0", "int64", "int32", (COUNT,)), Port("y", "in1", "float32", "fp32", (COUNT,))),
        outputs=(Port("z", "out0", "float64", "fp32", (COUNT,)), Port("twice", "t1", "float32", "fp32", (COUNT,))),
        constants={"w0": weights()},
        source="sample.onnx",
        source_sha256="ab" * 32,
        options={"precision": "fp32", "host_kernels": host},
        kernels=(("mul", ("Cast_0", "Mul_1")), ("add", ("Add_2",)), ("plus", ("Plus_3",)), ("last", ("Gemm_4",))),
    )
