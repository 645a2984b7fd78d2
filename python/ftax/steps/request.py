"""The arguments of `load_model`, checked once.

The surprising choice: `None` means "not said". What was not said is a default for a model that we
build and a question to the module for one that the user built.
"""

from dataclasses import dataclass
from typing import Any

import torch

from ftax.errors import InvalidArgumentError, UnavailableError, UnsupportedError
from ftax.steps.spec import ATTENTIONS, TORCH_DTYPES, Attention, Dtype

# Four streams per seed, and torch's CPU generator keeps 32 bits.
_SEED_LIMIT = 2**30


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadRequest:
    """What `load_model` was asked for, with values that can be right; raises otherwise."""

    inputs: Any
    check_inputs: Any
    dtype: Dtype | None
    # As torch spells it, with the index of a CUDA device.
    device: str | None
    batch: int | None
    sequence: int | None
    seed: int
    attention: Attention | None
    use_cache: bool
    tiny: bool

    def __post_init__(self) -> None:
        _check_choice("dtype", self.dtype, tuple(TORCH_DTYPES))
        _check_choice("attention", self.attention, ATTENTIONS)
        _check_count("batch", self.batch)
        _check_count("sequence", self.sequence)
        for name in ("use_cache", "tiny"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidArgumentError(f"{name} is {getattr(self, name)!r}: give True or False")
        if not _is_int(self.seed) or not 0 <= self.seed < _SEED_LIMIT:
            raise InvalidArgumentError(
                f"seed is {self.seed!r}: give an integer from 0 to 2**30 - 1"
            )
        if self.check_inputs is not None and self.inputs is None:
            raise InvalidArgumentError("check_inputs is given without inputs: give both")


def normalize_device(device: str | torch.device) -> str:
    """`device` as torch spells it on tensors ("cpu", "cuda:0").

    Raises InvalidArgumentError for what is no device, UnsupportedError for kinds other than cpu and
    cuda, and UnavailableError for a CUDA device that this machine does not have.
    """
    try:
        parsed = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InvalidArgumentError(
            f"device is {device!r}, which torch does not know: give 'cpu', 'cuda' or 'cuda:<index>'"
        ) from error
    if parsed.type == "cpu":
        return "cpu"
    if parsed.type != "cuda":
        raise UnsupportedError(
            f"device is {str(parsed)!r}, and ftax measures only CPUs and CUDA devices: "
            "give 'cpu' or 'cuda'"
        )
    if not torch.cuda.is_available():
        raise UnavailableError(
            f"device is {str(parsed)!r}, but torch {torch.__version__} finds no CUDA device here: "
            "give device='cpu', or install a CUDA build of torch and a driver"
        )
    index = torch.cuda.current_device() if parsed.index is None else parsed.index
    count = torch.cuda.device_count()
    if index >= count:
        raise UnavailableError(
            f"device is {str(parsed)!r}, but torch sees {count} CUDA devices: "
            f"give an index below {count}"
        )
    return f"cuda:{index}"


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise InvalidArgumentError(f"{name} is {value!r}: give one of {', '.join(choices)}")


def _check_count(name: str, value: Any) -> None:
    if value is not None and (not _is_int(value) or value < 1):
        raise InvalidArgumentError(f"{name} is {value!r}: give an integer of at least 1")


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
