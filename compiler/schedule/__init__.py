"""How the graph of a model is run in pieces, so that what lies between its kernels stays on the chip."""
