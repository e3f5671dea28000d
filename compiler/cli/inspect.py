"""``tilewright inspect``: what an artifact holds, whether this build can run it, and how it differs from another."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from compiler.errors import IncompatibleError

if TYPE_CHECKING:
    from compiler.artifact.reader import Frame
    from compiler.isa.program import Program
    from compiler.target import Chip

INCOMPATIBLE = IncompatibleError.exit_code
MAX_DIFFERENCES = 100
MAX_DIFF_INSTRUCTIONS = 20
MAX_VALUE_CHARS = 80


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the artifact; exits with 7 if it is for another build")
    parser.add_argument("--diff", metavar="OTHER", help="show in what another artifact differs")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    from compiler.artifact.reader import read_frame

    frame = read_frame(args.file)
    content = _content(frame)
    if args.diff is not None:
        content = {"differences": list(_differences(content, _content(read_frame(args.diff))))}
        lines: Iterable[str] = _difference_lines(content["differences"])
    else:
        lines = _lines(content)
    if args.json:
        content.pop("listing", None)
        lines = [json.dumps(content, indent=2)]
    sys.stdout.writelines(f"{_escaped(line)}\n" if not args.json else f"{line}\n" for line in lines)
    return INCOMPATIBLE if content.get("incompatible") else 0


# ---- content ------------------------------------------------------------------------------------------------


def _content(frame: Frame) -> dict[str, Any]:
    """All that can be said. Of an artifact for another build that is its frame and what its manifest says."""
    from compiler.artifact.container import CONTAINER_VERSION
    from compiler.artifact.reader import open_frame

    content: dict[str, Any] = {
        "file": frame.file,
        "bytes": frame.header.file_size,
        "container_version": CONTAINER_VERSION,
        "flags": frame.header.flags,
        "header_sha256": frame.header.sha256,
        "sections": {s.name: {"offset": s.offset, "bytes": s.size, "sha256": s.sha256} for s in frame.header.sections},
        "incompatible": frame.incompatibilities,
        "manifest": frame.tables,
    }
    if not content["incompatible"]:
        artifact = open_frame(frame, allow_host=True)
        content["memory"] = _memory_map(artifact.program, artifact.chip)
        content["instructions"] = _counts(artifact.program)
        content["listing"] = artifact.program
    return content


def _memory_map(program: Program, chip: Chip) -> dict[str, dict[str, int]]:
    from compiler.isa.dtypes import MEMORIES

    ends = {name: max((b.end for b in program.buffers if b.memory == name), default=0) for name in MEMORIES}
    return {
        name: {"declared_bytes": end, "capacity_bytes": chip.memory_bytes(name)} for name, end in ends.items() if end
    }


def _counts(program: Program) -> dict[str, Any]:
    queues = Counter(instr.row.queue_of(instr.mods) for instr in program.instrs)
    categories = Counter(instr.row.category for instr in program.instrs)
    return {
        "total": len(program.instrs),
        "by_queue": {queue.name.lower(): queues[queue] for queue in sorted(queues)},
        "by_category": dict(sorted(categories.items(), key=lambda item: (-item[1], item[0]))),
    }


# ---- as text ------------------------------------------------------------------------------------------------


def _lines(content: dict[str, Any]) -> Iterator[str]:
    yield f"{content['file']}: {content['bytes']:,} bytes, container version {content['container_version']}"
    yield ""
    rows = [("section", "offset", "bytes", "sha256")]
    rows += [(name, f"{s['offset']:,}", f"{s['bytes']:,}", s["sha256"]) for name, s in content["sections"].items()]
    yield from _columns(rows)
    yield ""
    if content["incompatible"]:
        yield "this build cannot run it:"
        yield from (f"  {reason}" for reason in content["incompatible"])
        yield f"made by tilewright {_short(content['manifest'].get('compiler_version'))}"
        return
    yield "this build can run it"
    yield from _manifest_lines(content["manifest"])
    yield from _buffer_lines(content["manifest"], content["memory"])
    counts = content["instructions"]
    yield f"instructions: {counts['total']:,}"
    for key in ("by_queue", "by_category"):
        yield f"  {key.replace('_', ' ')}: {', '.join(f'{name} {count:,}' for name, count in counts[key].items())}"


def _manifest_lines(manifest: dict[str, Any]) -> Iterator[str]:
    from compiler.isa.lexer import quoted

    program, chip, source = manifest["program"], manifest["chip"], manifest["source"]
    tiling = ", ".join(f"{quoted(name)} = {value}" for name, value in program["tiling"][:20])
    more = f", and {len(program['tiling']) - 20} more" if len(program["tiling"]) > 20 else ""
    entries = program["entries"] if any(program["entries"]) else "all cores at instruction 0"
    rows = [
        ("program", quoted(program["name"])),
        ("chip", f"{chip['name']}, content hash {chip['content_hash']}"),
        ("cores", "all of the chip" if program["cores"] is None else str(program["cores"])),
        ("entries", _short(entries)),
        ("source", f"{source['name'] or 'unnamed'}, sha256 {source['sha256'] or 'not recorded'}"),
        ("made by", f"tilewright {manifest['compiler_version']}, ABI {manifest['abi_version']}"),
        ("instruction table", manifest["isa_table_hash"]),
        ("options", ", ".join(f"{k} = {_short(v)}" for k, v in manifest["options"].items()) or "none"),
        ("tiling words", (tiling + more) or "none"),
    ]
    yield from _columns(rows, indent="  ", numbers=False)
    yield ""


def _buffer_lines(manifest: dict[str, Any], memory: dict[str, dict[str, int]]) -> Iterator[str]:
    from compiler.isa.lexer import quoted

    constants = {constant["name"] for constant in manifest["constants"]}
    if manifest["buffers"]:
        rows = [("buffer", "role", "memory", "offset", "bytes", "type", "shape")]
        for b in manifest["buffers"]:
            role = f"{b['role']}, constant" if b["name"] in constants else b["role"]
            shape = "x".join(map(str, b["shape"])) or "scalar"
            rows.append(
                (quoted(b["name"]), role, b["memory"], f"{b['offset']:,}", f"{b['size_bytes']:,}", b["dtype"], shape)
            )
        yield from _columns(rows)
        yield ""
        used = [(name, f"{m['declared_bytes']:,}", f"{m['capacity_bytes']:,}") for name, m in memory.items()]
        yield from _columns([("memory", "declared up to", "of"), *used])
        yield ""


def _columns(rows: Sequence[tuple[str, ...]], indent: str = "", numbers: bool = True) -> Iterator[str]:
    """Cells that hold numbers stand to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    right = [numbers and all(_is_number(row[i]) for row in rows[1:]) for i in range(len(rows[0]))]
    for row in rows:
        cells = [
            f"{cell:>{width}}" if number else f"{cell:<{width}}"
            for cell, width, number in zip(row, widths, right, strict=True)
        ]
        yield (indent + "  ".join(cells)).rstrip()


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").isdigit()


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}..."


