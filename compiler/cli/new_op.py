"""``tilewright new-op``: a file with an operator of one's own, and its test; both work as they are written."""

from __future__ import annotations

import argparse
import keyword
import re
from pathlib import Path

from compiler.cli.answer import print_json
from compiler.errors import InputError, Problem, UsageError

_NAME = re.compile(r"(?:([A-Za-z_][\w.-]*)::)?([A-Za-z_]\w*)")
_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
DOMAIN = "com.example"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=f"as models call it: Name, or domain::Name (domain: {DOMAIN})")
    parser.add_argument("--folder", metavar="DIR", default=".", help="where to write (default: here)")
    parser.add_argument("--force", action="store_true", help="write over files of the same names")


def run(args: argparse.Namespace) -> int:
    found = _NAME.fullmatch(args.name)
    if found is None:
        raise UsageError(
            Problem("TW0002", f"{args.name[:60]!r} is no name", hint="for example `Gelu2` or `my.ops::Gelu2`")
        )
    domain, name = found[1] or DOMAIN, found[2]
    function = _WORD_STARTS.sub("_", name).lower()
    if keyword.iskeyword(function):
        text = f"{name} would be the function {function!r}, which is a word of Python"
        raise UsageError(Problem("TW0002", text, hint=f"for example `{name}Op`"))
    stem = f"{function}_op"
    words = {"@DOMAIN@": domain, "@NAME@": name, "@FUNCTION@": function, "@STEM@": stem}
    files = {Path(args.folder) / f"{stem}.py": OPERATOR, Path(args.folder) / f"test_{stem}.py": TEST}
    there = [str(path) for path in files if path.exists()]
    if there and not args.force:
        raise InputError(Problem("TW0003", f"{there[0]} exists", hint="--force writes over it"))
    for path, text in files.items():
        for word, value in words.items():
            text = text.replace(word, value)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    operator_file, test_file = files
    if args.json:
        print_json("new-op", {"operator": f"{domain}::{name}", "files": [str(operator_file), str(test_file)]})
        return 0
    print(f"wrote {operator_file} and {test_file}")
    print(f"next: tilewright op-test {operator_file}")
    return 0


OPERATOR = '''\
"""The operator @DOMAIN@::@NAME@."""

from tvm import te, tirx

from compiler import operator


@operator("@DOMAIN@::@NAME@", schedule="elementwise", sweep={"x": "[n, c]", "bias": "[c]", "alpha": [1.0, 0.5]})
def @FUNCTION@(x: te.Tensor, bias: te.Tensor, *, alpha: float = 1.0) -> te.Tensor:
    """``tanh(alpha * (x + bias))``, the bias along the last axis."""

    def value(*i):
        return tirx.tanh((x(*i) + bias(i[-1])) * tirx.const(alpha, x.dtype))

    return te.compute(x.shape, value, "@FUNCTION@")
'''

TEST = '''\
"""@DOMAIN@::@NAME@ against numpy, on an emulated chip."""

from pathlib import Path

import numpy as np

import compiler

OPS = Path(__file__).with_name("@STEM@.py")


def test_@FUNCTION@() -> None:
    types = {"x": "float32[37, 53]", "bias": "float32[53]"}
    artifact = compiler.compile_operator(
        "@DOMAIN@::@NAME@", types, chip="tiny", attributes={"alpha": 0.5}, host_kernels=False, ops=OPS
    )
    rng = np.random.default_rng(0)
    x, bias = rng.standard_normal((37, 53), np.float32), rng.standard_normal(53, np.float32)
    outputs = artifact.run({"x": x, "bias": bias}, hazards=True)
    np.testing.assert_allclose(outputs["out0"], np.tanh(0.5 * (x + bias)), rtol=1e-3, atol=1e-4)
'''
