"""How a step is built and run: the one list of these options.

The keywords of public functions, the options of the command line, the fields of a grid, a worker's
job and a stored cell are made of a `Setting`. A new option is one field here, and its keyword in
`SettingOptions`, which type checkers read.

`None` means "not said". What was not said is a default for a model that we build and a question to
the module for one that the user built; the setting of a loaded model has the answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypedDict, get_args

import torch

from ftax.errors import (
    InvalidArgumentError,
    UnavailableError,
    UnsupportedError,
    check_count,
    check_fields,
    suggest,
)
from ftax.records.fields import FrozenMap, Nested
from ftax.steps.spec import ATTENTIONS, TORCH_DTYPES, Attention, Dtype

GradMode = Literal["inference", "no_grad", "grad"]
StepKind = Literal["forward", "decode", "train"]
CacheKind = Literal["dynamic", "static"]

DEFAULT_TOKENS = 8  # of a decode step
_OF_STEPS = {"decode": ("tokens", "cache", "sample"), "train": ("optimizer",)}
STEP_OPTIONS = tuple(itertools.chain(*_OF_STEPS.values()))  # that a forward pass has not

# Four streams per seed, and torch's CPU generator keeps 32 bits.
_OF_PLANS = ("duration", "duration_s", "rounds", "warmup", "target_ratio", "precision", "patience",
             "patience_s", "cpus")  # fmt: skip
_SEED_LIMIT = 2**30
_MOST_THREADS = 4096  # OpenMP ends the process, with code 1, where it cannot start them all


def _help(words: str, *flags: str, shown: str = "") -> dict[str, Any]:
    """Makes a field an option of the command line: its help, its flags where its name does not say
    them, and what is shown there as its default."""
    return {"help": words, "flags": flags, "shown": shown}


@check_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Nested):
    """How a step is built and how it runs, with values that can be right; raises otherwise.

    Attributes:
        dtype: "fp32", "fp16" or "bf16"; None: fp32, or what a module is in.
        device: "cpu", "cuda" or "cuda:1"; None: cpu, or where a module is.
        batch: requests in one call; None: 1, or the first dimension of the first input.
        sequence: tokens or samples of a request; None: the model's default.
        seed: of weights and inputs, 0 to 2**30 - 1.
        attention: "sdpa" or "eager", of models that have the choice.
        use_cache: return the key-value cache, of models that have one.
        tiny: the same depth and operators, small widths: the host's work dominates.
        step: what is measured once of a model by name: its "forward" pass; "decode", a window of
            tokens after a prompt of ``sequence`` tokens; "train", forward, backward and optimizer.
        tokens, cache, sample: of "decode": the length of the window (8), a "dynamic" or "static"
            key-value cache, and whether tokens are drawn; see `ftax.decode`.
        optimizer: of "train": "sgd", "adam" or "adamw" (the default), as torch makes it, or as in
            "adamw-fused": -forloop, -foreach, -fused or -capturable.
        threads: torch's and onnxruntime's intra-op threads; None leaves torch's setting.
        grad_mode: "inference" mode of torch, or "no_grad"; of steps alone "grad", with autograd on.
        cold: flush the GPU's L2 before each request, outside its time.
        transfers: on a GPU, with the inputs copied from pinned host memory and the outputs copied
            back in every request.
        runtime_options: for the runtimes that know them, such as ``{"optimization": "basic"}`` of
            onnxruntime; see docs/runtimes.md.
    """

    dtype: Dtype | None = field(
        default=None, metadata=_help("fp32, fp16 or bf16.", shown="fp32; what a module is in")
    )
    device: str | None = field(
        default=None, metadata=_help("cpu, cuda or cuda:N.", shown="cpu; where a module is")
    )
    batch: int | None = field(
        default=None, metadata=_help("Requests in one call.", shown="1; what a module is given")
    )
    sequence: int | None = field(
        default=None,
        metadata=_help(
            "Tokens of a request (text models); of a decode step, of its prompt.",
            *("--sequence", "--seq", "--context"),
        ),
    )
    seed: int = 0
    attention: Attention | None = field(
        default=None, metadata=_help("Attention implementation: sdpa or eager.")
    )
    use_cache: bool = field(
        default=False, metadata=_help("Return the key-value cache (decoders and Mamba).")
    )
    tiny: bool = field(
        default=False,
        metadata=_help("Same depth and operators, small widths: host work dominates."),
    )
    step: StepKind = field(
        default="forward",
        metadata=_help("What is run once: forward, decode (tokens after a prompt) or train."),
    )
    tokens: int | None = field(
        default=None, metadata=_help("Of a decode step: how many it decodes.", shown="8")
    )
    cache: CacheKind | None = field(
        default=None, metadata=_help("Of a decode step: dynamic or static.", shown="dynamic")
    )
    sample: bool = field(
        default=False, metadata=_help("Of a decode step: draw tokens, not the likeliest.")
    )
    optimizer: str | None = field(
        default=None,
        metadata=_help("Of a train step: sgd, adam, adamw, adamw-fused, ...", shown="adamw"),
    )
    threads: int | None = field(default=None, metadata=_help("Intra-op threads.", shown="torch's"))
    grad_mode: GradMode = "inference"
    cold: bool = field(
        default=False, metadata=_help("GPU: flush L2 before each request, outside its time.")
    )
    transfers: bool = field(
        default=False, metadata=_help("GPU: with copies from and to the host's memory.")
    )
    runtime_options: Mapping[str, str] = field(default_factory=lambda: FrozenMap({}))

    def __post_init__(self) -> None:
        _check_choice("dtype", self.dtype, (None, *TORCH_DTYPES))
        _check_choice("attention", self.attention, (None, *ATTENTIONS))
        _check_choice("grad_mode", self.grad_mode, get_args(GradMode))
        _check_choice("step", self.step, get_args(StepKind))
        _check_choice("cache", self.cache, (None, *get_args(CacheKind)))
        for name in ("tokens", "batch", "sequence"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        for kind, names in _OF_STEPS.items():
            for name in names:
                if getattr(self, name) and self.step != kind:
                    raise InvalidArgumentError(
                        f"{name} is {getattr(self, name)!r}, which is of a step of kind {kind!r}, "
                        f"and step is {self.step!r}: give step={kind!r}, or leave {name} out"
                    )
        check_threads(self.threads)
        check_count("seed", self.seed, least=0, most=_SEED_LIMIT - 1)
        for name in ("use_cache", "tiny", "sample", "cold", "transfers"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidArgumentError(f"{name} is {getattr(self, name)!r}: give True or False")
        if self.step == "train":
            if self.grad_mode == "no_grad":
                raise InvalidArgumentError(
                    "grad_mode is 'no_grad', but a train step runs in grad mode: leave it out"
                )
            object.__setattr__(self, "grad_mode", "grad")
        if self.device is not None:
            object.__setattr__(self, "device", str(_parse_device(self.device)))
        object.__setattr__(self, "runtime_options", _freeze_options(self.runtime_options))

    @property
    def chosen(self) -> dict[str, Any]:
        """The fields that are no default, by name."""
        return {
            name: getattr(self, name) for name in _FIELDS if getattr(self, name) != _DEFAULTS[name]
        }

    @property
    def units(self) -> int:
        """How many tokens or samples one run makes of a model by name."""
        if self.step == "decode":
            return self.tokens or DEFAULT_TOKENS
        return (self.batch or 1) if self.step == "train" else 1

    @property
    def of_loading(self) -> dict[str, Any]:
        """The fields that decide what is built, by name."""
        return {name: getattr(self, name) for name in _OF_LOADING}

    @property
    def of_running(self) -> dict[str, Any]:
        """The fields that decide how what is built is run, by name."""
        return {name: getattr(self, name) for name in _FIELDS if name not in _OF_LOADING}

    def beside(self, other: Setting) -> Setting:
        """This setting, run as ``other`` says where it says anything.

        Raises InvalidArgumentError if ``other`` would have the model built in another way.
        """
        changes = other.chosen
        for name in _OF_LOADING:
            if name in changes and changes.pop(name) != getattr(self, name):
                raise InvalidArgumentError(
                    f"a LoadedModel brings its inputs and options, but {name} is given beside it; "
                    "pass them to ftax.load_model instead"
                )
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; ``Setting(**it)`` is this setting."""
        plain = self.chosen
        if self.runtime_options:
            plain["runtime_options"] = dict(self.runtime_options)
        return plain


