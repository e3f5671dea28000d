"""Finds the verb, runs it, and turns whatever goes wrong into a message and an exit code.

Only the standard library is imported here, and only the chosen verb's module after that: ``tilewright --help`` answers
at once, whatever a verb needs to do its work.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn, Protocol, cast

from compiler import __version__
from compiler.errors import InputError, Problem, TilewrightError, UsageError

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

INTERNAL_ERROR = 70
INTERRUPTED = 130

# name -> (module, one-line help), in the order in which `tilewright --help` lists them
VERBS: dict[str, tuple[str, str]] = {
    "compile": ("compiler.cli.compile", "compile an ONNX model into an artifact (.twm)"),
    "run": ("compiler.cli.run", "run a compiled model on the emulated chip"),
    "verify": ("compiler.cli.verify", "compare a compiled model with onnxruntime, layer by layer if asked"),
    "profile": ("compiler.cli.profile", "show where a model's cycles go, layer by layer, and what to try"),
    "explain": ("compiler.cli.explain", "show why the kernel of a node is what it is"),
    "cache": ("compiler.cli.cache", "show or clear the compiled kernels that are kept on disk"),
    "ops": ("compiler.cli.ops", "list the operators that are supported"),
    "doctor": ("compiler.cli.doctor", "check the installation"),
    "asm": ("compiler.cli.asm", "assemble a program (.twasm) into an artifact (.twm)"),
    "disasm": ("compiler.cli.disasm", "print the program in an artifact as assembly text"),
    "exec": ("compiler.cli.exec", "run a program on the reference interpreter or the pipeline simulator"),
    "chips": ("compiler.cli.chips", "list the chips, or show and check one"),
    "isa": ("compiler.cli.isa", "show the instruction set"),
    "inspect": ("compiler.cli.inspect", "show what an artifact holds, without running it"),
}


class Verb(Protocol):
    """What the module of a verb defines."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are errors like all others."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(Problem("TW0002", message, hint=f"`{self.prog} --help` shows how it is used"))

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        print(self.format_help(), end="", file=file)  # argparse's own hides that the output cannot be written


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (the process's own by default) and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run_and_report(arguments)
    except BrokenPipeError:
        return _end_by_broken_pipe()


def _run_and_report(arguments: list[str]) -> int:
    try:
        status = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except TilewrightError as error:
        return _report(error)
    except OSError as error:
        _drop_unwritten_output()
        return _report(InputError(Problem("TW0003", _describe(error))))
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last line of defence: a bug becomes a reproducer, not a traceback
        return _report_internal(error, arguments)
    return status


def _run(arguments: list[str]) -> int:
    top = _top_parser()
    # The options that stand before the verb take no values, so the first word that is not an option is the verb.
    verb_at = next((i for i, word in enumerate(arguments) if not word.startswith("-")), len(arguments))
    try:
        options = top.parse_args(arguments[: verb_at + 1])
        if options.verb is None:
            top.error("no verb is given")
        if options.verb not in VERBS:
            raise UsageError(Problem("TW0002", f"there is no verb `{options.verb}`", hint=_nearest_verb(options.verb)))
        module_name, help_line = VERBS[options.verb]
        verb = cast(Verb, import_module(module_name))
        parser = Parser(prog=f"tilewright {options.verb}", description=help_line)
        verb.add_arguments(parser)
        _add_traceback_option(parser)
        args = parser.parse_args(arguments[verb_at + 1 :])
    except SystemExit as done:  # argparse has printed help or the version
        sys.stdout.flush()
        return int(done.code or 0)
    return verb.run(args)


def _top_parser() -> Parser:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:<{width}}  {help_line}" for name, (_, help_line) in VERBS.items())
    parser = Parser(
        prog="tilewright",
        usage="tilewright [--version] [--traceback] VERB ...",
        description="A compiler for tiled AI accelerators, and the machine it compiles for.",
        epilog=f"verbs:\n{verbs}\n\n`tilewright VERB --help` explains a verb. The README lists the exit codes.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tilewright {__version__}")
    _add_traceback_option(parser)
    parser.add_argument("verb", nargs="?", metavar="VERB", help=argparse.SUPPRESS)
    return parser


def _add_traceback_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--traceback", action="store_true", help="show where in the code an internal error happened")


def _nearest_verb(word: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, VERBS, n=1)
    return f"did you mean `{near[0]}`?" if near else "`tilewright --help` lists the verbs"


def _report(error: TilewrightError) -> int:
    for problem in error.problems:
        _say(problem.render())
    return error.exit_code


def _report_internal(error: BaseException, arguments: list[str]) -> int:
    import platform
    import shlex
    import tempfile
    import traceback
    from pathlib import Path

    trace = "".join(traceback.format_exception(error))
    words = [word for word in arguments if word != "--traceback"]
    replay = f"cd {shlex.quote(str(Path.cwd()))} && {shlex.join(['tilewright', '--traceback', *words])}"
    report = "\n".join(
        [
            f"tilewright {__version__}",
            f"python     {platform.python_version()} on {platform.platform()}",
            f"argv       {arguments!r}",
            f"replay     {replay}",
            "",
            trace,
        ]
    )
    summary = traceback.format_exception_only(error)[-1].strip()
    _say(Problem("TW0070", f"internal: {summary}", hint="this is a bug in tilewright; please report it").render())
    try:
        descriptor, path = tempfile.mkstemp(prefix="tilewright-internal-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(report)
        _say(f"  reproducer: {path}")
    except OSError as unwritten:
        _say(f"  reproducer: not written: {_describe(unwritten)}")
    _say(f"  replay: {replay}")
    if "--traceback" in arguments:
        _say(trace)
    return INTERNAL_ERROR


def _describe(error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def _say(text: str) -> None:
    # Messages quote what files hold: nothing in them may steer the terminal.
    shown = "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)
    print(shown, file=sys.stderr)


def _drop_unwritten_output() -> None:
    """Let the interpreter's own flush at exit write what is left in the buffer to nowhere, instead of failing again."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # standard output is closed, or no file
        return


def _end_by_broken_pipe() -> NoReturn:
    """Whoever read the output has gone (``| head``): end as a Unix tool does, killed by SIGPIPE and without a word."""
    _drop_unwritten_output()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.raise_signal(signal.SIGPIPE)
    raise SystemExit(128 + signal.SIGPIPE)  # only where SIGPIPE is blocked


if __name__ == "__main__":
    sys.exit(main())
