"""Tiles: how large, in which order, on which cores; the schedule template of every operator class."""
