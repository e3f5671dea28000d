"""What the built distribution holds is what the repository holds."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def pins(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / lock).read_text(encoding="utf-8"), re.MULTILINE))


def test_each_lock_is_part_of_the_next_larger_one() -> None:
    assert pins("requirements.lock").items() <= pins("requirements-dev.lock").items()
    assert pins("requirements-dev.lock").items() <= pins("requirements-ray.lock").items()


def test_locks_hold_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    runtime = project["dependencies"]
    for lock, asked in (
        ("requirements.lock", runtime),
        ("requirements-dev.lock", runtime + project["optional-dependencies"]["dev"]),
        ("requirements-ray.lock", runtime + project["optional-dependencies"]["ray"]),
    ):
        names = {re.split(r"[^\w-]", requirement)[0].replace("_", "-") for requirement in asked}
        assert names <= pins(lock).keys()


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock", "requirements-ray.lock"])
def test_locks_check_every_package_and_name_no_index(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    requirements = re.split(r"^(?=[\w-]+==)", text, flags=re.MULTILINE)[1:]
    assert requirements and all("--hash=sha256:" in requirement for requirement in requirements)
    assert "://" not in text


@pytest.mark.slow
def test_wheel_holds_every_module_and_chip_and_nothing_else(tmp_path: Path) -> None:
    source = tmp_path / "source"  # a copy: setuptools leaves a build folder, and packs what it finds in an old one
    for folder in ("compiler", "passes", "patches"):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(tmp_path), str(source)], check=True)
    (wheel,) = tmp_path.glob("tilewright-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    kept = {".py", ".toml", ".typed", ".json", ".css", ".js"}
    files = (
        path
        for folder in ("compiler", "passes", "patches")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in kept
    )
    assert held == {path.relative_to(ROOT).as_posix() for path in files}
