"""What this build was compiled from and against; CMake generates it."""

VERSION: str
TORCH_VERSION: str
TORCH_CUDA: str | None
WITH_CUDA: bool
COMPILER: str
SOURCE_COMMIT: str | None
SOURCE_DIRTY: bool
