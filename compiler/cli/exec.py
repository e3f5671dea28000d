"""``tilewright exec``: run a program on the pipeline simulator, or on the reference interpreter."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.cli.answer import print_json
from compiler.cli.simulator import announce_simulator
from compiler.cli.words import assignments, files_read, natural, positive, refuse_same_files
from compiler.errors import CapacityError, HazardError, IncompatibleError, Problem, TilewrightError, UsageError
from compiler.report.tables import described

if TYPE_CHECKING:
    import numpy as np

    from compiler.isa.program import Buffer, Program
    from compiler.sim.simulator import Run
    from compiler.target import Chip

    Arrays = dict[str, np.ndarray]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    many: dict[str, Any] = {"action": "append", "default": []}
    parser.add_argument("file", metavar="FILE", help="the program: an artifact, or a .twasm file to assemble first")
    parser.add_argument("--chip", help="the chip: a name, or the path of a .toml file (default: the program's own)")
    parser.add_argument(
        "-D", dest="defines", metavar="NAME=VALUE", help="give a constant of a .twasm file another value", **many
    )
    parser.add_argument("--tiling", metavar="NAME=VALUE", help="give a tiling word another value", **many)
    data = parser.add_argument_group("data", "without any, only the timing is simulated")
    data.add_argument("--input", dest="inputs", metavar="NAME=FILE", help="the array for an input, a .npy file", **many)
    data.add_argument("--random-inputs", metavar="SEED", type=natural, help="random arrays for all other inputs")
    data.add_argument(
        "--output", dest="outputs", metavar="NAME=FILE", help="where to write an output, as a .npy file", **many
    )
    how = parser.add_argument_group("how to run")
    how.add_argument("--interpret", action="store_true", help="use the reference interpreter: results, no timing")
    how.add_argument("--timing-only", action="store_true", help="compute no data, even if there are inputs")
    how.add_argument("--hazards", action="store_true", help="look for races; with any, list them and exit with 9")
    how.add_argument("--seed", type=natural, default=0, help="above 0: delay queues at random, to shake out races")
    how.add_argument("--max-steps", type=positive, metavar="N", help="most instructions to execute")
    parser.add_argument("--trace", metavar="FILE", help="write a timeline for ui.perfetto.dev")


def run(args: argparse.Namespace) -> int:
    _check_usage(args)
    program, chip, arrays = _load(args)
    _check_outputs(args, program)
    inputs = _inputs(args, program, arrays)
    if args.interpret:
        return _interpret(args, program, chip, inputs)

    from compiler.sim.expand import MAX_STEPS
    from compiler.sim.simulator import simulate

    announce_simulator()
    simulated = simulate(
        program, chip, inputs, hazards=args.hazards, seed=args.seed, max_steps=args.max_steps or MAX_STEPS
    )
    if args.trace is not None:
        _write_trace(simulated, args.trace)
    if not simulated.hazards:
        _write_outputs(args, simulated.outputs)
    _print_run(args, simulated, inputs is not None)
    if simulated.hazards:
        raise HazardError(simulated.hazards, is_answered=True)
    return 0


def _check_usage(args: argparse.Namespace) -> None:
    """Options that contradict each other, or name one file to be read and written."""
    written = {f"--output {name}": path for name, path in assignments(args.outputs, "--output").items()}
    refuse_same_files({"--trace": args.trace, **written}, files_read(args))
    data = [f"--{name}" for name in ("inputs", "random_inputs", "outputs") if getattr(args, name) not in (None, [])]
    timing = [f"--{name}" for name in ("timing_only", "hazards", "trace", "seed") if getattr(args, name)]
    clashes = []
    if args.interpret:
        clashes = [("--interpret", option) for option in timing]
    elif args.timing_only:
        clashes = [("--timing-only", option) for option in data]
    if clashes:
        first, second = clashes[0]
        option = {"--inputs": "--input", "--outputs": "--output"}.get(second, second).replace("_", "-")
        raise UsageError(Problem("TW0002", f"{option} has no meaning together with {first}"))


# ---- the program --------------------------------------------------------------------------------------------


def _load(args: argparse.Namespace) -> tuple[Program, Chip, Mapping[str, np.ndarray]]:
    """The program, checked for its chip, and the inputs that an artifact brings along."""
    from compiler.isa.verifier import verify
    from compiler.target import load_chip

    chip = load_chip(args.chip) if args.chip is not None else None
    constants: Mapping[str, np.ndarray] = {}
    if Path(args.file).suffix == ".twasm":
        from compiler.cli.asm import parse_defines
        from compiler.isa.assembler import assemble_file

        program = assemble_file(args.file, chip=chip, defines=parse_defines(args.defines))
        if chip is None and program.chip is None:
            hint = "name one with --chip, or in the program: `.chip tw2`"
            raise UsageError(Problem("TW0002", f"{args.file} does not say for which chip it is", hint=hint))
        chip = chip or load_chip(program.chip or "")
        verify(program, chip)
    else:
        from compiler.artifact import read_program

        if args.defines:
            raise UsageError(Problem("TW0002", "-D is for .twasm files: an artifact has no constants any more"))
        artifact = read_program(args.file)
        program, constants = artifact.program, artifact.constants
        if chip is not None and chip != artifact.chip:
            _check_chip(program, artifact.chip, chip, args.chip)
        chip = chip or artifact.chip
    return _with_tiling(program, _tiling_values(args.tiling)), chip, constants


def _check_chip(program: Program, made_for: Chip, chip: Chip, name: str) -> None:
    """Raise where a program of another chip breaks a rule of this one."""
    from compiler.isa.verifier import verify

    same = f"what {name} is now" if made_for.name == chip.name else name
    try:
        verify(program, chip)
    except TilewrightError as error:
        text = f"the artifact was made for {made_for.name}, not for {same}, which cannot run it: "
        hint = f"compile it for {name}, or leave --chip out"
        raise IncompatibleError(Problem("TW1542", text + error.problems[0].message, hint=hint)) from error
    print(f"note: the artifact was made for {made_for.name}, not for {same}", file=sys.stderr)


def _tiling_values(words: Iterable[str]) -> dict[str, int]:
    values = {}
    for name, text in assignments(words, "--tiling", "VALUE").items():
        try:
            values[name] = int(text, 0) if len(text) <= 80 else int("")
        except ValueError as error:
            raise UsageError(Problem("TW0002", f"--tiling {name}: {text[:80]!r} is not an integer")) from error
    return values


def _with_tiling(program: Program, values: Mapping[str, int]) -> Program:
    names = [word.name for word in program.tiling]
    for name, value in values.items():
        if name not in names:
            known = f"it has {', '.join(names[:20])}" if names else "it has none"
            raise UsageError(Problem("TW1555", f"the program has no tiling word {name}", hint=known))
        if not -(2**63) <= value < 2**63:
            raise UsageError(Problem("TW1555", f"tiling word {name} is {value}; allowed: what fits 64 bits"))
    tiling = tuple(replace(word, value=values.get(word.name, word.value)) for word in program.tiling)
    return replace(program, tiling=tiling)


# ---- arrays -------------------------------------------------------------------------------------------------


def _inputs(args: argparse.Namespace, program: Program, constants: Mapping[str, np.ndarray]) -> Arrays | None:
    """An array for every input, or None where only the timing is wanted."""
    if args.timing_only:
        return None
    from compiler.artifact import arrays

    buffers = {b.name: b for b in program.buffers if b.role in ("input", "inout")}
    files = assignments(args.inputs, "--input")
    if unknown := [name for name in files if name not in buffers]:
        known = f"it has {', '.join(list(buffers)[:20])}" if buffers else "it has none"
        raise UsageError(Problem("TW1332", f"the program has no input {unknown[0]}", hint=known))
    found = dict(constants) | {name: arrays.read(path, buffers[name]) for name, path in files.items()}
    rest = [buffer for name, buffer in buffers.items() if name not in found]
    if args.random_inputs is not None:
        found |= _random(rest, args.random_inputs)
    elif rest:
        if files or args.outputs or args.interpret:
            hint = f"--input {rest[0].name}=FILE.npy, or --random-inputs SEED"
            raise UsageError(Problem("TW1333", f"no array is given for input {rest[0].name}", hint=hint))
        print("note: no inputs are given, so only the timing is simulated", file=sys.stderr)
        return None
    return found


def _random(buffers: Sequence[Buffer], seed: int) -> Arrays:
    """An array per buffer that depends on the seed and the buffer's name only."""
    import numpy as np

    from compiler.isa.dtypes import DTYPES
    from compiler.sim.memory import MAX_HOST_BYTES

    total = sum(buffer.size_bytes for buffer in buffers)
    if total > MAX_HOST_BYTES:
        text = f"the random inputs need {total >> 20} MiB; limit {MAX_HOST_BYTES >> 20} MiB"
        raise CapacityError(Problem("TW1557", text))
    found: Arrays = {}
    for buffer in buffers:
        generator = np.random.default_rng([seed, *buffer.name.encode("utf-8", "surrogatepass")])
        dtype = DTYPES[buffer.dtype]
        if dtype.is_float:
            found[buffer.name] = generator.standard_normal(buffer.shape, np.float32).astype(dtype.numpy)
        else:  # small, so that sums and products stay in range
            low, high = {"bool": (0, 2), "uint8": (0, 16)}.get(dtype.name, (-8, 8))
            found[buffer.name] = generator.integers(low, high, buffer.shape, dtype.numpy.type)
    return found


