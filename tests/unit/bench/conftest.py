"""Benchmarks are scripts beside each other: their folder has to be where Python looks."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "bench"))
