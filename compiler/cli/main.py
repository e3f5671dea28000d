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
from compiler.cli.internal_error import INTERNAL_ERROR, KEPT, report_internal, say
from compiler.errors import InputError, Problem, TilewrightError, UsageError

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

INTERRUPTED = 130

# name -> (module, one-line help), in the order in which `tilewright --help` lists them
VERBS: dict[str, tuple[str, str]] = {
    "compile": ("compiler.cli.compile", "compile an ONNX model into an artifact (.twm)"),
    "run": ("compiler.cli.run", "run a compiled model on the emulated chip"),
    "verify": ("compiler.cli.verify", "compare a compiled model with onnxruntime, layer by layer if asked"),
    "profile": ("compiler.cli.profile", "show where a model's cycles go, layer by layer, and what to try"),
    "explain": ("compiler.cli.explain", "show why the kernel of a node is what it is, or what an error code means"),
    "cache": ("compiler.cli.cache", "show or clear the compiled kernels that are kept on disk"),
    "ops": ("compiler.cli.ops", "list the operators that are supported"),
    "new-op": ("compiler.cli.new_op", "write a file with an operator of your own, and its test"),
    "compile-op": ("compiler.cli.compile_op", "compile one operator into an artifact"),
    "op-test": ("compiler.cli.op_test", "try operators of your own on every chip and many shapes"),
    "doctor": ("compiler.cli.doctor", "check the installation"),
    "replay": ("compiler.cli.replay", "repeat a command that ended in an internal error"),
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
        _need_output()
        status = run_verb(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except TilewrightError as error:
        if error.exit_code == INTERNAL_ERROR:
            return _report_internal(error, arguments)
        for problem in error.problems:
            say(problem.render())
        if sys.stderr.isatty():  # for people: a program knows from the code where to look
            say(f"  more: tilewright explain {error.problems[0].code}")
        return _answer(error, arguments)
    except OSError as error:
        _drop_unwritten_output()
        unwritten = InputError(Problem("TW0003", _describe(error)))
        say(str(unwritten))
        return _answer(unwritten, arguments)
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last line of defence: a bug becomes a reproducer, not a traceback
        return _report_internal(error, arguments)
    return status


def run_verb(arguments: list[str]) -> int:
    """Find the verb of a command line and run it; raises what it raises."""
    top = _top_parser()
    verb = _verb_of(arguments)
    verb_at = arguments.index(verb) if verb else len(arguments)
    try:
        options = top.parse_args(arguments[: verb_at + 1])
        if options.verb is None:
            top.error("no verb is given")
        if options.verb not in VERBS:
            raise UsageError(Problem("TW0002", f"there is no verb `{options.verb}`", hint=_nearest_verb(options.verb)))
        module_name, help_line = VERBS[options.verb]
        module = cast(Verb, import_module(module_name))
        # No abbreviations: a script that uses one would break with the next option.
        parser = Parser(prog=f"tilewright {options.verb}", description=help_line, allow_abbrev=False)
        module.add_arguments(parser)
        parser.add_argument("--json", action="store_true", help="print JSON, of errors, too")
        _add_traceback_option(parser)
        _add_reproducer_option(parser)
        args = parser.parse_args(arguments[verb_at + 1 :])
    except SystemExit as done:  # argparse has printed help or the version
        sys.stdout.flush()
        return int(done.code or 0)
    return module.run(args)


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


def _add_reproducer_option(parser: argparse.ArgumentParser) -> None:
    text = "what an internal error leaves behind: the command with its files (full), with made-up weights, or nothing"
    parser.add_argument("--reproducer", choices=KEPT, default=KEPT[0], help=text)


def _nearest_verb(word: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, VERBS, n=1)
    return f"did you mean `{near[0]}`?" if near else "`tilewright --help` lists the verbs"


def _need_output() -> None:
    """Python has no stream where the standard output or the one for errors was closed before it began."""
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
        raise InputError(Problem("TW0003", "standard output is closed"))


def _report_internal(error: Exception, arguments: Sequence[str]) -> int:
    lines, known = report_internal(error, arguments)
    for line in lines:
        say(line)
    return _answer(known, arguments)


def _answer(error: TilewrightError, arguments: Sequence[str]) -> int:
    """Under --json, the problems on standard output, too."""
    if "--json" in arguments and not error.is_answered:
        from compiler.cli.answer import print_failure

        try:
            print_failure(_verb_of(arguments), error)
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError:
            _drop_unwritten_output()
    return error.exit_code


def _verb_of(arguments: Sequence[str]) -> str:
    """The options that stand before the verb take no values, so the first word that is not an option is the verb."""
    return next((word for word in arguments if not word.startswith("-")), "")


def _describe(error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def _drop_unwritten_output() -> None:
    """Let the interpreter's own flush at exit write what is left in the buffer to nowhere, instead of failing again."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        _write_to_nowhere()


def _write_to_nowhere() -> None:
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