def _check_outputs(args: argparse.Namespace, program: Program) -> None:
    names = [b.name for b in program.buffers if b.role in ("output", "inout")]
    for name in assignments(args.outputs, "--output"):
        if name not in names:
            known = f"it has {', '.join(names[:20])}" if names else "it has none"
            raise UsageError(Problem("TW1556", f"the program has no output {name}", hint=known))


def _write_outputs(args: argparse.Namespace, outputs: Mapping[str, np.ndarray]) -> None:
    from compiler.artifact import arrays

    for name, path in assignments(args.outputs, "--output").items():
        arrays.write(path, outputs[name])


# ---- results ------------------------------------------------------------------------------------------------


def _write_trace(simulated: Run, path: str) -> None:
    from compiler.sim.trace import save_trace

    if note := save_trace(simulated, path).note:
        print(f"note: {note}", file=sys.stderr)


def _interpret(args: argparse.Namespace, program: Program, chip: Chip, inputs: Arrays | None) -> int:
    from compiler.sim.interpreter import MAX_STEPS, interpret

    limit = args.max_steps or MAX_STEPS
    done = interpret(program, chip, inputs, max_steps=limit)
    _write_outputs(args, done.outputs)
    steps = limit - done.steps_left
    if args.json:
        content = {"engine": "interpreter", "steps": steps, "outputs": described(done.outputs)}
        print_json("exec", content)
    else:
        print(f"{steps:,} instructions on {len(done.cores)} cores of {chip.name}, in program order")
        _print_outputs(args, done.outputs)
    return 0


def _print_run(args: argparse.Namespace, simulated: Run, computed: bool) -> None:
    from compiler.sim.statistics import statistics, table

    stats = statistics(simulated)
    if args.json:
        content = {
            "engine": "simulator",
            "statistics": stats.to_dict(),
            "hazards": [p.render() for p in simulated.hazards] if args.hazards else None,
            "outputs": described(simulated.outputs) if computed else None,
        }
        print_json("exec", content)
        return
    print(table(stats))
    if args.hazards and not simulated.hazards:
        print("hazards: none")
    _print_outputs(args, simulated.outputs)


def _print_outputs(args: argparse.Namespace, outputs: Mapping[str, np.ndarray]) -> None:
    from compiler.isa.lexer import quoted

    files = assignments(args.outputs, "--output")
    for name, one in described(outputs).items():
        shape = "x".join(map(str, one["shape"])) or "scalar"
        where = f" -> {files[name]}" if name in files else ""
        print(f"output {quoted(name)}: {one['dtype']} {shape}, sha256 {one['sha256'][:16]}{where}")
