"""Compiled kernels on disk: found again by content, and never anything but a kernel or a miss."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tvm import te, tirx

from compiler.artifact.files import write_atomically
from compiler.kernel_cache import KernelCache, Key, default_folder, key_of
from compiler.kernels import Kernel, Road, compile_kernel
from compiler.pipeline import Observer
from compiler.target import load_chip

TINY = load_chip("tiny")


def plus(number: float, *, name: str = "x", extent: int = 20) -> Any:
    x = te.placeholder((extent,), "float32", name)
    return te.create_prim_func([x, te.compute((extent,), lambda i: x[i] + tirx.const(number, "float32"), "y")])


@cache
def kernel() -> Kernel:
    compiled = compile_kernel(plus(1), "elementwise", TINY, Observer(), "plus")
    return replace(compiled, roads=(Road("a tile", "too large"),))


@pytest.fixture
def key() -> Key:
    return key_of(plus(1), "elementwise", TINY)


@pytest.fixture
def filled(tmp_path: Path, key: Key) -> KernelCache:
    found = KernelCache(tmp_path / "kernels")
    found.store(key, kernel())
    return found


def entry(cache: KernelCache) -> Path:
    (path,) = cache.entries()
    return path


def test_what_was_stored_is_found_under_the_name_of_who_asks(filled: KernelCache, key: Key) -> None:
    found = filled.load(key, "another name")
    assert found is not None
    assert found.name == "another name"
    assert replace(found, name="plus", code=replace(found.code, name="plus")) == kernel()
    assert (filled.hits, filled.misses, filled.why_not(key)) == (1, 0, "")


def test_keys_tell_kernels_apart_and_names_do_not(key: Key) -> None:
    named = plus(1).with_attr("global_symbol", "other").with_attr("tw.operator", "Other")
    assert key_of(named, "elementwise", TINY) == key
    others = [
        key_of(plus(2), "elementwise", TINY),
        key_of(plus(1, extent=21), "elementwise", TINY),
        key_of(plus(1), "reduction", TINY),
        key_of(plus(1), "elementwise", load_chip("tw1")),
        key_of(plus(1), "elementwise", TINY, 8),
        key_of(plus(1), "elementwise", TINY, times=2),
        replace(key, compiler="other"),
    ]
    assert len({one.file_name for one in (key, *others)}) == 1 + len(others)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"function": "f" * 64}, "never compiled before"),
        ({"chip": "c"}, "known, but with another chip"),
        ({"schedule": "s"}, "known, but with another schedule"),
        ({"chip": "c", "compiler": "d"}, "known, but with another chip and another compiler"),
    ],
)
def test_a_miss_says_what_the_nearest_entry_was_made_with(
    filled: KernelCache, key: Key, changes: dict[str, str], why: str
) -> None:
    filled.store(replace(key, schedule="x", chip="y", compiler="z"), kernel())  # differs more than the other
    asked = replace(key, **changes)
    assert filled.why_not(asked) == why
    assert filled.load(asked, "plus") is None
    assert filled.misses == 1


def damaged(whole: dict[str, Any]) -> list[bytes]:
    content = json.loads(whole["content"])
    texts = [json.dumps(whole | change) for change in ({"format": 0}, {"key": {}}, {"sha256": 0}, {"content": None})]
    for change in (
        {"code": {}},
        {"code": []},
        {"roads": [1]},
        {"statistics": []},
        {"code": content["code"] | {"instrs": "AAAA"}},
    ):
        text = json.dumps(content | change)
        texts.append(json.dumps(whole | {"content": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}))
    good = json.dumps(whole).encode()
    return [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"[" * 100_000,
        good[:-1],
        good[: len(good) // 2],
        *map(str.encode, texts),
    ]


def test_whatever_is_damaged_is_a_miss_and_written_anew(filled: KernelCache, key: Key) -> None:
    path = entry(filled)
    for content in damaged(json.loads(path.read_text())):
        path.write_bytes(content)
        assert filled.load(key, "plus") is None, content[:80]
        assert filled.why_not(key).startswith("its entry cannot be used: ")
        filled.store(key, kernel())
        assert filled.load(key, "plus") is not None


def test_every_flipped_byte_of_the_content_is_noticed(filled: KernelCache, key: Key) -> None:
    path = entry(filled)
    whole = path.read_bytes()
    for at in range(0, len(whole), max(1, len(whole) // 60)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert filled.load(key, "plus") is None


def test_what_is_no_file_is_a_miss(tmp_path: Path, key: Key) -> None:
    found = KernelCache(tmp_path)
    os.mkfifo(tmp_path / key.file_name)  # opening it would wait for a writer for ever
    assert found.load(key, "plus") is None
    (tmp_path / key.file_name).unlink()
    (tmp_path / key.file_name).mkdir()
    assert found.load(key, "plus") is None
    found.store(key, kernel())
    assert found.load(key, "plus") is None


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path: Path, key: Key, filled: KernelCache) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/none")):
        found = KernelCache(folder)
        found.store(key, kernel())
        assert found.load(key, "plus") is None
        assert found.clear() == (0, 0)
        assert found.size_bytes() == 0


def test_a_read_only_folder_still_answers(filled: KernelCache, key: Key, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:  # as a read-only disk does, to root, too
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    filled.store(replace(key, chip="c"), kernel())
    assert len(list(filled.entries())) == 1
    assert filled.load(key, "plus") is not None


def test_clear_removes_entries_and_leftovers_and_nothing_else(filled: KernelCache) -> None:
    size = entry(filled).stat().st_size
    kept = ["notes-2.json", "-.json", ".hidden-1.tmp", "a.txt"]
    for name in kept:
        (filled.folder / name).write_text("")

    def killed(file: Any) -> None:
        (left,) = filled.folder.glob(f".{entry(filled).name[:20]}*")
        (filled.folder / f"{left.name[:-4]}x.tmp").write_text("half")

    write_atomically(entry(filled), killed, "the entry")
    size = entry(filled).stat().st_size
    folder = f"{'0' * 32}-{'1' * 32}.json"
    (filled.folder / folder).mkdir()
    assert filled.clear() == (1, size)
    assert sorted(path.name for path in filled.folder.iterdir()) == sorted([*kept, folder])
    assert filled.clear() == (0, 0)


def test_the_folder_is_chosen_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "mine"))
    assert default_folder() == tmp_path / "mine"
    monkeypatch.delenv("TILEWRIGHT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "tilewright" / "kernels"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".cache" / "tilewright" / "kernels"


WRITER = """
import json, sys
from compiler.kernel_cache import Key, KernelCache, _kernel
folder, text, rounds = sys.argv[1], sys.stdin.read(), int(sys.argv[2])
cache, whole = KernelCache(__import__("pathlib").Path(folder)), json.loads(text)
key = Key(**whole["key"])
kernel = _kernel(whole, key, "plus")
print("ready", flush=True)
lost = 0
for _ in range(rounds):
    cache.store(key, kernel)
    lost += cache.load(key, "plus") is None
print(lost)
"""


def test_processes_that_write_at_once_never_show_half_an_entry(filled: KernelCache, key: Key) -> None:
    text = entry(filled).read_text()
    command = [sys.executable, "-c", WRITER, str(filled.folder), "25"]
    root = Path(__file__).parents[1]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": root}
    with ExitStack() as stack:
        writers = [stack.enter_context(subprocess.Popen(command, **pipes)) for _ in range(2)]
        for writer in writers:
            writer.stdin.write(text)
            writer.stdin.close()
        for writer in writers:
            assert writer.stdout.readline() == "ready\n"
        misses = 0
        while any(writer.poll() is None for writer in writers):
            misses += filled.load(key, "plus") is None
        assert misses == 0
        assert [writer.stdout.read() for writer in writers] == ["0\n", "0\n"]
        assert all(writer.returncode == 0 for writer in writers)
    assert [path.name for path in filled.folder.iterdir()] == [key.file_name]
