"""The model regression: every model of the zoo compiled, run, and compared with onnxruntime and with the record.

A case is a model, a chip and a precision. It passes the stages import, compile, run (free of hazards), match (the
outputs within the manifest's tolerance of onnxruntime's, and on the host no other operators than the manifest's; for
a trained model also the same accuracy over its whole hold-out set) and perf (cycles, bytes and instructions are those
of the record). What differs from the record names the pass that made another program first.
"""
