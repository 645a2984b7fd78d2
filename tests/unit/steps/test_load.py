"""The zoo: what its entries build, that their outputs mean something, and that they can be rebuilt.

The full-size models are built and run too, because a degenerate output is a matter of depth and
width that the tiny form might not show. Each is built once; only three are, one of each kind, and
the others are in test_zoo.py.
"""

import collections
import contextlib
import functools
import hashlib
import json
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ftax.errors import FtaxError, InvalidArgumentError, UnavailableError, UnsupportedError
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import flatten_outputs
from ftax.steps.spec import ModelSpec, Variant
from ftax.steps.zoo.huggingface import quiet_transformers
from ftax.steps.zoo.registry import find_spec, list_models

NAMES = ["bert-base", "gpt2", "resnet-50"]
SPECS = [find_spec(name) for name in NAMES]


@functools.cache
def load_once(name: str, *, tiny: bool) -> LoadedModel:
    return load_model(name, tiny=tiny)


class OperatorLog(TorchDispatchMode):
    """The names of the operators that run, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def digest(model: LoadedModel) -> str:
    """One hash over the bits of all weights, buffers and inputs."""
    total = hashlib.sha256()
    tensors = [*model.module.state_dict().values()]
    for tensor in [*tensors, *model.flat_inputs(), *model.flat_check_inputs()]:
        total.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def relative_difference(first: torch.Tensor, second: torch.Tensor) -> float:
    return float((first.double() - second.double()).norm() / first.double().norm())


def test_zoo_holds_each_model_once_and_text_first() -> None:
    names = [spec.name for spec in list_models()]
    assert len(names) == len(set(names))
    assert [name for name in names if name in NAMES] == NAMES
    families = [spec.family for spec in list_models()]
    assert families[0] == "text" and families == sorted(families, key=families.index)
    assert [spec.sequence for spec in SPECS] == [128, 128, None]


@pytest.mark.parametrize(
    ("wrong", "meant"), [("bert", "bert-base"), ("GPT-2", "gpt2"), ("resnet50", "resnet-50")]
)
def test_unknown_name_suggests_the_closest(wrong: str, meant: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"'{wrong}'.*did you mean '{meant}'"):
        find_spec(wrong)


def test_name_like_no_other_says_where_the_names_are() -> None:
    with pytest.raises(InvalidArgumentError, match=r"`ftax models` lists the \d+ models") as caught:
        load_model("xyzzy")
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize("spec", SPECS, ids=NAMES)
def test_parameter_count_is_the_published_one(spec: ModelSpec) -> None:
    published = {"bert-base": 109.48e6, "gpt2": 124.44e6, "resnet-50": 25.56e6}
    attention = spec.attentions[0] if spec.attentions else None
    with torch.device("meta"):
        module = spec.build(Variant(attention=attention))
    built = sum(parameter.numel() for parameter in module.parameters())
    assert built == pytest.approx(spec.parameter_count, rel=spec.parameter_tolerance_ratio)
    assert built == pytest.approx(published[spec.name], rel=1e-3)


@pytest.mark.parametrize("tiny", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_finite_of_sane_scale_and_depend_on_the_input(name: str, tiny: bool) -> None:
    model = load_once(name, tiny=tiny)
    with torch.inference_mode():
        outputs = flatten_outputs(model.call())
        check_outputs = flatten_outputs(model.call_check())
    assert outputs
    for output, check_output in zip(outputs, check_outputs, strict=True):
        assert bool(output.isfinite().all())
        assert 0.1 < float(output.std()) < 10
        assert relative_difference(output, check_output) > 1e-2


@pytest.mark.parametrize("name", NAMES)
def test_tiny_form_runs_the_same_operators(name: str) -> None:
    logs = []
    for tiny in (False, True):
        loaded = load_once(name, tiny=tiny)  # building it calls operators too
        with torch.inference_mode(), OperatorLog() as log:
            loaded.call()
        logs.append(log.names)
    assert len(logs[0]) > 100
    assert logs[0] == logs[1]


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_has_random_values_of_moderate_size(name: str) -> None:
    for key, parameter in load_once(name, tiny=True).module.named_parameters():
        assert not parameter.requires_grad
        assert float(parameter.std()) > 1e-3, key
        assert float(parameter.abs().max()) < 3, key


def test_zoo_models_are_in_eval_mode() -> None:
    assert not any(part.training for part in load_once("resnet-50", tiny=True).module.modules())


@pytest.mark.parametrize(("dtype", "tolerance"), [("fp16", 0.02), ("bf16", 0.1)])
@pytest.mark.parametrize("name", NAMES)
def test_lower_precision_has_the_rounded_weights(name: str, dtype: Any, tolerance: float) -> None:
    exact, rounded = load_once(name, tiny=True), load_model(name, tiny=True, dtype=dtype)
    assert rounded.dtype == dtype
    with torch.inference_mode():
        first, second = flatten_outputs(exact.call())[0], flatten_outputs(rounded.call())[0]
    assert 0 < relative_difference(first, second) < tolerance


def test_seed_determines_weights_and_inputs_and_global_state_is_untouched() -> None:
    before = torch.get_rng_state()
    first, again = (load_model("gpt2", tiny=True, seed=7) for _ in range(2))
    other = load_model("gpt2", tiny=True, seed=8)
    assert torch.equal(torch.get_rng_state(), before)
    assert digest(first) == digest(again) != digest(other)
    assert not torch.equal(first.flat_inputs()[0], first.flat_check_inputs()[0])


def test_batch_and_sequence_shape_the_inputs() -> None:
    text = load_model("bert-base", tiny=True, batch=3, sequence=5)
    assert (text.batch, text.sequence) == (3, 5)
    assert [tuple(t.shape) for t in text.flat_inputs() + text.flat_check_inputs()] == [(3, 5)] * 2
    images = load_model("resnet-50", tiny=True, batch=2)
    assert (images.batch, images.sequence) == (2, None)
    assert tuple(images.flat_inputs()[0].shape) == (2, 3, 32, 32)
    assert images.options["image_size"] == 32


def test_full_size_inputs_are_those_of_the_paper() -> None:
    assert tuple(load_once("bert-base", tiny=False).flat_inputs()[0].shape) == (1, 128)
    assert tuple(load_once("resnet-50", tiny=False).flat_inputs()[0].shape) == (1, 3, 224, 224)


@pytest.mark.parametrize("name", ["bert-base", "gpt2"])
def test_attention_is_sdpa_unless_eager_is_asked_and_both_agree(name: str) -> None:
    outputs, logs = [], []
    for model in (load_once(name, tiny=True), load_model(name, tiny=True, attention="eager")):
        with torch.inference_mode(), OperatorLog() as log:
            outputs.append(flatten_outputs(model.call())[0])
        logs.append((model.options["attention"], any("attention" in op for op in log.names)))
    assert logs == [("sdpa", True), ("eager", False)]
    torch.testing.assert_close(outputs[0], outputs[1], rtol=1e-4, atol=1e-5)


def test_cache_adds_keys_and_values_of_each_layer_to_the_outputs() -> None:
    without, cached = load_once("gpt2", tiny=True), load_model("gpt2", tiny=True, use_cache=True)
    assert (without.options["use_cache"], cached.options["use_cache"]) == (False, True)
    with torch.inference_mode():
        shapes = [tuple(output.shape) for output in flatten_outputs(cached.call())]
        assert len(flatten_outputs(without.call())) == 1
    # 12 layers, keys and values, batch 1, 4 heads of width 8 at 8 positions.
    assert collections.Counter(shapes) == {(1, 8, 1000): 1, (1, 4, 8, 8): 24}


def test_bind_calls_the_module_on_the_main_inputs() -> None:
    model = load_once("bert-base", tiny=True)
    with torch.inference_mode():
        assert torch.equal(model.bind()()[0], model.call()[0])


def test_options_and_recipe_are_json_and_the_recipe_rebuilds_the_model() -> None:
    model = load_model("gpt2", tiny=True, dtype="bf16", batch=2, seed=3, use_cache=True)
    recipe = json.loads(json.dumps(model.recipe()))
    again = load_model(**recipe)
    assert model.reproducible
    assert json.loads(json.dumps(again.options)) == model.options
    assert (again.batch, again.dtype, again.recipe()) == (2, "bf16", recipe)


CHILD = """
import json, socket, sys
def refuse(*args, **kwargs):
    raise RuntimeError("network use")
