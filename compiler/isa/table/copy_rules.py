"""Legality rules of the copies around the cube. A rule's docstring is the diagnostic; it is true where legal."""

from __future__ import annotations

from compiler.isa.img2col import output_shape
from compiler.isa.model import Args
from compiler.isa.timing import path_of


def path_exists(args: Args) -> bool:
    """the chip must have a path between these two memories"""
    return path_of(args.row, args.view("src"), args.view("dst")) in args.chip.path


def pitch_covers_rows(args: Args) -> bool:
    """the pitch of a fractal layout is at least the number of rows: its column blocks may not overlap"""
    fractal = [v for v in args.views if len(v.shape) == 3 and v.shape[0] > 1]
    return all(v.strides[0] >= v.shape[1] * v.strides[1] for v in fractal)


def fill_path_exists(args: Args) -> bool:
    """the chip must have a path from L1 to the cube"""
    return ("l1_l0b" if args.view("dst").memory == "l0b" else "l1_l0a") in args.chip.path


def windows_exist(args: Args) -> bool:
    """the window must fit into the padded input, and m_start + m may not pass the last output position"""
    ho, wo = output_shape(args)
    return ho > 0 and wo > 0 and bool(args.m_start + args.m <= ho * wo)


def starts_at_block(args: Args) -> bool:
    """k_start must be a multiple of c0, the elements of 32 bytes"""
    return bool(args.k_start % args.dtype_of("@dtype").fractal_k == 0)
