"""The study of "The Framework Tax": its numbers, its claims, and both again on this machine."""