def _escaped(line: str) -> str:
    """What a file holds may not steer the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


# ---- differences --------------------------------------------------------------------------------------------


def _differences(left: dict[str, Any], right: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Where two contents differ, as paths with both values; then the stretch of instructions that is not the same."""
    for key in ("bytes", "flags", "sections", "manifest", "memory", "instructions"):
        yield from _walk(key, left.get(key), right.get(key))
    if "listing" in left and "listing" in right and left["listing"].instrs != right["listing"].instrs:
        yield _code_difference(left["listing"], right["listing"])


def _walk(path: str, left: Any, right: Any) -> Iterator[dict[str, Any]]:
    """Depth is bounded: the parser has refused deeper documents."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted({*left, *right}):
            yield from _walk(f"{path}.{key}", left.get(key), right.get(key))
    elif isinstance(left, list) and isinstance(right, list):
        for index in range(max(len(left), len(right))):
            values = [items[index] if index < len(items) else None for items in (left, right)]
            yield from _walk(f"{path}[{index}]", *values)
    elif left != right or type(left) is not type(right):
        yield {"path": path, "left": left, "right": right}


def _code_difference(left: Program, right: Program) -> dict[str, Any]:
    """What stands between the common beginning and the common end."""
    from compiler.isa.disassembler import instruction_text

    shorter = min(len(left.instrs), len(right.instrs))
    first = next((i for i in range(shorter) if left.instrs[i] != right.instrs[i]), shorter)
    last = next((i for i in range(shorter - first) if left.instrs[-1 - i] != right.instrs[-1 - i]), shorter - first)
    sides = [program.instrs[first : len(program.instrs) - last] for program in (left, right)]
    texts = [[instruction_text(instr) for instr in side[:MAX_DIFF_INSTRUCTIONS]] for side in sides]
    return {
        "path": "code",
        "first": first,
        "left": texts[0],
        "right": texts[1],
        "left_count": len(sides[0]),
        "right_count": len(sides[1]),
    }


def _difference_lines(differences: list[dict[str, Any]]) -> Iterator[str]:
    if not differences:
        yield "no differences"
    code = [d for d in differences if d["path"] == "code"]
    plain = [d for d in differences if d["path"] != "code"]
    for one in plain[:MAX_DIFFERENCES]:
        yield f"{one['path']}: {_short(one['left'])} -> {_short(one['right'])}"
    if len(plain) > MAX_DIFFERENCES:
        yield f"{len(plain) - MAX_DIFFERENCES} more differences are not shown; --json lists all"
    for one in code:
        yield f"from instruction {one['first']}: {one['left_count']} instructions -> {one['right_count']}"
        for sign, side in (("-", "left"), ("+", "right")):
            yield from (f"  {sign} {text}" for text in one[side])
            if one[f"{side}_count"] > len(one[side]):
                yield f"  {sign} ... {one[f'{side}_count'] - len(one[side])} more"
