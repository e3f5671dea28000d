"""What the compiler is known to fail on for now, said once for all models that meet it."""

from __future__ import annotations

from models.manifest import ExpectedFailure

BLOCKS_APART = (
    "a depthwise convolution whose channels are put first behind it: the fixpipe cannot store its blocks, and no other "
    "instruction reaches L0C, so it runs on the host"
)


def convolution_on_host(*, chips: tuple[str, ...] = (), precisions: tuple[str, ...] = ()) -> ExpectedFailure:
    return ExpectedFailure("match", "on the host run ['tilewright::Convolution'", BLOCKS_APART, chips, precisions)
