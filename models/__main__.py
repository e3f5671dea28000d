"""``python -m models list``, ``python -m models write NAME -o FILE`` and ``python -m models check [NAME ...]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from compiler.errors import TilewrightError
from models import zoo
from models.checks import check


def list_models() -> int:
    for name in zoo.names():
        model = zoo.manifest(name)
        shapes = ", ".join(
            f"{each.name} {each.draw.dtype}[{'x'.join(map(str, each.declared))}]" for each in model.inputs
        )
        print(f"{name:20} {shapes}\n{'':20} {model.source}\n{'':20} {' '.join(model.chips + model.precisions)}")
    return 0


def write_model(name: str, seed: int, path: Path) -> int:
    content = zoo.build(name, seed).SerializeToString(deterministic=True)
    path.write_bytes(content)
    print(f"wrote {path}: {len(content)} bytes")
    return 0


def check_models(names: list[str]) -> int:
    """Print what the checks measure, and fail if a model does not pass."""
    bad = 0
    for name in names or zoo.names():
        found = check(name)
        bad += bool(found.faults)
        print(f"{name:20} {found.nodes:4} nodes {found.weight_bytes / 1e6:6.1f} MB  {found.outputs}")
        for fault in found.faults:
            print(f"FAILED: {name}: {fault}")
    return 1 if bad else 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m models", description="the models of the regression zoo")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("list", help="names, inputs and sources")
    write = verbs.add_parser("write", help="write a model as ONNX")
    write.add_argument("name")
    write.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    write.add_argument("--seed", type=int, default=0)
    checked = verbs.add_parser("check", help="valid, runs in onnxruntime, sane in fp32 and fp16")
    checked.add_argument("names", nargs="*")
    args = parser.parse_args(argv)
    try:
        if args.verb == "write":
            return write_model(args.name, args.seed, args.output)
        return list_models() if args.verb == "list" else check_models(args.names)
    except TilewrightError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
