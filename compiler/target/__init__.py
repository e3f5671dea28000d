"""Chips: a machine is one TOML file, checked by one schema, and read only through :class:`Chip`."""

from compiler.target.chip import Chip
from compiler.target.chip_file import chip_names, load_chip

__all__ = ["Chip", "chip_names", "load_chip"]
