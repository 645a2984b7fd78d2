"""The kernels of one inference: launched one by one, or replayed as one CUDA graph."""
