"""The lines that adopt a runtime are run as they are printed: they give the module's outputs, in
the time of their row."""

import json
import os
from pathlib import Path

import pytest
import torch
from torch import nn

import ftax
from ftax.runtimes import adoption
from ftax.runtimes.adoption import find_lines
from ftax.runtimes.catalogue import find_runtime, list_runtimes
from ftax.runtimes.compilers.inductor import sound_compiler
from ftax.runtimes.workspace import Workspace
from ftax.steps.setting import Setting
from support.forks import run_python

ADOPTABLE = [spec.name for spec in list_runtimes() if find_lines(spec.name)]
ON_CPU, ON_GPU = (
    [name for name in ADOPTABLE if device in find_runtime(name).devices]
    for device in ("cpu", "cuda")
)


def adopt(name, model, inputs, monkeypatch, tmp_path, details=None):
    """What the lines leave in ``outputs``, as a list."""
    monkeypatch.chdir(tmp_path)
    # Of its own: two processes that compile the same model write the same files.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    given = tuple(torch.zeros_like(x) for x in inputs)  # what a request brings is not known before
    names = {"torch": torch, "model": model, "inputs": given, "requests": [given, inputs]}
    with sound_compiler():  # with another libstdc++ than torch's, what is compiled may crash
        exec(find_lines(name, details=details), names)  # what a reader would paste
    outputs = names["outputs"]
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


@pytest.fixture
def image_model():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).eval()
        return model, (torch.randn(2, 3, 8, 8),)


def mark_compilers(name):
    """Compiling takes seconds, and all of a compiler's rows paste the same lines."""
    is_slow = name.startswith(("aoti", "compile"))
    return pytest.param(name, marks=[pytest.mark.slow] if is_slow else [])


@pytest.mark.filterwarnings("ignore")  # of torch's exporters and compilers, as a user sees them
@pytest.mark.parametrize("name", [*map(mark_compilers, ON_CPU)])
def test_pasted_lines_give_the_modules_outputs(name, image_model, monkeypatch, tmp_path):
    if name.startswith("onnxruntime"):
        pytest.importorskip("onnxruntime")
    model, inputs = image_model
    with torch.inference_mode():
        expected = model(*inputs)
    threads = torch.get_num_threads()
    try:
        (found,) = adopt(name, model, inputs, monkeypatch, tmp_path)
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(torch.as_tensor(found), expected, rtol=1e-4, atol=1e-5)


# It takes a compiler tens of seconds, and its request is the call that all others make.
SLOW = {"aoti", "aoti-cuda-graph", "compile-capture", "compile-max-autotune"}


def time_pasted(name, device, tmp_path):
    """In a process of its own: how many times as long as their row the lines take."""
    environment = {
        "PYTHONPATH": f"{Path(__file__).parents[2]}:{os.environ.get('PYTHONPATH', '')}",
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "compiled"),
    }
    code = f"from support.pasted import main; main({name!r}, {device!r})"
    ended = run_python(code, cwd=tmp_path, environment=environment)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return json.loads(ended.stdout.splitlines()[-1])  # an exporter may print before


@pytest.mark.timing
@pytest.mark.parametrize("name", sorted({*ON_CPU} - SLOW))
def test_pasted_lines_take_the_time_of_their_row(name, tmp_path):
    if name.startswith("onnxruntime"):
        pytest.importorskip("onnxruntime")
    assert time_pasted(name, "cpu", tmp_path) == pytest.approx(1, abs=0.15)


@pytest.mark.needs_cuda
@pytest.mark.timing
@pytest.mark.parametrize("name", sorted({*ON_GPU} - SLOW))
def test_pasted_lines_take_the_time_of_their_row_on_a_gpu(name, tmp_path):
    if name == "onnxruntime" and (obstacle := find_runtime(name).find_obstacle(device="cuda")):
        pytest.skip(obstacle)
    assert time_pasted(name, "cuda", tmp_path) == pytest.approx(1, abs=0.15)


