"""The fuzz job makes inputs that reach what it wants to test, and sees it when one of them ends badly."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from ci import fuzz
from ci.fuzz_files import Seed, seeds
from ci.fuzz_inputs import KINDS, Input, Kind, mislabelled, mutation, truncations
from compiler.artifact import read_program
from compiler.errors import InvalidError, Problem, TilewrightError

SEALED = [kind for kind in KINDS if "sealed" in kind.name]


@pytest.fixture(autouse=True)
def memory_of_tests_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs have a process of their own in the job; here it holds what other tests have left in it."""
    monkeypatch.setattr(fuzz, "MEMORY_MIB", fuzz.MEMORY_MIB + fuzz._peak_mib())


def whole(seed: Seed) -> Input:
    return Input("whole", 0, "twm", seed.artifact)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_number_always_gives_the_same_input_and_another_number_another(kind: Kind) -> None:
    contents = [mutation(kind, number, 1).content for number in range(6)]
    assert contents == [mutation(kind, number, 1).content for number in range(6)]
    assert contents != [mutation(kind, number, 2).content for number in range(6)]
    assert len(set(contents)) > 1


@pytest.mark.parametrize("kind", SEALED, ids=lambda kind: kind.name)
def test_sealed_damage_is_not_stopped_by_a_checksum(kind: Kind) -> None:
    codes = set()
    for number in range(80):
        try:
            read_program(mutation(kind, number, 1).content)
            codes.add("read")
        except TilewrightError as error:
            codes |= {problem.code for problem in error.problems}
    assert codes - {"TW1512", "TW1518"}, "only checksums were met"
    assert "header" in kind.name or "read" in codes


def test_shares_are_of_a_hundred() -> None:
    assert sum(kind.share for kind in KINDS) == 100


def test_every_real_file_is_cut_off_at_every_64th_and_mislabelled() -> None:
    cut = list(truncations())
    assert len(cut) == 64 * (2 * len(seeds()) + 3 + 1)
    assert len({one.name for one in cut}) == len(cut)
    assert {one.suffix for one in mislabelled()} == {"twm", "twasm", "toml", "npy"}


def test_a_file_without_damage_runs_and_is_accepted(tmp_path: Path) -> None:
    verdict = fuzz.judge(whole(seeds()[1]), tmp_path)
    assert (verdict.fault, verdict.code, verdict.ran) == ("", 0, True)


def test_an_error_for_a_person_is_a_refusal(tmp_path: Path) -> None:
    verdict = fuzz.judge(Input("text", 0, "twasm", b".chip tiny\nnonsense x1\n"), tmp_path)
    assert (verdict.fault, verdict.code, verdict.ran) == ("", 4, False)


def test_any_other_exception_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("planted")

    monkeypatch.setattr(fuzz, "_use", broken)
    assert "KeyError" in fuzz.judge(whole(seeds()[0]), tmp_path).fault


@pytest.mark.parametrize("error", [TilewrightError(Problem("TW0070", "internal")), InvalidError([])])
def test_an_internal_or_empty_error_is_a_failure(
    error: TilewrightError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(fuzz, "_use", broken)
    assert fuzz.judge(whole(seeds()[0]), tmp_path).fault


def test_changed_bytes_behind_a_checksum_must_not_be_accepted(tmp_path: Path) -> None:
    one = Input("twm bits", 0, "twm", seeds()[0].artifact, never_accepted=True)
    assert "accepted" in fuzz.judge(one, tmp_path).fault


def test_engines_that_disagree_are_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import compiler.sim.interpreter as interpreter

    real = interpreter.interpret

    def other(*arguments: object, **options: object) -> SimpleNamespace:
        outputs = real(*arguments, **options).outputs
        return SimpleNamespace(outputs={name: array[::-1].copy() for name, array in outputs.items()})

    monkeypatch.setattr(interpreter, "interpret", other)
    assert "disagree" in fuzz.judge(whole(seeds()[0]), tmp_path).fault


def test_too_much_memory_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "MEMORY_MIB", 1)
    assert "the limit is 1" in fuzz.judge(whole(seeds()[0]), tmp_path).fault


@pytest.mark.slow
def test_an_input_that_takes_too_long_ends_its_worker_and_the_next_one_goes_on() -> None:
    slow, quick = whole(seeds()[-1]), Input("empty", 0, "npy", b"")
    verdicts = {one.name: verdict for one, verdict in fuzz.judged([slow, quick], 1, seconds=0.02)}
    assert "not done after 0.02 s" in verdicts[slow.name].fault
    assert (verdicts[quick.name].fault, verdicts[quick.name].code) == ("", 3)


@pytest.mark.slow
def test_a_few_hundred_inputs_end_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.main(["--mutations", "300", "--seed", "1", "--workers", "2"]) == 0, capsys.readouterr().out
