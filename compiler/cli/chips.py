"""``tilewright chips``: list the chips that ship, show one with its peaks, check a chip file, print the key table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler.cli.answer import print_json
from compiler.target import Chip, chip_names, load_chip
from compiler.target.check import SECTIONS
from compiler.target.schema import KEYS, PATH_KEYS, PATHS, RULES, Key

CUBE_DTYPES = ("fp16", "bf16", "fp32", "int8")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument("chip", nargs="?", metavar="CHIP", help="show this chip: a name, or the path of a .toml file")
    what.add_argument("--check", metavar="PATH", help="check a chip file and show nothing else")
    what.add_argument("--schema", action="store_true", help="print every key of a chip file and every rule")


def run(args: argparse.Namespace) -> int:
    if args.schema:
        content, text = _schema_content(), _schema_text
    elif args.check is not None:
        chip = load_chip(Path(args.check))
        content, text = {"name": chip.name, "content_hash": chip.content_hash}, _check_text
    elif args.chip is not None:
        content, text = _chip_content(load_chip(args.chip)), _chip_text
    else:
        content, text = {"chips": [_chip_content(load_chip(name)) for name in chip_names()]}, _list_text
    if args.json:
        print_json("chips", content)
        return 0
    lines = text(content)
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0


def peaks(chip: Chip) -> dict[str, float]:
    """What follows from a chip's values: the most the whole chip can compute and move per second."""
    giga = chip.clock_mhz / 1000
    tera = {dtype: 2 * chip.cores * chip.macs_per_cycle(dtype) * giga / 1000 for dtype in CUBE_DTYPES}
    rates = chip.bandwidth
    ddr = rates.ddr_bytes_per_kilocycle * giga / 1000
    values = {f"{dtype}_{'tops' if dtype == 'int8' else 'tflops'}": rate for dtype, rate in tera.items()}
    values |= {
        "vector_fp32_gflops": chip.cores * chip.vector.bytes_per_cycle / 4 * giga,
        "ddr_gb_per_second": ddr,
        "llb_gb_per_second": chip.clusters * rates.llb_bytes_per_kilocycle * giga / 1000,
        "fp16_flops_per_ddr_byte": tera["fp16"] * 1000 / ddr,
    }
    return {name: round(value, 6) for name, value in values.items()}


def _chip_content(chip: Chip) -> dict[str, Any]:
    derived = {"cores": chip.cores, "content_hash": chip.content_hash, "peaks": peaks(chip)}
    return {"chip": chip.to_dict(), "derived": derived}


def _schema_content() -> dict[str, Any]:
    return {
        "keys": [_key_content(key) for key in KEYS],
        "paths": [{"name": row.name, "required": row.required} for row in PATHS.values()],
        "path_keys": [_key_content(key) for key in PATH_KEYS],
        "rules": [{"name": item.name, "keys": item.keys, "text": item.text} for item in RULES],
    }


def _key_content(key: Key) -> dict[str, Any]:
    kind = "string" if key.pattern else "integer"
    return {"key": key.name, "type": kind, "allowed": key.allowed, "meaning": key.doc}


def _list_text(content: dict[str, Any]) -> Iterable[str]:
    rows = [("chip", "cores", "MHz", "fp16 TFLOPS", "DDR GB/s", "L1", "UB", "description")]
    for item in content["chips"]:
        chip, derived = item["chip"], item["derived"]
        rows.append((
            chip["name"], f"{chip['clusters']} x {chip['cores_per_cluster']}", str(chip["clock_mhz"]),
            f"{derived['peaks']['fp16_tflops']:.4g}", f"{derived['peaks']['ddr_gb_per_second']:.4g}",
            _size(chip["memory"]["l1_bytes"]), _size(chip["memory"]["ub_bytes"]), chip["description"],
        ))  # fmt: skip
    return _columns(rows)


def _check_text(content: dict[str, Any]) -> Iterable[str]:
    yield f"chip {content['name']}: no errors (content hash {content['content_hash']})"


def _chip_text(content: dict[str, Any]) -> Iterable[str]:
    chip, derived = content["chip"], content["derived"]
    yield f"{chip['name']}: {chip['description']}"
    yield ""
    yield "derived"
    yield from _columns(
        [("cores", str(derived["cores"])), ("content_hash", derived["content_hash"])]
        + [(name, f"{value:,.6g}") for name, value in derived["peaks"].items()],
        indent="  ",
    )
    for section, keys in SECTIONS.items():
        yield ""
        yield f"[{section}]" if section else "chip"
        yield from _columns(_section_rows(chip, section, keys), indent="  ")
    yield ""
    yield "[path], rates for one core"
    names = [key.name for key in PATH_KEYS]
    rows = [("path", *names, "GB/s")]
    for name in (name for name in PATHS if name in chip["path"]):
        path = chip["path"][name]
        rate = path["bytes_per_cycle"] * chip["clock_mhz"] / 1000
        rows.append((name, *(str(path[key]) for key in names), f"{rate:g}"))
    yield from _columns(rows, indent="  ")
    absent = [name for name in PATHS if name not in chip["path"]]
    if absent:
        yield f"  absent: {', '.join(absent)}"


def _section_rows(chip: dict[str, Any], section: str, keys: Mapping[str, Key]) -> list[tuple[str, ...]]:
    table = chip
    for part in section.split(".") if section else ():
        table = table[part]
    shown = [leaf for leaf, key in keys.items() if key.name not in ("name", "description")]
    values = [f"{table[leaf]} ({_size(table[leaf])})" if section == "memory" else str(table[leaf]) for leaf in shown]
    return [(leaf, value, keys[leaf].doc) for leaf, value in zip(shown, values, strict=True)]


def _schema_text(content: dict[str, Any]) -> Iterable[str]:
    def rows(keys: list[dict[str, Any]], prefix: str = "") -> list[tuple[str, ...]]:
        return [(prefix + key["key"], key["type"], key["allowed"], key["meaning"]) for key in keys]

    heading = [("key", "type", "allowed", "meaning")]
    yield from _columns(heading + rows(content["keys"]) + rows(content["path_keys"], "path.NAME."))
    yield ""
    yield "NAME is one of these, and a chip without a path lacks the instructions that use it:"
    for required, label in ((True, "required"), (False, "optional")):
        yield f"  {label}: {', '.join(row['name'] for row in content['paths'] if row['required'] is required)}"
    yield ""
    yield "rules between keys:"
    yield from (f"  {item['text']}" for item in content["rules"])


def _size(count: int) -> str:
    for unit, one in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= one:
            return f"{count / one:g} {unit}"
    return f"{count} B"


def _columns(rows: Sequence[tuple[str, ...]], indent: str = "") -> Iterable[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        yield (indent + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))).rstrip()
