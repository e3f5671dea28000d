"""``tilewright cache``: the compiled kernels that are kept on disk."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from compiler.cli.answer import print_json
from compiler.cli.model_options import MODEL_OPTIONS, add_model_options, driver_options
from compiler.errors import Problem, UsageError
from compiler.report.tables import columns, printable, size_text, some

if TYPE_CHECKING:
    from compiler.kernel_cache import KernelCache


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "The folder is TILEWRIGHT_CACHE of the environment, if that is set."
    actions = ("status", "clear", "why")
    parser.add_argument("action", choices=actions, help="why: which kernels of MODEL it has, and why not the others")
    parser.add_argument("model", metavar="MODEL", nargs="?", help="with `why`: the model, an .onnx file")
    add_model_options(parser)


def run(args: argparse.Namespace) -> int:
    if (args.action == "why") != (args.model is not None):
        text = "`why` needs a MODEL" if args.action == "why" else f"`{args.action}` takes no MODEL"
        raise UsageError(Problem("TW0002", text))
    if args.action != "why" and any(getattr(args, name) for name in MODEL_OPTIONS):
        raise UsageError(Problem("TW0002", f"`{args.action}` is about all kernels: how to compile has no meaning"))
    from compiler.kernel_cache import KernelCache, default_folder

    cache = KernelCache(default_folder())
    content = {"status": _status, "clear": _clear, "why": _why}[args.action](args, cache)
    if args.json:
        print_json("cache", {"folder": str(cache.folder), **content})
    else:
        sys.stdout.writelines(f"{printable(line)}\n" for line in _lines(args, cache, content))
    return 0


def _status(args: argparse.Namespace, cache: KernelCache) -> dict[str, Any]:
    from compiler.kernel_cache import why_unusable

    size = cache.size_bytes()
    return {"entries": len(list(cache.entries())), "bytes": size, "unusable": why_unusable(cache.folder)}


def _clear(args: argparse.Namespace, cache: KernelCache) -> dict[str, Any]:
    count, size = cache.clear()
    return {"removed_entries": count, "freed_bytes": size}


def _why(args: argparse.Namespace, cache: KernelCache) -> dict[str, Any]:
    from compiler.driver import last_plans

    chip, options = driver_options(args)
    found: dict[Any, dict[str, Any]] = {}
    for part, kernels in enumerate(last_plans(args.model, chip, options)):
        for use in kernels.uses():
            same = part, use.key
            if same not in found:
                why_not = cache.why_not(use.job.key(kernels.chip))
                found[same] = {"nodes": kernels.nodes(use), "class": use.job.schedule, "uses": 0, "why_not": why_not}
            found[same]["uses"] += 1
    return {"chip": chip.name, "kernels": list(found.values())}


def _lines(args: argparse.Namespace, cache: KernelCache, content: dict[str, Any]) -> Iterator[str]:
    if args.action == "status":
        yield f"{cache.folder}: {content['entries']:,} entries, {size_text(content['bytes'])}"
        if content["unusable"]:
            yield f"nothing can be kept there: {content['unusable']}; TILEWRIGHT_CACHE names another folder"
    elif args.action == "clear":
        yield f"{cache.folder}: removed {content['removed_entries']:,} entries, {size_text(content['freed_bytes'])}"
    else:
        kernels = content["kernels"]
        rows = [("kernel of", "class", "uses", "in the cache?")]
        for kernel in kernels:
            answer = f"no: {kernel['why_not']}" if kernel["why_not"] else "yes"
            rows.append((some(kernel["nodes"]), kernel["class"], str(kernel["uses"]), answer))
        yield from columns(rows)
        hits = sum(not kernel["why_not"] for kernel in kernels)
        yield ""
        yield f"{hits} of {len(kernels)} kernels for {content['chip']} are in {cache.folder}"
        if hits < len(kernels):
            yield "what does not fit the chip as one kernel is not kept, and tried anew each time"