class SettingOptions(TypedDict, total=False):
    """The fields of `Setting` as keywords of a public function. ``setting`` is one made before, of
    which the others change a field each; ``no_grad`` is the short form of ``grad_mode``."""

    setting: Setting
    dtype: Dtype | None
    device: str | torch.device | None
    batch: int | None
    sequence: int | None
    seed: int
    attention: Attention | None
    use_cache: bool
    tiny: bool
    step: StepKind
    tokens: int | None
    cache: CacheKind | None
    sample: bool
    optimizer: str | None
    threads: int | None
    grad_mode: GradMode
    no_grad: bool
    cold: bool
    transfers: bool
    runtime_options: Mapping[str, str] | None


def read_setting(options: Mapping[str, Any], known: Iterable[str] | None = None) -> Setting:
    """The setting that keywords describe.

    Raises InvalidArgumentError for one that there is not; ``known`` are those that the function
    names itself (its ``__kwdefaults__``), one of which may have been meant.
    """
    changes = dict(options)
    names = sorted({*(known or ()), *SettingOptions.__optional_keys__})
    for name in changes:
        if name not in SettingOptions.__optional_keys__:
            if "plan" in names and name in _OF_PLANS:
                raise InvalidArgumentError(
                    f"{name!r} is said by a plan: plan=ftax.Plan(duration_s=5), with rounds, "
                    "target_ratio and patience_s beside it"
                )
            raise InvalidArgumentError(
                f"unknown option {name!r}; {suggest(name, names)}there are {', '.join(names)}"
            )
    base = changes.pop("setting", None)
    if base is not None and not isinstance(base, Setting):
        raise InvalidArgumentError(
            f"setting is of type {type(base).__name__}: give an ftax.Setting, or its fields"
        )
    no_grad = changes.pop("no_grad", None)
    if no_grad is not None:
        if "grad_mode" in changes or not isinstance(no_grad, bool):
            raise InvalidArgumentError(
                f"no_grad is {no_grad!r}: give True or False, and no grad_mode beside it"
            )
        changes["grad_mode"] = "no_grad" if no_grad else "inference"
    return replace(base or Setting(), **changes)


