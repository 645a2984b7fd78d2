"""The setting: one list of options, checked once, that every way in is made of."""

import inspect
import json
import typing
from dataclasses import fields, replace

import pytest
import torch

import ftax
from ftax.errors import InvalidArgumentError, UnsupportedError
from ftax.ladders.trace import profile_once
from ftax.steps.setting import Setting, SettingOptions, read_setting
from ftax.timing.cell import Cell
from support.signatures import list_options
from support.small_models import normal

TAKERS = [
    ftax.load_model,
    ftax.cpp_bench,
    ftax.py_bench,
    ftax.compare_hosts,
    ftax.tax,
    ftax.trace,
    profile_once,
    ftax.knee,
    ftax.conform,
]
FULL = Setting(
    dtype="fp16", device="cuda:1", batch=3, sequence=5, seed=7, attention="eager", use_cache=True,
    tiny=True, threads=2, grad_mode="no_grad", cold=True, transfers=True,
    runtime_options={"optimization": "basic"},
)  # fmt: skip


def test_the_keywords_of_functions_are_the_fields_of_a_setting():
    own, keywords = map(typing.get_type_hints, (Setting, SettingOptions))
    assert set(keywords) - {"setting", "no_grad"} == {item.name for item in fields(Setting)}
    wider = {"device": str | torch.device | None}  # an object of torch too, which does not travel
    for name, kind in own.items():
        assert keywords[name] in (kind, kind | None, wider.get(name)), name


@pytest.mark.parametrize("function", TAKERS)
def test_no_public_function_lists_the_options_again(function):
    own = set(inspect.signature(function).parameters)
    assert not own & {item.name for item in fields(Setting)}
    assert list_options(function) >= SettingOptions.__optional_keys__


@pytest.mark.parametrize("function", TAKERS)
def test_an_unknown_keyword_is_answered_with_the_nearest(function):
    with pytest.raises(InvalidArgumentError, match=r"unknown option 'dtyp'; did you mean 'dtype'"):
        function("bert-base", dtyp="fp16")


def test_a_keyword_of_the_function_itself_may_have_been_meant():
    with pytest.raises(InvalidArgumentError, match="did you mean 'runtime'"):
        ftax.cpp_bench("bert-base", runtme="torchscript")
    with pytest.raises(InvalidArgumentError, match="did you mean 'operators'"):
        ftax.tax("bert-base", operator=False)
    with pytest.raises(InvalidArgumentError, match="did you mean 'margin'"):
        ftax.knee("bert-base", margn=0.1)


def test_a_setting_survives_json_and_is_equal_to_itself():
    steps = (
        Setting(step="decode", tokens=4, cache="static", sample=True),
        Setting(step="train", optimizer="sgd-fused"),
    )
    for setting in (FULL, *steps):
        again = Setting(**json.loads(json.dumps(setting.to_dict())))
        assert again == setting and hash(again) == hash(setting)
    said = {name for setting in (FULL, *steps) for name in setting.to_dict()}
    assert said == {item.name for item in fields(Setting)}
    assert Setting().to_dict() == {}
    assert replace(FULL, batch=4) != FULL


