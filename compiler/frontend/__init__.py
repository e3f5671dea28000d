"""From ONNX bytes nobody vouches for to a checked, normalised Relax module."""
