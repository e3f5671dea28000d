"""Bytes of DDR are given to the kernel that moved them and to the tensor that they are of."""

import numpy as np

import compiler
from compiler.report.profile import profile
from compiler.report.traffic import Moved, _merged, _Painted, folded
from models import zoo


def test_all_bytes_are_somebodys() -> None:
    loaded = compiler.load(compiler.compile(zoo.build("digits-cnn"), chip="tiny", precision="fp16"))
    found = profile(loaded)
    assert sum(each.bytes for each in found.traffic) == found.ddr_bytes
    for layer in found.layers:
        assert sum(each.bytes for each in found.traffic if each.kernel == layer.name) == layer.ddr_bytes


def test_tensors_are_called_as_people_call_them() -> None:
    loaded = compiler.load(compiler.compile(zoo.build("digits-cnn"), chip="tiny", precision="fp16"))
    by_kernel: dict[str, set[tuple[str, str]]] = {}
    for each in profile(loaded).traffic:
        by_kernel.setdefault(each.kernel, set()).add((each.tensor, each.queue))
    assert ("image", "MTE2") in by_kernel["Relu_output_0"]
    assert ("result of Relu_output_0", "MTE2") in by_kernel["Relu_1_output_0"]
    assert any(tensor.startswith("constant w") for tensor, _ in by_kernel["Relu_1_output_0"])
    assert any(tensor == "logits" for tensor, _ in by_kernel["logits"])


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
