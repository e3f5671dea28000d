"""How far a long compilation is: one line on a terminal, which goes when it is done; nothing anywhere else.

It is drawn on standard error, so that it never mixes with what was asked for. ``NO_COLOR`` takes its colours away,
``--no-progress`` all of it, for terminals that only pretend to be one.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from compiler.report.tables import printable

if TYPE_CHECKING:
    from compiler.api import Artifact

Report = Callable[[int, int, str], None]  # how many are done, of how many, and the name of the last

_NAME_CHARS = 40


def compile_shown(args: argparse.Namespace, model: Any, options: dict[str, Any]) -> Artifact:
    """`compiler.compile`, with a bar that grows with the kernels that are compiled."""
    from compiler.api import compile
    from compiler.kernel_cache import default_folder, why_unusable
    from compiler.pipeline import Observer

    why = why_unusable(default_folder()) if options.get("cache", True) else ""
    if why:
        print(f"note: kernels are not kept in {printable(str(default_folder()))}: {printable(why)}", file=sys.stderr)
    observer = options.get("observer") or Observer()
    with shown(is_wanted=not args.no_progress) as observer.progress:
        return compile(model, **{**options, "observer": observer})


@contextmanager
def shown(*, is_wanted: bool = True) -> Iterator[Report | None]:
    """What to call with how far it is; None where nobody would see it."""
    if not is_wanted or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("kernels"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task("", total=None)

        def report(done: int, total: int, name: str) -> None:
            # Names come from the model: they may not be markup, and not steer the terminal.
            plain = "".join(c if c.isprintable() else "?" for c in name)[:_NAME_CHARS]
            bar.update(task, completed=done, total=total, description=escape(plain))

        yield report