def normalize_device(device: str | torch.device) -> str:
    """`device` as torch spells it on tensors ("cpu", "cuda:0").

    Raises InvalidArgumentError for what is no device, UnsupportedError for kinds other than cpu and
    cuda, and UnavailableError for a CUDA device that this machine does not have.
    """
    parsed = _parse_device(device)
    if parsed.type == "cpu":
        return "cpu"
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


def read_grad_mode() -> GradMode:
    """The caller's."""
    if torch.is_grad_enabled():
        return "grad"
    return "inference" if torch.is_inference_mode_enabled() else "no_grad"


@contextmanager
def use_autograd(has_autograd: bool) -> Iterator[None]:
    """With autograd on inside, whatever the caller's mode; or under inference mode."""
    with torch.inference_mode(not has_autograd), torch.set_grad_enabled(has_autograd):
        yield


def check_threads(threads: int | None) -> None:
    """Raises InvalidArgumentError for a number of threads that cannot be."""
    if threads is not None:
        check_count("threads", threads, most=_MOST_THREADS)


def _parse_device(device: str | torch.device) -> torch.device:
    try:
        parsed = torch.device(device)
        # torch keeps eight bits of an index: 'cuda:99999' would be 'cuda:-97', 'cuda:256' 'cuda:0'.
        kept = parsed.index if isinstance(device, int) else str(parsed)
        if kept != (device if isinstance(device, int) else str(device)) or (parsed.index or 0) < 0:
            raise ValueError(f"torch made {str(parsed)!r} of it")
    except (RuntimeError, TypeError, ValueError) as error:
        named = str(device) if isinstance(device, torch.device) else device
        raise InvalidArgumentError(
            f"device is {named!r}, which torch does not know: give 'cpu', 'cuda' or "
            "'cuda:<index>' with an index from 0 to 127"
        ) from error
    if parsed.type not in ("cpu", "cuda"):
        raise UnsupportedError(
            f"device is {str(parsed)!r}, and ftax measures only CPUs and CUDA devices: "
            "give 'cpu' or 'cuda'"
        )
    return parsed


def _freeze_options(options: Any) -> FrozenMap:
    if options is None:
        return FrozenMap({})
    if not isinstance(options, Mapping) or not all(
        isinstance(text, str) for pair in options.items() for text in pair
    ):
        raise InvalidArgumentError(
            f"runtime_options is {options!r}: give texts by name, such as "
            "{'optimization': 'basic'}"
        )
    return FrozenMap(options)


def _check_choice(name: str, value: Any, choices: tuple[str | None, ...]) -> None:
    if value not in choices:
        names = ", ".join(filter(None, choices))
        raise InvalidArgumentError(f"{name} is {value!r}: give one of {names}")


_FIELDS = tuple(item.name for item in fields(Setting))
_OF_LOADING = _FIELDS[: _FIELDS.index("threads")]
_DEFAULTS: dict[str, Any] = {name: getattr(Setting(), name) for name in _FIELDS}
