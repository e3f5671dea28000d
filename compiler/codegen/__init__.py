"""From kernels in instruction form to instructions of the chip, and from kernels to one program."""
