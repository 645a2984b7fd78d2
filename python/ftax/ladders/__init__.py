"""The ladder: rungs of the same kernels, what each step down removes, and the receipt of it all."""
