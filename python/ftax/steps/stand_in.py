"""What stands in the place of something that is measured, such as a capture of a module."""

from __future__ import annotations

from typing import Any


class StandIn:
    """Measured as what it stands for, beside which it is a row of its own."""

    def open(self, inputs: Any = None) -> tuple[Any, Any]:
        """A module or a step, and its inputs; those that are given, if any."""
        raise NotImplementedError
