"""A cell: what was measured, down to everything that makes two numbers incomparable.

Two cells are equal when their keys are, not when their fields compare equal: to Python 1, 1.0 and
True are the same option value, to a runtime they are not.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

from ftax.machines.environment import Device
from ftax.records.fields import FrozenMap
from ftax.records.record import JsonScalar, Name, PositiveInt, Record
from ftax.steps.setting import Setting
from ftax.timing.candidate import Host, Placed

_USUAL = ("forward", "inference")  # and so not said
_UNITS = {"decode": "token", "train": "sample"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cell(Placed, Record):
    """One place in the space of measurements: a model, its input, and what runs it where."""

    model: Name
    runtime: Name  # how the model is executed: "eager", "torchscript", "onnxruntime", ...
    host: Host  # the language that drives it
    device: Device = "cpu"
    dtype: Literal["fp32", "fp16", "bf16"] = "fp32"
    batch: PositiveInt
    sequence: PositiveInt | None  # tokens of a request; None for models without a sequence
    step: Name = "forward"  # what is measured once: "forward", ...
    grad_mode: Literal["inference", "no_grad", "grad"] = "inference"
    units: PositiveInt = 1  # that one step makes: tokens, samples
    options: Mapping[str, JsonScalar] = field(default_factory=lambda: FrozenMap({}))

    @classmethod
    def of(
        cls, setting: Setting, *, model: str, runtime: str, host: Host,
        options: Mapping[str, JsonScalar], step: str = "", units: int = 1,
    ) -> Self:  # fmt: skip
        """The cell of a model in a setting whose dtype, device and batch are known."""
        return cls(
            model=model,
            runtime=runtime,
            host=host,
            device=setting.device or "cpu",
            dtype=setting.dtype or "fp32",
            batch=setting.batch or 1,
            sequence=setting.sequence,
            step=step or setting.step,
            grad_mode=setting.grad_mode,
            units=units,
            options=options,
        )

    @property
    def unit(self) -> str:
        """What one run of the step may make several of: "token", "sample"."""
        return _UNITS.get(self.step, "unit")

    def key(self) -> str:
        """Return the identity of the cell: canonical JSON, equal for equal cells only."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))

    def label(self) -> str:
        """Return a short form for people, such as "bert eager/python cpu fp32 b1 s128"."""
        words = [self.model, str(self.place), self.device, self.dtype]
        words.append(f"b{self.batch}")
        if self.sequence is not None:
            words.append(f"s{self.sequence}")
        words += [word for word in (self.step, self.grad_mode) if word not in _USUAL]
        words += [f"{name}={json.dumps(value)}" for name, value in sorted(self.options.items())]
        return " ".join(words)

    def __eq__(self, other: object) -> bool:
        return self.key() == other.key() if isinstance(other, Cell) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key())
