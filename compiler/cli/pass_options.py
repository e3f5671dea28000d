"""What `tilewright compile` can be asked to show of the passes, and how it uses the machine it runs on."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.cli.words import natural, positive
from compiler.errors import Problem, UsageError

if TYPE_CHECKING:
    from compiler.pipeline import Observer


def add_pass_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how it is compiled here")
    group.add_argument(
        "--jobs", metavar="N", type=positive, help="processes that compile kernels (default: one per processor)"
    )
    group.add_argument("--no-cache", action="store_true", help="compile every kernel, known or not")
    group = parser.add_argument_group("what to see of the passes")
    group.add_argument("--dump-ir", metavar="DIR", help="write the IR after every pass into this new folder")
    group.add_argument("--time-passes", action="store_true", help="print the seconds of every pass; uses no cache")
    group.add_argument("--stop-after", metavar="PASS", help="print what this pass makes of a kernel; write no artifact")
    group.add_argument(
        "--kernel", metavar="NODE", help="with --stop-after: the kernel of this node (default: the first)"
    )
    group.add_argument("--check-passes", action="store_true", help="run every kernel before and after each pass; slow")
    group.add_argument("--seed", metavar="N", type=natural, default=0, help="of --check-passes's inputs (default: 0)")


def pass_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options as keywords of `compiler.compile`."""
    return {
        "cache": not (args.no_cache or args.time_passes),  # a kernel from the cache takes no pass any time
        "jobs": args.jobs,
        "observer": observer_of(args),
    }


def observer_of(args: argparse.Namespace) -> Observer:
    from compiler.observation import observer
    from compiler.pipeline import check_name

    if args.stop_after is not None:
        check_name(args.stop_after)
    elif args.kernel is not None:
        raise UsageError(Problem("TW0002", "--kernel says where --stop-after stops, which is not given"))
    folder = Path(args.dump_ir) if args.dump_ir is not None else None
    return observer(dump_ir=folder, stop_after=args.stop_after, check_passes=args.check_passes, seed=args.seed)


def print_stopped(args: argparse.Namespace) -> int:
    """Compile up to the pass after which to stop, and print what it made of the chosen kernel."""
    from compiler.cli.model_options import driver_options
    from compiler.report.kernel_lookup import stopped
    from compiler.report.tables import printable

    observer = observer_of(args)
    chip, options = driver_options(args)
    found = stopped(args.model, chip, options, observer, args.kernel)
    sys.stdout.write(f"# {printable(observer.kernel)} after {found.name}\n")
    sys.stdout.writelines(f"{printable(line)}\n" for line in found.subject.script().splitlines())
    print_times(args, observer)
    return 0


def print_times(args: argparse.Namespace, observer: Observer) -> None:
    """On standard error: standard output is for what was asked of the model."""
    if args.time_passes:
        from compiler.observation import time_table

        print(time_table(observer.seconds), file=sys.stderr)
