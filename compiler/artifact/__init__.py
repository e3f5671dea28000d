"""Artifacts: a compiled model or a program, the chip it is for, constants and debug information in one file that is
checked before it is believed."""

from compiler.artifact.reader import Stored, read_artifact, read_program
from compiler.artifact.writer import model_to_bytes, to_bytes, write_model, write_program

__all__ = [
    "Stored",
    "model_to_bytes",
    "read_artifact",
    "read_program",
    "to_bytes",
    "write_model",
    "write_program",
]
