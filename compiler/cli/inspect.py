"""``tilewright inspect``: what an artifact holds, whether this build can run it, and how it differs from another."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from compiler.cli.answer import print_json
from compiler.errors import IncompatibleError
from compiler.report.tables import columns, printable, shape_text, some

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
        print_json("inspect", content)
    else:
        sys.stdout.writelines(f"{printable(line)}\n" for line in lines)
    return INCOMPATIBLE if content.get("incompatible") else 0


# ---- content ------------------------------------------------------------------------------------------------


def _content(frame: Frame) -> dict[str, Any]:
    """All that can be said. Of an artifact for another build that is its frame and what its manifest says."""
    from compiler.artifact.container import CONTAINER_VERSION
    from compiler.artifact.reader import open_frame
    from compiler.runtime.model import ProgramSegment

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
        model = open_frame(frame, allow_host=True).model
        programs = [segment.program for segment in model.segments if isinstance(segment, ProgramSegment)]
        content["memory"] = _memory_map(programs, model.chip)
        content["instructions"] = _counts(programs)
        content["listing"] = programs
    return content


def _memory_map(programs: Sequence[Program], chip: Chip) -> dict[str, dict[str, int]]:
    """Of each memory, what the program that declares most declares."""
    from compiler.isa.dtypes import MEMORIES

    buffers = [b for program in programs for b in program.buffers]
    ends = {name: max((b.end for b in buffers if b.memory == name), default=0) for name in MEMORIES}
    return {
        name: {"declared_bytes": end, "capacity_bytes": chip.memory_bytes(name)} for name, end in ends.items() if end
    }


def _counts(programs: Sequence[Program]) -> dict[str, Any]:
    instrs = [instr for program in programs for instr in program.instrs]
    queues = Counter(instr.row.queue_of(instr.mods) for instr in instrs)
    categories = Counter(instr.row.category for instr in instrs)
    return {
        "total": len(instrs),
        "by_queue": {queue.name.lower(): queues[queue] for queue in sorted(queues)},
        "by_category": dict(sorted(categories.items(), key=lambda item: (-item[1], item[0]))),
    }


# ---- as text ------------------------------------------------------------------------------------------------


def _lines(content: dict[str, Any]) -> Iterator[str]:
    yield f"{content['file']}: {content['bytes']:,} bytes, container version {content['container_version']}"
    yield ""
    rows = [("section", "offset", "bytes", "sha256")]
    rows += [(name, f"{s['offset']:,}", f"{s['bytes']:,}", s["sha256"]) for name, s in content["sections"].items()]
    yield from columns(rows)
    yield ""
    if content["incompatible"]:
        yield "this build cannot run it:"
        yield from (f"  {reason}" for reason in content["incompatible"])
        yield f"made by tilewright {_short(content['manifest'].get('compiler_version'))}"
        return
    yield "this build can run it"
    manifest = content["manifest"]
    yield from columns(list(_facts(manifest)), indent="  ", numbers=False)
    yield ""
    yield from _signature_lines(manifest)
    for index, segment in enumerate(manifest["segments"]):
        yield from _segment_lines(index, segment, manifest)
    if content["memory"]:
        used = [(n, f"{m['declared_bytes']:,}", f"{m['capacity_bytes']:,}") for n, m in content["memory"].items()]
        yield from columns([("memory", "declared up to", "of"), *used])
        yield ""
    counts = content["instructions"]
    yield f"instructions: {counts['total']:,}"
    for key in ("by_queue", "by_category"):
        yield f"  {key.replace('_', ' ')}: {', '.join(f'{name} {count:,}' for name, count in counts[key].items())}"


def _facts(manifest: dict[str, Any]) -> Iterator[tuple[str, str]]:
    from compiler.isa.lexer import quoted

    chip, source = manifest["chip"], manifest["source"]
    programs = [segment for segment in manifest["segments"] if segment["kind"] == "program"]
    yield "model" if manifest["signature"] else "program", quoted(manifest["name"])
    yield "chip", f"{chip['name']}, content hash {chip['content_hash']}"
    if len(programs) == 1:
        (program,) = programs
        entries = program["entries"] if any(program["entries"]) else "all cores at instruction 0"
        tiling = some([f"{quoted(name)} = {value}" for name, value in program["tiling"]], 20)
        yield "cores", "all of the chip" if program["cores"] is None else str(program["cores"])
        yield "entries", _short(entries)
        yield "tiling words", tiling or "none"
    yield "source", f"{source['name'] or 'unnamed'}, sha256 {source['sha256'] or 'not recorded'}"
    yield "made by", f"tilewright {manifest['compiler_version']}, ABI {manifest['abi_version']}"
    yield "instruction table", manifest["isa_table_hash"]
    yield "options", ", ".join(f"{k} = {_short(v)}" for k, v in manifest["options"].items()) or "none"


def _signature_lines(manifest: dict[str, Any]) -> Iterator[str]:
    if manifest["signature"] is None:
        return
    rows = [("signature", "name", "type", "shape", "on the chip", "buffer")]
    for kind, ports in manifest["signature"].items():
        for p in ports:
            rows.append((kind[:-1], p["name"], p["onnx_dtype"], shape_text(p["shape"]), p["dtype"], p["buffer"]))
    yield from columns(rows, numbers=False)
    yield ""
    if manifest["kernels"]:
        yield from columns([("kernel", "nodes"), *((k["name"], some(k["nodes"], 8)) for k in manifest["kernels"])])
        yield ""


def _segment_lines(index: int, segment: dict[str, Any], manifest: dict[str, Any]) -> Iterator[str]:
    from compiler.isa.lexer import quoted

    if segment["kind"] == "host":
        yield f"segment {index}: host kernel {segment['name']}: {segment['reason']}"
        yield f"  arguments {', '.join(segment['arguments'])}; it writes {', '.join(segment['written'])}"
        yield ""
        return
    if manifest["signature"]:
        yield f"segment {index}: program, {segment['instructions']:,} instructions"
    constants = {constant["name"] for constant in manifest["constants"]}
    rows = [("buffer", "role", "memory", "offset", "bytes", "type", "shape")]
    for b in segment["buffers"]:
        role = f"{b['role']}, constant" if b["name"] in constants and b["role"] != "scratch" else b["role"]
        place = (b["memory"], f"{b['offset']:,}", f"{b['size_bytes']:,}")
        rows.append((quoted(b["name"]), role, *place, b["dtype"], shape_text(b["shape"])))
    if len(rows) > 1:
        yield from columns(rows)
        yield ""


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}..."


# ---- differences --------------------------------------------------------------------------------------------


def _differences(left: dict[str, Any], right: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Where two contents differ, as paths with both values; then the stretch of instructions that is not the same."""
    for key in ("bytes", "flags", "sections", "manifest", "memory", "instructions"):
        yield from _walk(key, left.get(key), right.get(key))
    for first, second in zip(left.get("listing", ()), right.get("listing", ()), strict=False):
        if first.instrs != second.instrs:
            yield _code_difference(first, second)


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
