"""Graph passes: Relax module to Relax module."""
