"""The regression zoo: recognised architectures as ONNX models, made by scripts from a seed instead of stored.

``models.zoo`` lists them; ``python -m models list`` and ``python -m models write NAME -o FILE`` from the command line.
"""