def test_keywords_change_a_setting_field_by_field():
    found = read_setting({"setting": FULL, "batch": 8, "no_grad": False})
    assert found == replace(FULL, batch=8, grad_mode="inference")
    assert read_setting({"no_grad": True}) == Setting(grad_mode="no_grad")
    assert read_setting({"device": torch.device("cuda", 1)}).device == "cuda:1"
    assert read_setting({"runtime_options": None}) == Setting()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "fp12"}, "dtype is 'fp12': give one of fp32, fp16, bf16"),
        ({"attention": "flash"}, "attention is 'flash': give one of sdpa, eager"),
        ({"grad_mode": None}, "grad_mode is None: give one of inference, no_grad"),
        ({"batch": 0}, "batch is 0; give a whole number from 1 to 2147483647"),
        ({"sequence": 1.5}, "sequence is 1.5; give a whole number"),
        ({"seed": 2**30}, "seed is 1073741824; give a whole number from 0 to 1073741823"),
        ({"step": "sing"}, "step is 'sing': give one of forward, decode, train"),
        ({"tokens": 8}, "tokens is 8, which is of a step of kind 'decode'.*give step='decode'"),
        ({"step": "train", "cache": "static"}, "cache is 'static', which is of a step of kind"),
        ({"step": "decode", "optimizer": "sgd"}, "optimizer is 'sgd', which is of a step of kind"),
        ({"batch": 10**20}, "batch is 100000000000000000000; give a whole number"),
        ({"batch": True}, "batch is True; give"),
        ({"sequence": 2**31}, "sequence is 2147483648; give"),
        ({"step": "decode", "tokens": 10**5000}, "tokens is int, too long to write; give"),
        ({"threads": 100_000}, "threads is 100000; give a whole number from 1 to 4096"),
        ({"tiny": 1}, "tiny is 1: give True or False"),
        ({"transfers": "yes"}, "transfers is 'yes': give True or False"),
        ({"threads": 0}, "threads is 0; give a whole number from 1 to 4096"),
        ({"device": "gpu"}, "device is 'gpu', which torch does not know"),
        ({"device": "cuda:99999"}, "device is 'cuda:99999', .* an index from 0 to 127"),
        ({"device": "cuda:128"}, "device is 'cuda:128', which"),
        ({"device": "cuda:255"}, "device is 'cuda:255', which"),
        ({"device": "cuda:256"}, "device is 'cuda:256', which"),
        ({"device": "cpu:300"}, "device is 'cpu:300', which"),
        ({"device": "cuda:-1"}, "device is 'cuda:-1', which"),
        ({"device": "cuda:1x"}, "device is 'cuda:1x', which"),
        ({"device": "cuda:00"}, "device is 'cuda:00', which"),
        ({"device": 1.5}, "device is 1.5, which"),
        ({"device": torch.device("cuda", 99999)}, "device is 'cuda:-97', which"),
        ({"runtime_options": {"optimization": 3}}, "give texts by name"),
        ({"no_grad": True, "grad_mode": "inference"}, "no grad_mode beside it"),
        ({"no_grad": "yes"}, "no_grad is 'yes': give True or False"),
        ({"setting": {"batch": 1}}, "setting is of type dict: give an ftax.Setting"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_the_remedy(options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        read_setting(options)


def test_other_devices_than_two_kinds_are_not_supported():
    with pytest.raises(UnsupportedError, match="'meta', and ftax measures only CPUs and CUDA"):
        Setting(device="meta")


def test_a_loaded_model_knows_what_was_not_said_and_how_it_is_run():
    loaded = ftax.load_model("bert-base", tiny=True, threads=1)
    assert (loaded.setting.dtype, loaded.setting.device) == ("fp32", "cpu")
    assert (loaded.setting.batch, loaded.setting.sequence, loaded.setting.threads) == (1, 8, 1)
    assert loaded.setting.attention == "sdpa"
    cell = Cell.of(loaded.setting, model="m", runtime="eager", host="cpp", options={})
    assert (cell.device, cell.dtype, cell.batch, cell.sequence) == ("cpu", "fp32", 1, 8)


def test_what_is_said_beside_a_loaded_model_changes_how_it_is_run_alone():
    loaded = ftax.load_model(torch.nn.ReLU(), inputs=normal(2, 3), threads=1)
    other = loaded.run_as(Setting(grad_mode="no_grad"))
    assert (other.setting.threads, other.setting.grad_mode) == (1, "no_grad")
    assert loaded.run_as(loaded.setting).setting == loaded.setting
    for changed in (Setting(batch=4), Setting(dtype="fp16"), replace(loaded.setting, seed=3)):
        with pytest.raises(InvalidArgumentError, match="a LoadedModel brings its inputs"):
            loaded.run_as(changed)


def test_how_long_to_measure_is_said_by_a_plan():
    with pytest.raises(
        InvalidArgumentError, match=r"'duration' is said by a plan: plan=ftax\.Plan"
    ):
        ftax.tax(torch.nn.ReLU(), normal(2, 3), duration=1)


def test_threads_of_a_loaded_model_are_those_it_is_measured_with():
    seen = []

    class Looks(torch.nn.Module):
        def forward(self, x):
            seen.append(torch.get_num_threads())
            return x + 1

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        loaded = ftax.load_model(Looks(), inputs=normal(2, 3), threads=1)
        plan = ftax.Plan(rounds=2, warmup=1, round_ms=0.1)
        ftax.py_bench(loaded, plan=plan)
        assert set(seen) == {1}
        seen.clear()
        ftax.py_bench(loaded, threads=2, plan=plan)
        assert set(seen) == {2}
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", ["transfers", "cold"])
def test_what_only_a_gpu_has_is_refused_of_a_cpu(name):
    for measure in (ftax.cpp_bench, ftax.tax):
        with pytest.raises(InvalidArgumentError, match=f"{name} is asked for, but the device is"):
            measure(torch.nn.ReLU(), normal(2, 3), **{name: True})


def test_an_option_that_no_runtime_of_a_receipt_takes_is_refused():
    message = "none of these runtimes has an option 'optimise'; did you mean 'optimization'"
    with pytest.raises(InvalidArgumentError, match=message):
        ftax.tax(
            torch.nn.ReLU(), normal(2, 3), runtimes=["onnxruntime"],
            runtime_options={"optimise": "basic"},
        )  # fmt: skip


def test_an_unknown_field_is_told_with_the_one_that_was_meant():
    with pytest.raises(InvalidArgumentError, match="no field 'thread'; did you mean 'threads'"):
        Setting(**{"thread": 2})
