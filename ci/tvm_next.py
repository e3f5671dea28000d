"""Try the newest TVM: `python -m ci.tvm_next [--version V] [-- PYTEST-ARGUMENTS]`.

In a fresh environment with everything as it is locked, but TVM, of which the newest is taken, pre-releases too. Of
each patch it says whether it still fits and whether TVM still needs it; then it runs the tests there and here, and
says which end differently. It exits with 0 where nothing changes, and with 1 and a list of what does otherwise.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements-dev.lock"
TVM = ("apache-tvm", "apache-tvm-ffi")
MAX_SHOWN = 50
_STATE = """
import patches, tvm
from patches.probe import is_faulty
print("tvm", tvm.__version__)
for name in patches.PATCHES:
    print(f"patch {name}: {patches.load(name).misfit() or 'fits'}; {'needed' if is_faulty(name) else 'not needed'}")
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="ci.tvm_next", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--version", help="this TVM instead of the newest")
    parser.add_argument("tests", nargs="*", metavar="PYTEST-ARGUMENT", help="what to run (default: the fast tests)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tvm-next-") as folder:
        python = environment(Path(folder) / "venv", args.version)
        state = run(python, "-c", _STATE).stdout
        sys.stdout.write(state)
        if f"tvm {locked_version()}\n" in state:
            print("this is the TVM that the project is locked to: nothing to compare")
            return int(not all_in_order(state))
        there = outcomes(python, args.tests, Path(folder) / "there.xml")
        here = outcomes(sys.executable, args.tests, Path(folder) / "here.xml")
    changes = list(differences(here, there))
    for line in changes[:MAX_SHOWN]:
        print(line)
    if len(changes) > MAX_SHOWN:
        print(f"{len(changes) - MAX_SHOWN} more are not shown")
    print(f"{len(there)} tests there, {len(here)} here: {len(changes)} end differently")
    return int(bool(changes) or not all_in_order(state))


def all_in_order(state: str) -> bool:
    """Whether every patch fits, and none can be retired."""
    return all(line.endswith(": fits; needed") for line in state.splitlines() if line.startswith("patch "))


def environment(folder: Path, version: str | None) -> str:
    """The Python of a new environment with that TVM."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    requirements = folder / "requirements.txt"
    requirements.write_text("\n".join(pins(LOCK.read_text(encoding="utf-8"))) + "\n", encoding="utf-8")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "-r", str(requirements)], check=True)
    wanted = f"apache-tvm=={version}" if version else "apache-tvm"
    subprocess.run([*install, "--pre", "--upgrade", wanted], check=True)
    return python


def pins(lock: str) -> list[str]:
    """The requirements of a lock file without hashes, and without TVM."""
    found = re.findall(r"^([\w.-]+)==([^\s;\\]+)( *;[^\\\n]*)?", lock, re.MULTILINE)
    return [f"{name}=={version}{marker.rstrip()}" for name, version, marker in found if name not in TVM]


def locked_version() -> str:
    found = re.search(r"^apache-tvm==(\S+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise ValueError(f"{LOCK.name} has no apache-tvm")
    return found[1]


def run(python: str, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """A command in the repository, where patches that do not fit are left out."""
    from patches import UNFIT

    environ = {**os.environ, UNFIT: "skip", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([python, *words], cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(words[:2])} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    return done


def outcomes(python: str, tests: Sequence[str], xml: Path) -> dict[str, str]:
    """How each test ends."""
    done = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={xml}", *tests, check=False)
    if not xml.exists():
        raise RuntimeError(f"the tests did not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return dict(_read(ET.parse(xml).getroot()))  # noqa: S314  written by our own pytest


def _read(root: ET.Element) -> Iterator[tuple[str, str]]:
    for case in root.iter("testcase"):
        kinds = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        yield f"{case.get('classname')}::{case.get('name')}", kinds[0] if kinds else "passed"


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> Iterator[str]:
    for name in sorted({*here, *there}):
        before, after = here.get(name, "not there"), there.get(name, "not there")
        if before != after:
            yield f"{name}: {before} -> {after}"


if __name__ == "__main__":
    sys.exit(main())
