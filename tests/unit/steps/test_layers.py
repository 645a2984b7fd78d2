"""Single layers: sizes read from names, and the grids of the original."""

from typing import Any

import pytest
import torch

from ftax.errors import InvalidArgumentError
from ftax.steps.load import load_model
from ftax.steps.outputs import flatten_outputs
from ftax.steps.zoo.layers import (
    LAYER_MODELS,
    LAYER_TYPES,
    layer_name,
    make_layer_grid,
    parse_layer_name,
)
from ftax.steps.zoo.registry import find_spec, list_models
from ftax.tape.tape import make_tape

# Parameters by hand, then the input and output of a batch of two at the default size.
LAYERS: dict[str, tuple[int, tuple[int, ...], tuple[int, ...]]] = {
    "layer-feed-forward": (768 * 768 + 768, (2, 128, 768), (2, 128, 768)),
    "layer-feed-forward-512-x4": (4 * (512 * 512 + 512), (2, 128, 512), (2, 128, 512)),
    "layer-conv1d": (3 * 3 * 3 + 3, (2, 3, 1024), (2, 3, 1024)),
    # (1024 + 4 - 5) // 2 + 1
    "layer-conv1d-5-k5-s2": (5 * 5 * 5 + 5, (2, 5, 1024), (2, 5, 512)),
    "layer-conv2d": (64 * 64 * 9 + 64, (2, 64, 56, 56), (2, 64, 54, 54)),
    "layer-conv2d-32-o64-k1-s2-i14": (32 * 64 + 64, (2, 32, 14, 14), (2, 64, 7, 7)),
    # 32 -> 192 -> 192 -> 32, with a scale and a shift for each channel of each batch norm
    "layer-inverted-bottleneck": (
        32 * 192 + 192 * 9 + 192 * 32 + 2 * (192 + 192 + 32),
        (2, 32, 56, 56),
        (2, 32, 56, 56),
    ),
    "layer-inverted-bottleneck-16-o24-e1-i28": (
        16 * 9 + 16 * 24 + 2 * (16 + 24),
        (2, 16, 28, 28),
        (2, 24, 28, 28),
    ),
    "layer-norm": (2 * 768, (2, 128, 768), (2, 128, 768)),
    "layer-attention": (4 * (256 * 256 + 256), (2, 128, 256), (2, 128, 256)),
    "layer-attention-64-h1": (4 * (64 * 64 + 64), (2, 128, 64), (2, 128, 64)),
    "layer-rnn": (2 * 512 * 512 + 2 * 512, (2, 128, 512), (2, 128, 512)),
    # Four gates, each with a matrix of the input and one of the state, and two biases.
    "layer-lstm-16-x2": (2 * 4 * (2 * 16 * 16 + 2 * 16), (2, 128, 16), (2, 128, 16)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_sizes_in_the_name_are_those_of_the_layer(name: str) -> None:
    parameters, given, expected = LAYERS[name]
    spec = find_spec(name)
    model = load_model(name, batch=2)
    assert model.parameter_count == spec.parameter_count == parameters
    assert tuple(model.flat_inputs()[0].shape) == given
    with torch.inference_mode():
        assert tuple(flatten_outputs(model.call())[0].shape) == expected


def test_list_has_each_kind_once_with_its_default_sizes() -> None:
    names = [spec.name for spec in list_models() if spec.family == "layer"]
    assert names == [spec.name for spec in LAYER_MODELS] == list(LAYER_TYPES)
    assert find_spec("layer-attention").description.endswith("(width 256, heads 4)")


def test_name_has_one_entry_and_is_kept_as_it_was_given() -> None:
    first, again = find_spec("layer-rnn-768-x2"), find_spec("layer-rnn-768-x2")
    assert first is again
    assert first.name == "layer-rnn-768-x2" == layer_name("layer-rnn", w=768, x=2)
    model = load_model(first.name, tiny=True)
    assert model.recipe() is not None
    assert load_model(**model.recipe()).name == first.name  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["bert-base", "layers", "layer", "layer-normal", "layer-conv3d"])
def test_other_names_are_left_to_others(name: str) -> None:
    assert parse_layer_name(name) is None


WRONG = [
    ("layer-rnn-512-h8", "part 'h8'.*<width>, x<layers>.*'layer-rnn-512-x1'"),
    ("layer-norm-", "part ''"),
    ("layer-norm-0", "part '0'"),
    ("layer-norm-wide", "part 'wide'"),
    ("layer-norm-64-128", "part '128'.*at most once"),
    ("layer-conv2d-64-k3-k5", "part 'k5'"),
    ("layer-attention-100-h8", "width 100, which 8 heads do not divide"),
    ("layer-conv2d-64-k9-i7", "kernel of 9 on 7 pixels"),
]


@pytest.mark.parametrize(("name", "message"), WRONG)
def test_wrong_size_is_named_with_what_would_be_right(name: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        load_model(name)


def test_length_is_the_sequence_and_images_have_none() -> None:
    assert load_model("layer-lstm", tiny=True, sequence=5).flat_inputs()[0].shape == (1, 5, 32)
    model = load_model("layer-conv2d", tiny=True)
    assert (model.sequence, model.options["image_size"]) == (None, 16)
    assert model.with_size(batch=3).flat_inputs()[0].shape == (3, 32, 16, 16)
    with pytest.raises(InvalidArgumentError, match="layer-conv2d takes images"):
        load_model("layer-conv2d", sequence=7)


TINY = [*LAYER_TYPES, "layer-inverted-bottleneck-64-o128-s2", "layer-attention-768-h12"]


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", TINY)
def test_tape_of_the_tiny_form_equals_eager_and_outputs_mean_something(
    name: str, dtype: Any
) -> None:
    model = load_model(name, tiny=True, dtype=dtype)
    with torch.inference_mode():
        outputs, checks = flatten_outputs(model.call()), flatten_outputs(model.call_check())
    for output, check in zip(outputs, checks, strict=True):
        assert bool(output.isfinite().all())
        assert 0.03 < float(output.float().std()) < 10
        assert not torch.equal(output, check)
    assert make_tape(model).checks.outputs.bitwise


# Widths x layers; channels x kernels x strides; and so on.
GRIDS = {
    "layer-feed-forward": (13 * 5, 7, 10),
    "layer-conv1d": (3 * 4 * 3, 6, 13),
    "layer-conv2d": (6 * 6 * 2 * 3 * 6, 7, 1),
    "layer-inverted-bottleneck": (6 * 6 * 2 * 3 * 6, 11, 1),
    "layer-norm": (14, 1, 1),
    "layer-attention": (5 * 5, 1, 11),
    "layer-rnn": (5 * 3, 5, 8),
    "layer-lstm": (5 * 3, 5, 8),
}


@pytest.mark.parametrize("kind", LAYER_TYPES)
def test_grid_is_that_of_the_original_and_each_name_is_a_layer(kind: str) -> None:
    grid = make_layer_grid(kind)
    assert (len(grid.models), len(grid.batches), len(grid.sequences)) == GRIDS[kind]
    assert len(set(grid.models)) == len(grid.models)
    assert all(find_spec(name).family == "layer" for name in grid.models)
    assert (grid.sequences == (None,)) == (find_spec(kind).sequence is None)


def test_grid_can_be_cut() -> None:
    grid = make_layer_grid("layer-conv2d", {"w": (64,), "o": (64, 128), "s": (1,), "i": (7,)})
    assert grid.models == tuple(
        f"layer-conv2d-64-o{outer}-k{kernel}-s1-i7" for outer in (64, 128) for kernel in (1, 3)
    )
    with pytest.raises(InvalidArgumentError, match=r"only has 'h'.*w \(width\), x \(layers\)"):
        make_layer_grid("layer-rnn", {"h": (1,)})
    with pytest.raises(InvalidArgumentError, match=r"no layer 'conv2d'.*layer-conv2d"):
        make_layer_grid("conv2d")


@pytest.mark.needs_cuda
@pytest.mark.parametrize("name", LAYER_TYPES)
def test_gpu_agrees_with_the_cpu_in_fp16(name: str) -> None:
    with torch.inference_mode():
        expected = flatten_outputs(load_model(name, tiny=True).call())[0]
        output = flatten_outputs(load_model(name, tiny=True, dtype="fp16", device="cuda").call())[0]
    difference = (output.cpu().double() - expected.double()).norm() / expected.double().norm()
    assert float(difference) < 0.02
