"""Models of the zoo on random machines, run free of hazards, against onnxruntime.

A machine is one of those that there are with other numbers: of clusters and cores, of the bytes of every memory, of
flags and what they count to, of what a queue holds, and other rates. What the compiler knows of a machine it has from
its description, so that no number may be taken for granted.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from ci.random_cases import Outcome
from compiler import api
from compiler.target import load_chip
from compiler.target.chip import Chip
from models import zoo
from models.checks import run
from models.comparison import compare

MODELS = (
    "mlp-256", "resnet-block-16", "lstm-16", "bert-tiny-32-b4", "mobilenet-v1-0.25-64", "gpt2-tiny-32-b2", "ds-cnn-49",
    "unet-24-tiny", "espcn-32", "mlp-int8-32", "gru-8-b16", "vit-micro-32-b4", "dlrm-4", "llama-16-b4", "fnet-32",
    "resnet-block-int8-16", "shufflenet-v2-64", "mixture-16", "convnext-micro-64", "srcnn-24", "diffusion-attention-16",
    "tcn-64", "segformer-32", "resnet-block-17-ragged", "crnn-16x64", "digits-cnn",
)  # fmt: skip
TIMES = (1, 1, 1, 2, 3, 4)  # the batch
MEMORIES = ("l1", "l0a", "l0b", "l0c", "ub", "llb")
# Where a number stands in a chip's tables, how often it is another one, and which: the number itself, or a factor.
NUMBERS: tuple[tuple[tuple[str, ...], float, tuple[int, ...]], ...] = (
    (("clusters",), 0.7, (1, 2, 3, 4)),
    (("cores_per_cluster",), 0.7, (1, 2, 3, 4, 5, 8)),
    (("event_ids",), 0.3, (2, 3, 4, 8)),
    (("cross_flag_ids",), 0.3, (2, 4, 8)),
    (("cross_flag_max",), 0.3, (1, 2, 15)),
    (("queues", "depth"), 0.3, (1, 2, 8, 32)),
    (("sync", "cross_flag_cycles"), 0.3, (1, 30, 300, 3000)),
    (("sync", "core_barrier_cycles"), 0.2, (1, 1000)),
)
FACTORS: tuple[tuple[tuple[str, ...], float, tuple[float, ...]], ...] = (
    *((("memory", f"{name}_bytes"), 0.35, (0.25, 0.5, 2, 4)) for name in MEMORIES),
    (("bandwidth", "ddr_bytes_per_kilocycle"), 0.3, (0.2, 0.5, 2, 8)),
    (("bandwidth", "llb_bytes_per_kilocycle"), 0.3, (0.2, 0.5, 2, 8)),
)


def machine(random: Random, base: str) -> tuple[Chip, dict[str, Any]]:
    """A chip, and what is other than of the one that it is made of."""
    tables, changed = load_chip(base).to_dict(), dict[str, Any]()
    tables["name"] = "random"
    for path, share, values in (*NUMBERS, *FACTORS):
        if random.random() >= share:
            continue
        *outer, last = path
        table = tables
        for name in outer:
            table = table[name]
        value = random.choice(values)
        table[last] = value if (path, share, values) in NUMBERS else int(table[last] * value)
        changed[last] = table[last]
    return Chip.from_dict(tables), changed


def check(seed: int, chip: str) -> Outcome:
    random = Random(seed)
    made, changed = machine(random, chip)
    name, times, precision = random.choice(MODELS), random.choice(TIMES), random.choice(("fp32", "fp16"))
    model = zoo.batched(name, times)
    said = f"{name}, {times} times its batch, in {precision}, on {chip} with {changed}"
    built, inputs = zoo.build(model), zoo.inputs(model, seed)
    try:
        shapes = {each.name: each.shape for each in model.inputs if each.symbols}
        artifact = api.compile(built.SerializeToString(), made, precision=precision, cache=False, jobs=1, shapes=shapes)
        found = artifact.run(inputs, hazards=True)
    except Exception as error:  # noqa: BLE001  whatever it is, it is found out with its seed
        return Outcome(seed, chip, f"{said}: {type(error).__name__}: {error}")
    matches = compare(run(built, inputs), found, model.tolerance, precision)
    wrong = [f"{each.output} {each.fault}" for each in matches if each.fault]
    counted = Counter({f"by {artifact.report.clusters or 'all'} of {made.clusters} clusters": 1})
    return Outcome(seed, chip, f"{said}: {'; '.join(wrong)}" if wrong else "", counted)
