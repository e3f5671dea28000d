"""Does TVM, as it is, still do what a patch is for? Asked in a process of its own: the answer may be its end.

``python -m patches.probe NAME`` exits with 1 where the fault shows, and with 0 where the patch can be retired.
"""

from __future__ import annotations

import subprocess
import sys

FIXED, FAULTY = 0, 1


def is_faulty(name: str, python: str = sys.executable) -> bool:
    done = subprocess.run(  # noqa: S603  our own module
        [python, "-m", "patches.probe", name], capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode in (FIXED, FAULTY):
        return done.returncode == FAULTY
    if done.returncode < 0:  # ended by a signal
        return True
    raise RuntimeError(f"patches.probe {name} ended with {done.returncode}: {done.stderr[-2000:]}")


def main(name: str) -> int:
    from patches import load

    return FAULTY if load(name).shows_fault() else FIXED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