socket.getaddrinfo = socket.socket.connect = refuse
sys.path[:] = json.loads(sys.argv[1])
import ftax.steps.load
assert "transformers" not in sys.modules, "importing ftax.steps imported transformers"
from test_load import digest
print(digest(ftax.steps.load.load_model(**json.loads(sys.argv[2]))))
"""


def test_another_process_rebuilds_the_same_bits_on_one_thread_and_without_network() -> None:
    model = load_once("resnet-50", tiny=True)
    path = [os.path.dirname(__file__), *sys.path]
    arguments = [json.dumps(path), json.dumps(model.recipe())]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == digest(model)


def test_building_and_running_print_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    for name in NAMES:
        load_model(name, tiny=True).call()
    assert capfd.readouterr() == ("", "")


def test_settings_of_transformers_are_put_back() -> None:
    import huggingface_hub.constants as hub
    from transformers.utils import logging as log

    log.set_verbosity_info()
    log.enable_progress_bar()
    before = hub.HF_HUB_OFFLINE
    inside = []
    with contextlib.suppress(KeyError), quiet_transformers():
        inside += [hub.HF_HUB_OFFLINE, log.get_verbosity(), log.is_progress_bar_enabled()]
        raise KeyError
    after = (hub.HF_HUB_OFFLINE, log.get_verbosity(), log.is_progress_bar_enabled())
    log.set_verbosity_warning()
    assert inside == [True, log.ERROR, False]
    assert after == (before, log.INFO, True)


def test_missing_transformers_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UnavailableError, match=r"pip install 'ftax\[models\]'"):
        load_model("bert-base", tiny=True)


WRONG: list[tuple[dict[str, Any], type[FtaxError], str]] = [
    ({"model": 3}, InvalidArgumentError, "type int"),
    ({"dtype": "float32"}, InvalidArgumentError, "'float32'.*fp32, fp16, bf16"),
    ({"device": "gpu"}, InvalidArgumentError, "'gpu'.*'cuda'"),
    ({"device": "mps"}, UnsupportedError, "'mps'.*'cpu' or 'cuda'"),
    ({"batch": 0}, InvalidArgumentError, "batch is 0; give a whole number from 1"),
    ({"batch": True}, InvalidArgumentError, "batch is True"),
    ({"sequence": -1}, InvalidArgumentError, "sequence is -1; give a whole number from 1"),
    ({"sequence": 513}, InvalidArgumentError, "513.*bert-base takes at most 512"),
    ({"model": "gpt2", "sequence": 1025}, InvalidArgumentError, "1025.*at most 1024"),
    ({"model": "resnet-50", "sequence": 128}, InvalidArgumentError, "128.*resnet-50.*images"),
    ({"model": "resnet-50", "attention": "sdpa"}, InvalidArgumentError, "'sdpa'.*resnet-50"),
    ({"attention": "flash"}, InvalidArgumentError, "'flash'.*sdpa, eager"),
    ({"use_cache": True}, InvalidArgumentError, "bert-base has no key-value cache"),
    ({"use_cache": 1}, InvalidArgumentError, "use_cache is 1.*True or False"),
    ({"seed": -1}, InvalidArgumentError, "seed is -1"),
    ({"seed": 2**30}, InvalidArgumentError, "seed is 1073741824"),
    ({"check_inputs": torch.zeros(1)}, InvalidArgumentError, "without inputs"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), WRONG)
def test_wrong_argument_is_named_with_the_remedy(
    arguments: dict[str, Any], error: type[FtaxError], message: str
) -> None:
    with pytest.raises(error, match=message):
        load_model(**{"model": "bert-base", "tiny": True, **arguments})


def test_cuda_device_that_is_not_there_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UnavailableError, match=r"'cuda'.*device='cpu'"):
        load_model("bert-base", tiny=True, device="cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UnavailableError, match=r"'cuda:2'.*below 2"):
        load_model("bert-base", tiny=True, device="cuda:2")
