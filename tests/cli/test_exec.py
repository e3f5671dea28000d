"""``tilewright exec``, through the command's own entry point."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from compiler.artifact import write_program
from compiler.cli.main import main
from compiler.sim.simulator import simulate
from compiler.target.chip_file import SHIPPED
from tests.sim import sample

DYNAMIC = """\
.chip tiny
.cores 1
.input a ddr int32 [64]
.output c ddr int32 [64]
.tiling rows = 2
.equ WIDTH 32
    ldt x1, rows
    loop x2, x1, done
    smul x3, x2, WIDTH * 4
    ld.ddr.ub.int32.1d [0; 1], [x3 + a; 1], <WIDTH>
    set_flag.mte2.mte3 0
    wait_flag.mte2.mte3 0
    st.ddr.int32.1d [x3 + c; 1], [0; 1], <WIDTH>
    set_flag.mte3.mte2 0
    wait_flag.mte3.mte2 0
done:
    halt
"""
RACE = DYNAMIC.replace("    set_flag.mte2.mte3 0\n    wait_flag.mte2.mte3 0\n", "")

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "scale.twasm"
    path.write_text(sample.SOURCE)
    return str(path)


@pytest.fixture
def artifact(tmp_path: Path) -> str:
    path = tmp_path / "scale.twm"
    write_program(path, sample.program(), sample.chip())
    return str(path)


@pytest.fixture
def dynamic(tmp_path: Path) -> str:
    path = tmp_path / "dynamic.twasm"
    path.write_text(DYNAMIC)
    return str(path)


@pytest.fixture
def arrays(tmp_path: Path) -> list[str]:
    words = []
    for name, value in sample.inputs().items():
        np.save(tmp_path / f"{name}.npy", value)
        words += ["--input", f"{name}={tmp_path / name}.npy"]
    return words


def fails(words: list[str], code: int, capsys: Capture) -> str:
    assert main(words) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return captured.err


# ---- running --------------------------------------------------------------------------------------------------


def test_text_and_artifact_run_the_same(text: str, artifact: str, capsys: Capture) -> None:
    outputs = []
    for file in (text, artifact):
        assert main(["exec", file, "--random-inputs", "1", "--hazards"]) == 0
        outputs.append(capsys.readouterr())
    assert outputs[0] == outputs[1]
    assert "hazards: none" in outputs[0].out
    assert outputs[0].err == ""


def test_cycles_are_the_simulator_s(text: str, capsys: Capture) -> None:
    assert main(["exec", text, "--timing-only", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["statistics"]["cycles"] == simulate(sample.program(), sample.chip()).cycles
    assert content["outputs"] is None
    assert content["hazards"] is None


def test_arrays_go_in_and_come_out(artifact: str, arrays: list[str], tmp_path: Path, capsys: Capture) -> None:
    words = ["--output", f"c={tmp_path / 'c.npy'}", "--output", f"p={tmp_path / 'p.npy'}"]
    assert main(["exec", artifact, *arrays, *words]) == 0
    inputs = sample.inputs()
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), 2 * inputs["a"])
    product = inputs["m"].astype(np.float32) @ inputs["m"].astype(np.float32)
    np.testing.assert_allclose(np.load(tmp_path / "p.npy"), np.stack([product] * 2), rtol=1e-4, atol=1e-4)
    out = capsys.readouterr().out
    assert "output c: float32 2x4x256, sha256 " in out
    assert f"-> {tmp_path / 'c.npy'}" in out


def test_both_engines_compute_the_same(artifact: str, arrays: list[str], capsys: Capture) -> None:
    outputs = []
    for options in ([], ["--interpret"]):
        assert main(["exec", artifact, *arrays, "--json", *options]) == 0
        outputs.append(json.loads(capsys.readouterr().out))
    assert [one["engine"] for one in outputs] == ["simulator", "interpreter"]
    assert outputs[0]["outputs"] == outputs[1]["outputs"]


def test_random_inputs_depend_on_the_seed_and_nothing_else(artifact: str, arrays: list[str], capsys: Capture) -> None:
    def hashes(*words: str) -> dict[str, str]:
        assert main(["exec", artifact, "--json", *words]) == 0
        outputs = json.loads(capsys.readouterr().out)["outputs"]
        return {name: one["sha256"] for name, one in outputs.items()}

    first, again, other = (hashes("--random-inputs", seed) for seed in ("1", "1", "2"))
    assert first == again
    assert first["c"] != other["c"]
    mixed = hashes("--random-inputs", "1", *arrays[:2])  # `a` from the file, the rest from the seed
    assert mixed["c"] != first["c"]
    assert mixed["p"] == first["p"]


def test_without_inputs_only_the_timing_is_simulated(text: str, capsys: Capture) -> None:
    assert main(["exec", text]) == 0
    captured = capsys.readouterr()
    assert "cycles = " in captured.out
    assert captured.err == "note: no inputs are given, so only the timing is simulated\n"


def test_constants_stand_in_for_inputs(tmp_path: Path, capsys: Capture) -> None:
    path, inputs = tmp_path / "const.twm", sample.inputs()
    write_program(path, sample.program(), sample.chip(), constants={"m": inputs["m"]})
    np.save(tmp_path / "a.npy", inputs["a"])
    assert main(["exec", str(path), "--input", f"a={tmp_path / 'a.npy'}", "--json"]) == 0
    with_constant = json.loads(capsys.readouterr().out)["outputs"]
    np.save(tmp_path / "m.npy", np.zeros((16, 16), np.float16))
    words = ["--input", f"a={tmp_path / 'a.npy'}", "--input", f"m={tmp_path / 'm.npy'}", "--json"]
    assert main(["exec", str(path), *words]) == 0
    replaced = json.loads(capsys.readouterr().out)["outputs"]
    assert with_constant["c"] == replaced["c"]
    assert with_constant["p"] != replaced["p"]


def test_tiling_words_and_constants_can_be_changed(dynamic: str, tmp_path: Path, capsys: Capture) -> None:
    def steps(*words: str) -> int:
        assert main(["exec", dynamic, "--timing-only", "--json", *words]) == 0
        return int(json.loads(capsys.readouterr().out)["statistics"]["steps"])

    assert steps("--tiling", "rows=1") < steps()
    assert steps("-D", "WIDTH=16") == steps()
    assert steps("--tiling", "rows=0x0") == 3


def test_a_seed_delays_queues_and_changes_no_result(artifact: str, capsys: Capture) -> None:
    runs = []
    for seed in ("0", "7"):
        assert main(["exec", artifact, "--random-inputs", "1", "--seed", seed, "--json"]) == 0
        runs.append(json.loads(capsys.readouterr().out))
    assert runs[0]["outputs"] == runs[1]["outputs"]
    assert runs[0]["statistics"]["cycles"] < runs[1]["statistics"]["cycles"]


def test_another_chip_of_the_same_name(artifact: str, tmp_path: Path, capsys: Capture) -> None:
    slow = tmp_path / "slow.toml"
    slow.write_text((SHIPPED / "tiny.toml").read_text().replace("head_cycles = 4", "head_cycles = 400"))
    cycles = []
    for words in ([], ["--chip", str(slow)], ["--chip", "tiny"]):
        assert main(["exec", artifact, "--timing-only", "--json", *words]) == 0
        captured = capsys.readouterr()
        note = f"note: the artifact was made for tiny, not for what {slow} is now\n"
        assert captured.err == (note if words[1:] == [str(slow)] else "")
        cycles.append(json.loads(captured.out)["statistics"]["cycles"])
    assert cycles[0] == cycles[2] < cycles[1]
    assert "the artifact was made for tiny, not for tw2, which cannot" in fails(
        ["exec", artifact, "--chip", "tw2"], 7, capsys
    )


# ---- traces ---------------------------------------------------------------------------------------------------


def test_a_trace_ends_with_the_run(artifact: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "t.json"
    assert main(["exec", artifact, "--timing-only", "--trace", str(path), "--json"]) == 0
    events = json.loads(path.read_text())["traceEvents"]
    cycles = json.loads(capsys.readouterr().out)["statistics"]["cycles"]
    assert max(e["ts"] + e.get("dur", 0) for e in events if "ts" in e) == cycles


def test_a_truncated_trace_is_announced(
    artifact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    from compiler.sim import trace

    monkeypatch.setattr(trace.write_trace, "__kwdefaults__", {"max_events": 10})
    path = tmp_path / "t.json"
    assert main(["exec", artifact, "--timing-only", "--trace", str(path)]) == 0
    assert "note: the trace shows 10 of 126 instructions: those before cycle" in capsys.readouterr().err


def test_a_trace_that_cannot_be_written_is_no_trace(artifact: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "none" / "t.json"
    assert "cannot write what --trace names" in fails(
        ["exec", artifact, "--timing-only", "--trace", str(path)], 3, capsys
    )


# ---- what goes wrong ------------------------------------------------------------------------------------------


def test_races_are_listed_and_nothing_is_written(tmp_path: Path, capsys: Capture) -> None:
    path, output = tmp_path / "race.twasm", tmp_path / "c.npy"
    path.write_text(RACE)
    words = ["exec", str(path), "--random-inputs", "1", "--output", f"c={output}"]
    assert main([*words, "--hazards"]) == 9
    captured = capsys.readouterr()
    assert "error[TW1405]" in captured.err
    assert "race.twasm:11" in captured.err
    assert "hazards: none" not in captured.out
    assert not output.exists()
    assert main([*words, "--hazards", "--json"]) == 9
    assert "TW1405" in json.loads(capsys.readouterr().out)["hazards"][0]
    assert main(words) == 0  # nobody asked
    assert output.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--interpret", "--trace", "t"], "--trace has no meaning together with --interpret"),
        (["--interpret", "--hazards"], "--hazards has no meaning together with --interpret"),
        (["--interpret", "--seed", "1"], "--seed has no meaning together with --interpret"),
        (["--timing-only", "--input", "a=b"], "--input has no meaning together with --timing-only"),
        (["--timing-only", "--random-inputs", "0"], "--random-inputs has no meaning together with --timing-only"),
        (["--timing-only", "--output", "c=d"], "--output has no meaning together with --timing-only"),
        (["--input", "a"], "--input a: expected NAME=FILE"),
        (["--input", "=x"], "--input =x: expected NAME=FILE"),
        (["--output", "c=1", "--output", "c=2"], "--output c is given twice"),
        (["--input", "z=x.npy"], "the program has no input z"),
        (["--output", "a=x.npy"], "the program has no output a"),
        (["--output", "c=x.npy"], "no array is given for input a"),
        (["--interpret"], "no array is given for input a"),
        (["--tiling", "n=1"], "the program has no tiling word n"),
        (["--tiling", "n=one"], "--tiling n: 'one' is not an integer"),
        (["--max-steps", "0"], "0 is too few"),
        (["--seed", "-1"], "is not a number from 0"),
        (["--random-inputs", "1e3"], "is not a number from 0"),
        (["-D", "X=1"], "-D X: the program has no constant of this name"),
    ],
)
def test_usage(words: list[str], message: str, text: str, capsys: Capture) -> None:
    assert main(["exec", text, *words]) in (2, 4)
    assert message in capsys.readouterr().err


def test_constants_are_for_text(artifact: str, capsys: Capture) -> None:
    assert "-D is for .twasm files" in fails(["exec", artifact, "-D", "X=1"], 2, capsys)


def test_tiling_words_have_64_bits(dynamic: str, capsys: Capture) -> None:
    assert "what fits 64 bits" in fails(["exec", dynamic, "--tiling", f"rows={2**63}"], 2, capsys)


def test_arrays_that_do_not_fit(artifact: str, tmp_path: Path, capsys: Capture) -> None:
    np.save(tmp_path / "a.npy", np.zeros((2, 4, 255), np.float32))
    error = fails(["exec", artifact, "--input", f"a={tmp_path / 'a.npy'}"], 4, capsys)
    assert "a.npy: error[TW1553]: input a has shape [2, 4, 256]; the array has [2, 4, 255]" in error
    (tmp_path / "a.npy").write_bytes(b"no array")
    assert "not an array in .npy format" in fails(["exec", artifact, "--input", f"a={tmp_path / 'a.npy'}"], 3, capsys)


def test_steps_have_a_limit_in_both_engines(dynamic: str, capsys: Capture) -> None:
    words = ["exec", dynamic, "--tiling", "rows=2", "--random-inputs", "1", "--max-steps", "5"]
    assert "TW1301" in fails(words, 10, capsys)
    assert "TW1301" in fails([*words, "--interpret"], 10, capsys)


def test_a_program_without_a_chip(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "any.twasm"
    path.write_text("halt\n")
    assert "does not say for which chip it is" in fails(["exec", str(path)], 2, capsys)
    assert main(["exec", str(path), "--chip", "tiny"]) == 0


def test_text_is_verified_before_it_runs(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "bad.twasm"
    path.write_text(".chip tiny\nset_flag.s.v 0\nhalt\n")
    assert "TW1283" in fails(["exec", str(path)], 4, capsys)


def test_a_damaged_artifact(artifact: str, capsys: Capture) -> None:
    path = Path(artifact)
    path.write_bytes(path.read_bytes()[:-1])
    assert "TW1513" in fails(["exec", artifact], 8, capsys)


def test_random_inputs_of_terabytes_are_refused(tmp_path: Path, capsys: Capture) -> None:
    chip = tmp_path / "wide.toml"
    chip.write_text((SHIPPED / "tiny.toml").read_text().replace("ddr_bytes = 67108864", f"ddr_bytes = {1 << 40}"))
    path = tmp_path / "wide.twasm"
    path.write_text(f".chip tiny\n.input a ddr fp32 [{1 << 37}]\nhalt\n")
    words = ["exec", str(path), "--chip", str(chip), "--random-inputs", "1"]
    assert "the random inputs need 524288 MiB; limit 8192 MiB" in fails(words, 6, capsys)


def test_names_cannot_steer_the_terminal(tmp_path: Path, capsys: Capture) -> None:
    program = sample.program()
    evil = [replace(b, name="c\x1b[31m") if b.name == "c" else b for b in program.buffers]
    path = tmp_path / "evil.twm"
    write_program(path, replace(program, buffers=tuple(evil)), sample.chip())
    assert main(["exec", str(path), "--random-inputs", "1"]) == 0
    assert "\x1b" not in capsys.readouterr().out
