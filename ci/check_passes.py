"""Does any pass change what a kernel computes? Every distinct kernel of the zoo, before and after each of its passes.

What `tilewright compile --check-passes` does for one model: both forms of a kernel run on the CPU, through TVM's code
generation, on the same random inputs. A kernel that several models share is checked once.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from compiler import driver
from compiler.errors import TilewrightError
from compiler.kernels import NoRoadLeft
from compiler.observation import CheckPasses
from compiler.options import Options
from compiler.pipeline import Observer
from compiler.target import load_chip
from models import zoo


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", help="names, separated by commas (default: all)")
    parser.add_argument("--chip", default="tw1")
    parser.add_argument("--precision", choices=("fp32", "fp16"))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chip, seen, failures = load_chip(options.chip), set[Any](), 0
    checks = CheckPasses(options.seed)
    start = time.perf_counter()
    for name in options.models.split(",") if options.models else zoo.names():
        shapes = {key: array.shape for key, array in zoo.inputs(name).items()}
        model = zoo.build(name).SerializeToString()
        kernels = driver.plan(model, chip, Options(options.precision, shapes), Observer())
        fresh = {key: use for use in kernels.uses() if (key := use.key) not in seen}
        seen |= set(fresh)
        before = checks.checked
        for use in fresh.values():
            try:
                use.job.compiled(chip, Observer([checks]))
            except NoRoadLeft:
                continue  # the driver takes it apart; what passes ran were checked
            except TilewrightError as error:
                failures += 1
                print(f"{name}: {error}", flush=True)
        print(f"{name:<22}{len(fresh):>5} kernels not seen before{checks.checked - before:>7} checks", flush=True)
    print(f"{len(seen)} kernels, {checks.checked} checks, {failures} failures, seed {options.seed}")
    print(f"{time.perf_counter() - start:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
