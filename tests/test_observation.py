"""What a person can ask to see of the passes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tvm.script import tirx as T

from compiler import pipeline
from compiler.errors import UsageError
from compiler.observation import CheckPasses, DumpIR, Miscompiled, index_ranges, observer, time_table
from compiler.target import load_chip
from compiler.tir.rewriter import Rewriter
from passes.base import Pass
from passes.tir.loop_collapse import LoopCollapse
from passes.tir.loop_fission import LoopFission

TINY = load_chip("tiny")
NAMES = ["/conv1/Conv", "../../up", "..", "", "/", "a" * 500, "a b\n\x1b[2J", "C:\\x", "üñ", "a_b_", "x.attempt2"]


@dataclass(frozen=True)
class Text:
    """Something with a script, as IR has one."""

    text: str

    def script(self) -> str:
        return self.text


def doubled() -> Any:
    @T.prim_func(private=True)
    def kernel(a: T.Buffer((4, 6), "float32"), b: T.Buffer((4, 6), "float32")):
        for i, j in T.grid(4, 6):
            b[i, j] = a[i, j] * T.float32(2)

    return kernel


@dataclass(frozen=True)
class Wrong(Pass):
    """Writes one where something else was to be written: a pass with a bug, under a name that is checked."""

    name: ClassVar[str] = "if-promotion"

    def run(self, subject: Any, chip: Any) -> Any:
        return _Ones().function(subject)


class _Ones(Rewriter):
    def store(self, store: Any) -> Any:
        from tvm import tirx

        return tirx.BufferStore(store.buffer, tirx.const(1, "float32"), store.indices)


def dump(folder: Path, *runs: tuple[str, list[str]], **limits: int) -> dict[str, list[tuple[str, str]]]:
    """Runs of passes over texts, dumped; the files and what they hold, by folder."""
    write = DumpIR(folder, **limits)
    for kernel, texts in runs:
        subjects = [Text(text) for text in texts]
        for number, (before, after) in enumerate(pairwise(subjects)):
            write(kernel, f"pass{number}", before, after)
    return {
        path.name: [(file.name, file.read_text(encoding="utf-8")) for file in sorted(path.iterdir())]
        for path in sorted(folder.iterdir())
        if path.is_dir()
    }


def test_a_dump_is_numbered_and_says_what_did_not_change(tmp_path: Path) -> None:
    assert dump(tmp_path / "d", ("k", ["a", "b", "b", "a"])) == {
        "000-k": [
            ("00-input.py", "a"),
            ("01-pass0.py", "b"),
            ("02-pass1.py", "# (unchanged)\n"),
            ("03-pass2.py", "a"),
        ]
    }


def test_a_dump_of_the_pipeline_is_what_the_passes_make(tmp_path: Path) -> None:
    watched = pipeline.Observer([DumpIR(tmp_path / "d")], kernel="k")
    after = pipeline.run([LoopFission(), LoopCollapse()], doubled(), TINY, watched)
    files = [path.read_text(encoding="utf-8") for path in sorted((tmp_path / "d" / "000-k").iterdir())]
    assert files == [doubled().script(), "# (unchanged)\n", after.script()]


def test_names_from_a_model_do_not_leave_the_folder(tmp_path: Path) -> None:
    folders = dump(tmp_path / "d", *((name, ["a", "b"]) for name in NAMES))
    assert len(folders) == len(NAMES)
    assert [path.name for path in tmp_path.iterdir()] == ["d"]
    assert all(name.isascii() and name.isprintable() and len(name) < 100 for name in folders)
    index = [json.loads(line) for line in (tmp_path / "d" / "index.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(one["folder"], one["kernel"]) for one in index] == list(zip(sorted(folders), NAMES, strict=True))


def test_kernels_of_the_same_name_have_folders_of_their_own(tmp_path: Path) -> None:
    folders = dump(tmp_path / "d", ("lstm", ["a", "b"]), ("lstm", ["c", "c"]), ("/lstm", ["d", "e"]))
    assert {name: [text for _, text in files] for name, files in folders.items()} == {
        "000-lstm": ["a", "b"],
        "001-lstm": ["c", "# (unchanged)\n"],
        "002-_lstm": ["d", "e"],
    }


def test_a_dump_is_bounded(tmp_path: Path) -> None:
    cut = dump(tmp_path / "a", ("k", ["1234567890", "ok"]), file_bytes=4)
    assert cut["000-k"] == [("00-input.py", "1234\n# (this file is cut)\n"), ("01-pass0.py", "ok")]
    full = dump(tmp_path / "b", ("k", ["1" * 30, "2" * 30, "3"]), ("l", ["4", "5"]), total_bytes=40)
    assert full == {
        "000-k": [("00-input.py", "1" * 30), ("01-pass0.py", "2" * 10 + "\n# (the dump is full and ends here)\n")]
    }


def test_a_dump_goes_into_a_new_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("dear")
    with pytest.raises(UsageError, match="TW0023"):
        observer(dump_ir=tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "dear"


def test_a_wrong_pass_is_named() -> None:
    check = CheckPasses()
    with pytest.raises(Miscompiled, match="pass if-promotion changes what kernel k computes: b") as caught:
        pipeline.run([LoopFission(), Wrong(), LoopCollapse()], doubled(), TINY, pipeline.Observer([check], kernel="k"))
    assert caught.value.exit_code == 70
    assert "--dump-ir" in caught.value.problems[0].hint


def test_right_passes_are_checked_where_they_changed_something() -> None:
    check = CheckPasses(seed=3)
    pipeline.run([LoopFission(), LoopCollapse()], doubled(), TINY, pipeline.Observer([check]))
    assert check.checked == 1


def test_every_pass_between_loops_and_instructions_is_checked() -> None:
    names = [one.name for one in pipeline.kernel_passes()]
    first, last = names.index("lower-blocks"), names.index("emit-instructions")
    assert CheckPasses()._names == set(names[first + 1 : last])


def test_indices_are_drawn_from_what_they_index() -> None:
    @T.prim_func(private=True)
    def kernel(table: T.Buffer((7, 4), "float32"), rows: T.Buffer((3,), "int32"), out: T.Buffer((3, 4), "float32")):
        for i, j in T.grid(3, 4):
            out[i, j] = table[rows[i], j]

    assert index_ranges(kernel) == {"rows": (0, 7)}


def test_times_are_listed_with_the_slowest_first() -> None:
    lines = time_table({"quick": 0.25, "slow": 0.75}).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["slow", "0.750", "75.0%"],
        ["quick", "0.250", "25.0%"],
        ["all", "1.000"],
    ]
    assert time_table({}).splitlines()[-1].split() == ["all", "0.000"]
