"""Says which torch ftax is built against: the one that the building Python would import.

CMake runs this file for torch's folder and versions, the Makefile for the tag of a wheel;
scikit-build-core imports it for what a wheel requires. Torch is found
without importing it, which takes seconds and can fail where building does not, and a wheel requires
the minor version of torch that it was built against (``torch==2.13.*``), because torch's C++
interface changes with each of them.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
from collections.abc import Mapping
from typing import Any, NamedTuple

OLDEST = (2, 8)


class Torch(NamedTuple):
    """A torch that is installed."""

    folder: str
    version: str  # such as 2.13.0+cpu
    cuda: str  # such as 13.0; empty for a CPU build


def find_torch() -> Torch:
    """The torch of this Python; without one that will do, the build ends with a sentence."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise SystemExit(
            "ftax builds against the torch you already have, which an isolated build cannot see: "
            "install torch, scikit-build-core and pybind11, then run "
            "`pip install --no-build-isolation .`"
        )
    folder = os.path.dirname(spec.origin)
    names = runpy.run_path(os.path.join(folder, "version.py"))
    version = str(names["__version__"])
    if parse_minor(version) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise SystemExit(f"ftax needs torch >= {oldest}, found {version}: `pip install -U torch`")
    return Torch(folder=folder, version=version, cuda=names.get("cuda") or "")


def parse_minor(version: str) -> tuple[int, int]:
    """``"2.13.0+cpu"`` as (2, 13)."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


class Requirement:
    """Adds torch to the dependencies (``tool.dynamic-metadata`` in pyproject.toml)."""

    def build_state(self, state: str) -> None:
        """What is being built; an sdist is for any torch, and needs none to be made."""
        self._for_any_torch = state == "sdist"

    def dynamic_metadata(
        self, settings: Mapping[str, Any], project: Mapping[str, Any]
    ) -> dict[str, list[str]]:
        """The requirement of torch."""
        if self._for_any_torch:
            return {"dependencies": ["torch>=" + ".".join(map(str, OLDEST))]}
        major, minor = parse_minor(find_torch().version)
        return {"dependencies": [f"torch=={major}.{minor}.*"]}

    def dynamic_wheel(self, settings: Mapping[str, Any]) -> dict[str, bool]:
        """The sdist says that the wheels made of it differ in their dependencies."""
        return {"dependencies": True}


if __name__ == "__main__":
    torch = find_torch()
    # Wheels of one ftax for several torches need names of their own: 213cpu, 214cu130.
    kind = f"cu{torch.cuda.replace('.', '')}" if torch.cuda else "cpu"
    tag = "".join(map(str, parse_minor(torch.version))) + kind
    print(*torch, tag, sep=";", end="")
