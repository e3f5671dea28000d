"""Files are written whole or not at all, where links lead, and never in the place of what is no file."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from compiler.artifact.files import write_text
from compiler.errors import InputError


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    for name, target in (("link", "file"), ("dangling", "new")):
        (tmp_path / name).symlink_to(target)
        write_text(tmp_path / name, name, "the text")
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / target).read_text() == name


def test_a_pipe_takes_what_is_written(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "all of it", "the text")
    reader.join()
    assert read == ["all of it"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_device_stays_one() -> None:
    with pytest.raises(InputError, match="No space left"):
        write_text("/dev/full", "text", "the text")
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    nowhere = tmp_path / "none" / "file"
    for path, said in ((tmp_path, "it is a directory"), (nowhere, "No such file"), ("\0", "not a file name")):
        with pytest.raises(InputError, match=said):
            write_text(path, "text", "the text")
    assert not list(tmp_path.iterdir())