class Scorer(nn.Module):
    """Takes two tensors, and gives them names."""

    def __init__(self):
        super().__init__()
        self.score = nn.Linear(4, 1)

    def forward(self, tokens, mask):
        return {"scores": self.score(tokens) * mask}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [
        *map(mark_compilers, ["aoti", "compile"]),
        *["onnxruntime", "onnxruntime-run", "torchscript", "torchscript-frozen"],
    ],
)
def test_a_model_of_two_inputs_that_names_its_outputs_is_adopted_too(name, monkeypatch, tmp_path):
    if name.startswith("onnxruntime"):
        pytest.importorskip("onnxruntime")
    model, inputs = Scorer().eval(), (torch.randn(3, 4), torch.tensor([[1.0], [0.0], [1.0]]))
    with torch.inference_mode():
        expected = model(*inputs)["scores"]
    (found,) = adopt(name, model, inputs, monkeypatch, tmp_path)
    found = found["scores"] if isinstance(found, dict) else found
    torch.testing.assert_close(torch.as_tensor(found), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", adoption._LINES_OF_STEPS)
def test_pasted_lines_train_as_the_step_does(name):
    def make():
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return model, step

    threads, inputs = torch.get_num_threads(), (torch.ones(3, 4),)
    (model, step), (twin, original) = make(), make()
    names = {"torch": torch, "step": ftax.step(step, inputs), "inputs": inputs}
    try:
        exec(find_lines(name, step=True), names)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(names["outputs"], original(*inputs))
    assert torch.equal(model.weight, twin.weight)


def test_lines_belong_to_runtimes_and_fit_a_terminal():
    assert len(ADOPTABLE) == len(adoption._LINES)  # none is of a name that there is not
    assert {*adoption._LINES_OF_STEPS} <= {spec.name for spec in list_runtimes()}
    for name in ADOPTABLE:
        assert max(map(len, find_lines(name).splitlines())) <= 76  # printed with an indent of 4
    assert find_lines("launch-replay") == ""  # an instrument: nobody deploys it


@pytest.mark.needs_cuda
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted({*ON_GPU} - {"onnxruntime"}))
def test_pasted_lines_give_the_modules_outputs_on_a_gpu(name, image_model, monkeypatch, tmp_path):
    model, inputs = image_model[0].cuda(), (image_model[1][0].cuda(),)
    with torch.inference_mode():
        expected = model(*inputs)
    (found,) = adopt(name, model, inputs, monkeypatch, tmp_path)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.needs_ort_cuda
@pytest.mark.filterwarnings("ignore")
def test_pasted_lines_of_onnxruntime_leave_the_outputs_on_the_gpu(
    image_model, monkeypatch, tmp_path
):
    model, inputs = image_model[0].cuda(), (image_model[1][0].cuda(),)
    with torch.inference_mode():
        expected = model(*inputs)
    details = find_details(model, inputs)
    (found,) = adopt("onnxruntime", model, inputs, monkeypatch, tmp_path, details)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def find_details(model, inputs, **options):
    """What a receipt has of the session that it measured."""
    setting = Setting(runtime_options=options)
    workspace = Workspace(ftax.load_model(model, inputs=inputs).run_as(setting))
    return find_runtime("onnxruntime").prepare(workspace, "python").preparation.details


@pytest.mark.needs_ort
def test_the_session_is_the_one_that_was_measured(image_model):
    assert "optimization_level" not in find_lines("onnxruntime")
    details = find_details(*image_model, optimization="basic")
    assert "_level = levels.ORT_ENABLE_BASIC\n" in find_lines("onnxruntime", details=details)
    details = {"session": {"optimization": "all", "provider_options": {"use_tf32": "0"}}}
    lines = find_lines("onnxruntime", details=details)
    assert '"CUDAExecutionProvider", {\n    "use_tf32": "0",\n' in lines
    assert max(map(len, lines.splitlines())) <= 76
    compile(lines, "lines", "exec")


def test_the_lines_are_of_the_grad_mode_that_was_measured():
    assert "no_grad" not in find_lines("compile-capture")
    assert "inference_mode" not in find_lines("compile-capture", grad_mode="no_grad")


def test_the_exporter_to_onnx_is_the_one_that_was_measured():
    assert "dynamo=True" in find_lines("onnxruntime")
    assert "dynamo=False" in find_lines("onnxruntime", details={"exporter": "torchscript"})


class Branches(nn.Module):
    def forward(self, x):
        return (x * 2).relu() + 1 if x.sum() > -1e9 else x


def test_what_holds_one_branch_is_not_advised():
    receipt = ftax.tax(
        Branches(), (torch.ones(2, 3),), runtimes=["torchscript"], progress=False,
        plan=ftax.Plan(rounds=20, warmup=3, round_ms=1.0),
    )  # fmt: skip
    rows = {
        (row.measurement.cell.runtime, row.measurement.cell.host): row for row in receipt.runtimes
    }
    for place in (("torchscript", "python"), ("torchscript", "cpp"), ("eager", "cpp")):
        assert "aten::is_nonzero" in rows[place].excluded
        assert rows[place].outputs == "bitwise equal, numbers baked in"
    assert rows["eager", "python"].excluded == ""
    assert receipt.adoption == ""
    assert "gives back" not in receipt.recommendation


class Asks(nn.Module):
    """As models do that look whether there is padding: never while they are exported."""

    def forward(self, x):
        if not torch.compiler.is_compiling() and (x > -1e9).all():
            return x * 2
        return torch.where(x > -1e9, x * 2, x)


def test_a_program_that_was_exported_has_nothing_baked_in():
    receipt = ftax.tax(
        Asks(), (torch.ones(2, 3),), runtimes=["onnxruntime", "torchscript"], progress=False,
        plan=ftax.Plan(rounds=6, warmup=3, round_ms=1.0),
    )  # fmt: skip
    excluded = {
        (row.measurement.cell.runtime, row.measurement.cell.host): row.excluded
        for row in receipt.runtimes
    }
    assert excluded["onnxruntime", "cpp"] == ""
    assert "aten::is_nonzero" in excluded["torchscript", "cpp"]
