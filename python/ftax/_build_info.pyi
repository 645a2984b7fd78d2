"""What this build was compiled against; CMake generates it."""

TORCH_VERSION: str
TORCH_CUDA: str | None
WITH_CUDA: bool
COMPILER: str
