"""Convolution windows on their way to L0A."""
