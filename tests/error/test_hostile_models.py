"""Whatever is in a model file, reading it ends in a module or in an error with a code, soon and in little memory."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest

from compiler.errors import TilewrightError
from compiler.frontend import import_model
from tests.error.hostile_models import CASES, Case, random_bytes
from tests.frontend.models import model, node

SECONDS = 20.0
# What reading any of the corpus may add to the address space of a process that has TVM and the operators loaded.
HEADROOM_BYTES = 768 << 20


@pytest.fixture(scope="module", autouse=True)
def operators_loaded() -> None:
    """Loading TVM is not what the time limits are about."""
    import_model(model([node("Relu", "x", "y")], {"x": [2]}, ["y"]).SerializeToString())


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_ends_in_its_error(case: Case) -> None:
    data = case.build()
    started = time.process_time()
    with pytest.raises(TilewrightError) as raised:
        import_model(data, limits=case.limits)
    assert time.process_time() - started < SECONDS
    assert type(raised.value) is case.error
    assert case.code in {problem.code for problem in raised.value.problems}
    for text in case.texts:
        assert text in str(raised.value)
    assert str(raised.value).replace("\n", "").isprintable()


def sound() -> bytes:
    constants = {"w": np.arange(18, dtype=np.float32).reshape(2, 9), "axis": np.array([1])}
    nodes = [node("MatMul", "x w", "a", name="product"), node("Unsqueeze", "a axis", "b"), node("Relu", "b", "y")]
    return model(nodes, {"x": [3, 2]}, ["y"], constants).SerializeToString()


@pytest.mark.parametrize("sixteenth", range(16))
def test_truncated(sixteenth: int) -> None:
    data = sound()
    with pytest.raises(TilewrightError) as raised:
        import_model(data[: len(data) * sixteenth // 16])
    assert raised.value.exit_code in (3, 4, 5)


def test_every_damaged_byte() -> None:
    """Each byte of a sound model set to a few values: a module or an error, never anything else."""
    data = sound()
    outcomes = {"module": 0, "error": 0}
    for at in range(0, len(data), 3):
        for value in (0x00, 0x7F, 0x80, 0xFF, data[at] ^ 1):
            damaged = bytes([*data[:at], value, *data[at + 1 :]])
            try:
                import_model(damaged)
                outcomes["module"] += 1
            except TilewrightError as error:
                assert error.exit_code != 70, f"byte {at} = {value:#x}: {error}"
                outcomes["error"] += 1
    assert min(outcomes.values()) > 10


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes(seed: int) -> None:
    with pytest.raises(TilewrightError) as raised:
        import_model(random_bytes(seed))
    assert raised.value.exit_code in (3, 4, 10)


def test_memory_is_bounded() -> None:
    """The whole corpus again, in a process that has little more address space than an idle one."""
    script = f"""
import resource
from pathlib import Path
from compiler.errors import TilewrightError
from compiler.frontend import import_model
from tests.error.hostile_models import CASES
from tests.frontend.models import model, node
import_model(model([node("Relu", "x", "y")], {{"x": [2]}}, ["y"]).SerializeToString())
datas = {{name: case.build() for name, case in CASES.items()}}
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + {HEADROOM_BYTES},) * 2)
for name, data in datas.items():
    try:
        import_model(data, limits=CASES[name].limits)
    except TilewrightError as error:
        if isinstance(error, CASES[name].error):
            continue
    raise SystemExit(f"{{name}} ended differently with little memory")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("length", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_long_chain(length: int) -> None:
    """As many nodes as anybody likes: nothing on the way goes deeper for each of them."""
    nodes = [node("Relu" if at % 2 else "Neg", f"v{at}", f"v{at + 1}") for at in range(length)]
    started = time.process_time()
    imported = import_model(model(nodes, {"v0": [4]}, [f"v{length}"]).SerializeToString())
    assert time.process_time() - started < length / 1000
    assert len(imported.nodes) == length
    assert len(imported.module.functions) == 3


def test_many_problems_are_told_together() -> None:
    nodes = [node("Relu", f"missing{at}", f"y{at}", name=f"n{at}") for at in range(5)]
    with pytest.raises(TilewrightError) as raised:
        import_model(model(nodes, {"x": [2]}, ["y0"]).SerializeToString())
    assert [problem.message.split(":")[0] for problem in raised.value.problems] == [
        f"Relu node 'n{i}'" for i in range(5)
    ]


def test_odd_names_are_no_error() -> None:
    names = ["שלום", "\u202eabc", "a b", "", "名前", "tab\there"]
    nodes = [node("Relu", "x", "y", name=name) for name in names]
    for at, each in enumerate(nodes):
        each.input[0], each.output[0] = ("x" if at == 0 else f"\u200bv{at}"), f"\u200bv{at + 1}"
    imported = import_model(model(nodes, {"x": [2]}, ["\u200bv6"]).SerializeToString())
    assert {name for group in imported.nodes.values() for name in group} == {*names, "\u200bv4"} - {""}


def test_nan_and_zero_sized_tensors_are_data() -> None:
    constants = {"scale": np.array([np.nan, np.inf], np.float32), "none": np.empty((0, 2), np.float32)}
    nodes = [node("Mul", "x scale", "a"), node("Concat", "a none", "y", axis=0)]
    imported = import_model(model(nodes, {"x": [3, 2]}, ["y"], constants).SerializeToString())
    assert imported.outputs[0].shape == (3, 2)
