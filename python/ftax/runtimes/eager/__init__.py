"""PyTorch as people call it, and eager in another memory format or on padded and nested texts."""
