"""Takes a module and inputs that the user made, as they are.

The module is not converted, moved or copied. Only what inference needs is changed in place (eval
mode, no gradients); the record says so, and who measures puts it back.
"""

from collections import Counter
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from ftax.errors import InvalidArgumentError, UnsupportedError, describe_fault, say_count
from ftax.steps.build import make_loaded, pair_user_inputs, refuse_variant, resolve_user_sizes
from ftax.steps.input_trees import flatten_tensors
from ftax.steps.loaded import LoadedModel
from ftax.steps.setting import Setting
from ftax.steps.spec import TORCH_DTYPES, Dtype
from ftax.steps.state import refuse_lazy
from ftax.steps.user_inputs import Given, split_inputs


def load_module(module: nn.Module, setting: Setting, given: Given | None) -> LoadedModel:
    """`module` with the user's inputs; raises where they, or the setting, do not fit."""
    kind = type(module)
    _refuse_odd_modules(module)
    if given is None:
        raise InvalidArgumentError(
            f"inputs is missing, and {kind.__name__} is not in the zoo, so ftax cannot make any: "
            "give them, for example load_model(module, inputs=torch.randn(1, 3, 224, 224))"
        )
    refuse_variant(setting, "module")
    sized = given.at(setting)
    first = _first_tensor(sized)
    device = resolve_device(_tensors_of(module), setting, first)
    dtype = resolve_dtype(module, setting, first)
    pair = pair_user_inputs(sized, device, setting.seed)
    batch, sequence = resolve_user_sizes(setting, pair)
    return make_loaded(
        module,
        pair,
        replace(setting, dtype=dtype, device=device, batch=batch, sequence=sequence),
        name=kind.__name__,
        options={"seed": setting.seed, "inputs": "given", "weights": "given"},
        source=f"module {kind.__module__}.{kind.__qualname__}",
        warnings=_prepare(module),
        finish=partial(load_module, module, given=given) if given.makes else None,
    )


def _refuse_odd_modules(module: nn.Module) -> None:
    """Raises UnsupportedError for modules that are none of Python, and those that are not ready."""
    for name, part in module.named_modules():
        where = f"its part {name!r}" if name else "the module"
        if isinstance(part, torch.jit.ScriptModule):
            raise UnsupportedError(
                f"{where} is a ScriptModule, which TorchScript runs and not Python: save the "
                "module with torch.jit.save, and give the file with runtime='torchscript'"
            )
        refuse_lazy(part, where)


def _prepare(module: nn.Module) -> tuple[str, ...]:
    """Puts `module` in eval mode without gradients, and says what that changed."""
    notes = []
    training = sum(part.training for part in module.modules())
    if training:
        notes.append(
            f"the module is in training mode ({say_count(training, 'part')}): measured in eval mode"
        )
    learning = sum(parameter.requires_grad for parameter in module.parameters())
    if learning:
        notes.append(f"{learning} parameters require gradients: measured without")
    try:  # by calls of their own: a method that somebody replaced may return nothing
        module.eval()
        module.requires_grad_(False)
    except Exception as error:
        raise UnsupportedError(
            f"the module cannot be put in eval mode without gradients "
            f"({describe_fault(error)}): let it take eval() and requires_grad_(False)"
        ) from error
    return tuple(notes)


def _tensors_of(module: nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


def resolve_device(
    tensors: list[torch.Tensor], setting: Setting, first: torch.Tensor | None
) -> str:
    """Where a module with these tensors is, or else its first input. Raises where it is on
    several."""
    devices = sorted({str(tensor.device) for tensor in tensors})
    if len(devices) > 1:
        raise UnsupportedError(
            f"the module is spread over {', '.join(devices)}: "
            "move it to one device with module.to(...)"
        )
    if devices == ["meta"]:
        raise InvalidArgumentError(
            "the module is on the meta device, where it has no weights: "
            "give it some with module.to_empty(...) and load_state_dict(...)"
        )
    if not devices:
        return setting.device or ("cpu" if first is None else str(first.device))
    if setting.device is not None and devices[0] != setting.device:
        raise InvalidArgumentError(
            f"device is {setting.device!r}, but the module is on {devices[0]}: "
            f"move it with module.to({setting.device!r}), or leave device out"
        )
    return devices[0]


def resolve_dtype(module: nn.Module, setting: Setting, first: torch.Tensor | None) -> Dtype:
    """The dtype of most of the module's floating point values; of its inputs if it has none."""
    sizes: Counter[torch.dtype] = Counter()
    for tensor in _tensors_of(module) or ([] if first is None else [first]):
        if tensor.is_floating_point() or tensor.is_complex():
            sizes[tensor.dtype] += tensor.numel()
    if not sizes:
        return setting.dtype or "fp32"
    found = sizes.most_common(1)[0][0]
    names: dict[torch.dtype, Dtype] = {value: key for key, value in TORCH_DTYPES.items()}
    if found not in names:
        raise UnsupportedError(
            f"it computes in {found}, and ftax measures {', '.join(TORCH_DTYPES)}: convert "
            "weights and inputs, for example with .float()"
        )
    if setting.dtype is not None and setting.dtype != names[found]:
        raise InvalidArgumentError(
            f"dtype is {setting.dtype!r}, but the module is in {names[found]!r}: "
            f"convert module and inputs with .to({TORCH_DTYPES[setting.dtype]}), or leave dtype out"
        )
    return names[found]


def _first_tensor(given: Given) -> torch.Tensor | None:
    try:
        return next(iter(flatten_tensors(split_inputs(given.inputs))), None)
    except RecursionError:
        return None  # which `pair_user_inputs` refuses
