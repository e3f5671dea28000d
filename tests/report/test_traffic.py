"""Bytes of DDR are given to the kernel that moved them and to the tensor that they are of."""

import numpy as np

import compiler
from compiler.isa.assembler import assemble
from compiler.report.profile import profile
from compiler.report.traffic import Moved, _merged, _Painted, ddr_traffic, folded
from compiler.sim.simulator import prepare
from compiler.target import load_chip
from models import zoo


def test_all_bytes_are_somebodys() -> None:
    loaded = compiler.load(compiler.compile(zoo.build("digits-cnn"), chip="tiny", precision="fp16"))
    found = profile(loaded)
    assert sum(each.bytes for each in found.traffic) == found.ddr_bytes
    for layer in found.layers:
        assert sum(each.bytes for each in found.traffic if each.layer == layer.name) == layer.ddr_bytes


def test_tensors_are_called_as_people_call_them() -> None:
    loaded = compiler.load(compiler.compile(zoo.build("digits-cnn"), chip="tiny", precision="fp16"))
    by_kernel: dict[str, set[tuple[str, str]]] = {}
    for each in profile(loaded).traffic:
        by_kernel.setdefault(each.layer, set()).add((each.tensor, each.queue))
    assert ("image", "MTE2") in by_kernel["Relu_output_0"]
    results = {tensor for kept in by_kernel.values() for tensor, _ in kept if tensor.startswith("result of ")}
    assert results <= {f"result of {kernel}" for kernel in by_kernel}
    assert any(tensor.startswith("constant w") for tensor, _ in by_kernel["Relu_2_output_0"])
    assert any(tensor == "logits" for tensor, _ in by_kernel["logits"])


def test_what_is_read_is_called_by_who_wrote_it() -> None:
    """One kernel writes in two pieces what another reads at once."""
    program = assemble(
        """
        .chip tiny
        .cores 1
        .input x ddr fp32 [64]
        .output y ddr fp32 [64]
        .buffer t ddr fp32 [64]
        first:
            ld.ddr.ub.fp32.1d [0; 1], [x; 1], <64>
            barrier_all
            st.ddr.fp32.1d [t; 1], [0; 1], <32>
            st.ddr.fp32.1d [t + 128; 1], [128; 1], <32>
            barrier_all
        second:
            ld.ddr.ub.fp32.1d [0; 1], [t; 1], <64>
            barrier_all
            st.ddr.fp32.1d [y; 1], [0; 1], <64>
            halt
        """,
        chip=load_chip("tiny"),
    )
    found = ddr_traffic(prepare(program, load_chip("tiny")), {"x": "image"})
    assert set(found) == {
        Moved("first", "image", "MTE2", 256),
        Moved("first", "result of first", "MTE3", 256, "first"),
        Moved("second", "result of first", "MTE2", 256, "first"),
        Moved("second", "y", "MTE3", 256),
    }


def test_folded_stacks_keep_their_separators() -> None:
    assert list(folded((Moved("a b;c", "x", "MTE2", 7),))) == ["a_b:c;x;MTE2 7"]


def test_ranges_are_merged() -> None:
    assert _merged(np.array([8, 0, 4, 20]), np.array([12, 4, 8, 24])) == [(0, 12), (20, 24)]
    assert _merged(np.array([], np.int64), np.array([], np.int64)) == []


def test_the_last_to_paint_is_seen() -> None:
    paint = _Painted()
    paint.paint(0, 10, 1)
    paint.paint(4, 6, 2)
    paint.paint(20, 30, 3)
    paint.paint(5, 25, 4)
    assert paint.of(np.array([0, 3, 4, 5, 12, 24, 25, 29, 30])).tolist() == [1, 1, 2, 4, 4, 4, 3, 3, -1]
