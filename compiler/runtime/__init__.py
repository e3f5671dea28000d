"""Running compiled models. Nothing here imports TVM, but for host kernels."""
