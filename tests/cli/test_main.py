"""How the command finds its verb, and what it makes of everything that can go wrong."""

import argparse
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from zipfile import ZipFile

import pytest

from compiler import __version__
from compiler.cli.main import VERBS, main
from compiler.errors import EXIT_CODES, CapacityError, HazardError, Place, Problem, TilewrightError

HEAVY = {"numpy", "numba", "rich", "ml_dtypes", "tvm", "onnx"}

Run = Callable[[argparse.Namespace], int]
Install = Callable[[Run], None]


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a verb `trial` that takes one integer option and does what the test says."""

    def install(run: Run) -> None:
        module = ModuleType("trial_verb")
        module.add_arguments = lambda parser: parser.add_argument("--count", type=int)  # type: ignore[attr-defined]
        module.run = run  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "trial_verb", module)
        monkeypatch.setitem(VERBS, "trial", ("trial_verb", "a verb for tests"))

    return install


def failing(error: BaseException) -> Run:
    def run(args: argparse.Namespace) -> int:
        raise error

    return run


def modules_after(*arguments: str) -> set[str]:
    code = (
        f"import sys; from compiler.cli.main import main; main({list(arguments)}); print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_help_lists_every_verb_and_imports_nothing_heavy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert set(re.findall(r"^  (\w[\w-]*)  ", capsys.readouterr().out, re.MULTILINE)) == set(VERBS)
    loaded = modules_after("--help")
    assert not loaded & HEAVY
    assert not loaded & {module for module, _ in VERBS.values()}


@pytest.mark.parametrize("name", [name for name, (module, _) in VERBS.items() if find_spec(module)])
def test_help_of_a_verb_imports_no_other_verb(name: str) -> None:
    module = VERBS[name][0]
    assert modules_after(name, "--help") & {module for module, _ in VERBS.values()} == {module}


def test_a_model_that_is_not_there_is_not_waited_for() -> None:
    assert not modules_after("compile", "missing.onnx") & {"tvm", "onnx"}


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tilewright {__version__}\n"


def test_a_verb_gets_its_arguments_and_its_status_is_returned(verb: Install) -> None:
    verb(lambda args: args.count)
    assert main(["trial", "--count", "9"]) == 9


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no verb is given"),
        (["trail"], "there is no verb `trail`\n  help: did you mean `trial`?"),
        (["--colour", "trial"], "unrecognized arguments: --colour"),
        (["trial", "--count", "many"], "argument --count: invalid int value: 'many'"),
        (["trial", "left over"], "unrecognized arguments: left over"),
    ],
)
def test_wrong_usage(verb: Install, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    verb(lambda args: 0)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"error[TW0002]: {said}")
    assert not captured.out


def test_every_problem_is_printed(verb: Install, capsys: pytest.CaptureFixture[str]) -> None:
    problems = [Problem("TW1001", "one", Place("a.twasm", 3, 5, 2, "    ld x"), "less"), Problem("TW1002", "two")]
    verb(failing(HazardError(problems)))
    assert main(["trial"]) == 9
    assert capsys.readouterr().err == "".join(f"{problem.render()}\n" for problem in problems)


@pytest.mark.parametrize("kind", TilewrightError.__subclasses__())
def test_every_kind_of_error_has_a_documented_exit_code(verb: Install, kind: type[TilewrightError]) -> None:
    verb(failing(kind(Problem("TW1001", "no"))))
    assert main(["trial"]) == kind.exit_code
    assert kind.exit_code in EXIT_CODES


def test_one_is_left_to_what_fails_before_the_command_runs() -> None:
    """Python itself ends with 1 where it cannot start a program; a script can tell that from an answer of ours."""
    assert 1 not in EXIT_CODES


def test_a_person_is_told_where_to_read_more(
    verb: Install, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    verb(failing(CapacityError([Problem("TW1274", "no"), Problem("TW1278", "neither")])))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert main(["trial"]) == 6
    assert capsys.readouterr().err.endswith("neither\n  more: tilewright explain TW1274\n")


def test_what_a_message_quotes_cannot_steer_the_terminal(verb: Install, capsys: pytest.CaptureFixture[str]) -> None:
    verb(failing(CapacityError(Problem("TW1001", "\x1b[2Jgone\r\u202e ü"))))
    assert main(["trial"]) == 6
    assert capsys.readouterr().err == "error[TW1001]: \\x1b[2Jgone\\r\\u202e ü\n"


def test_a_file_that_cannot_be_read(verb: Install, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    verb(failing(FileNotFoundError(2, "No such file or directory", "x.npy")))
    assert main(["trial"]) == 3
    assert capsys.readouterr().err == "error[TW0003]: x.npy: No such file or directory\n"


def test_interrupted(verb: Install, capsys: pytest.CaptureFixture[str]) -> None:
    verb(failing(KeyboardInterrupt()))
    assert main(["trial"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize("error", [ZeroDivisionError("oh"), RecursionError("deep"), MemoryError()])
def test_a_bug_leaves_a_reproducer(
    verb: Install,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    error: Exception,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    verb(failing(error))
    assert main(["trial", "--count", "1"]) == 70
    said = capsys.readouterr().err
    assert said.startswith(f"error[TW0070]: internal: {type(error).__name__}")
    assert "Traceback" not in said
    (reproducer,) = tmp_path.glob("tilewright-internal-*.zip")
    assert f"reproducer: {reproducer} (" in said
    assert f"replay: tilewright replay {reproducer}\n" in said
    with ZipFile(reproducer) as archive:
        written = archive.read("report.txt").decode()
    assert all(part in written for part in ("Traceback", __version__, "tilewright trial --count 1\n"))


@pytest.mark.parametrize("arguments", [["--traceback", "trial"], ["trial", "--traceback"]])
def test_a_traceback_for_who_asks(
    verb: Install,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[str],
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    verb(failing(ZeroDivisionError("oh")))
    assert main(arguments) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_a_reader_that_goes_away_ends_the_command_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        command = [sys.executable, "-m", "compiler.cli.main", "--help"]
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written() -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "compiler.cli.main", "--help"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (3, b"error[TW0003]: No space left on device\n")


@pytest.mark.parametrize("words", [["chips"], ["chips", "--json"], ["--help"]])
def test_output_that_is_closed(words: list[str]) -> None:
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "compiler.cli.main", *words]
    done = subprocess.run(command, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (3, b"error[TW0003]: standard output is closed\n")


def test_errors_may_be_closed() -> None:
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-m", "compiler.cli.main", "isa", "--wrong"]
    assert subprocess.run(command, stdout=subprocess.PIPE, check=False).returncode == 2
