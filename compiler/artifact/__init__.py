"""Artifacts: a program, the chip it is for, constants and debug information in one file that is checked before it is
believed."""

from compiler.artifact.reader import Artifact, read_program
from compiler.artifact.writer import to_bytes, write_program

__all__ = ["Artifact", "read_program", "to_bytes", "write_program"]
