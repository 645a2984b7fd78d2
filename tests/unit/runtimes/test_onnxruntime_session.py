"""The C interface: the library, sessions, bindings, and what each failure says."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ftax import _core
from ftax.errors import InvalidArgumentError, RunnerError, UnavailableError
from ftax.runtimes.onnx import sessions as ort
from support.forks import run_python
from support.onnx_models import CPU, S, Y, make_inputs, make_runner, save_model, view

pytestmark = pytest.mark.needs_ort


@pytest.fixture(scope="module")
def library() -> _core.OnnxRuntimeLibrary:
    return _core.open_onnxruntime(str(ort.find_library()))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("onnx") / "model.onnx")


# --- the library ---------------------------------------------------------------------------------


def test_library_is_the_one_in_the_installed_wheel(library: _core.OnnxRuntimeLibrary) -> None:
    assert Path(library.path) == ort.find_library()
    assert library.path.endswith(library.version)
    assert CPU in library.providers
    assert "build type" in library.build_info


def test_library_that_is_loaded_is_used_again_whatever_the_path(
    library: _core.OnnxRuntimeLibrary,
) -> None:
    assert _core.open_onnxruntime("/does/not/exist.so").path == library.path


def test_finding_the_library_without_onnxruntime_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"not installed.*pip install onnx"):
        ort.find_library()


def test_finding_the_library_in_a_wheel_without_one_names_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "onnxruntime").mkdir()
    (tmp_path / "onnxruntime" / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)
    importlib.invalidate_caches()
    with pytest.raises(UnavailableError, match=str(tmp_path)):
        ort.find_library()


def build_library(source: str, path: Path) -> Path:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("needs a C++ compiler to build the fake library")
    flags = ["-std=c++20", "-shared", "-fPIC"]
    code = Path(__file__).parents[2] / "cpp" / source
    subprocess.run([compiler, *flags, str(code), "-o", str(path)], check=True)
    return path


@pytest.fixture(scope="module")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fake")
    return build_library("fake_onnxruntime.cpp", folder / "libonnxruntime.so.1.10.0")


@pytest.fixture(scope="module")
def swapped_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library("swapped_onnxruntime.cpp", tmp_path_factory.mktemp("swapped") / "ort.so")


def open_in_fresh_process(*paths: Path | str) -> list[str]:
    """The version, or the error, that opening each path gave where nothing was loaded before."""
    script = (
        "import sys\n"
        "from ftax import _core, errors\n"
        "for path in sys.argv[1:]:\n"
        "    try:\n"
        "        print(_core.open_onnxruntime(path).version)\n"
        "    except errors.UnavailableError as error:\n"
        "        print(error)\n"
    )
    environment = {key: value for key, value in os.environ.items() if "TELEMETRY" not in key}
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, paths)],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.slow
def test_opening_a_wrong_library_teaches_and_does_not_stick(
    library: _core.OnnxRuntimeLibrary, old_library: Path, tmp_path: Path
) -> None:
    text = tmp_path / "text.so"
    text.write_text("no library")
    missing, no_library, foreign, old, good = open_in_fresh_process(
        "/does/not/exist.so", text, "libm.so.6", old_library, library.path
    )
    assert "/does/not/exist.so" in missing
    assert "pip install onnxruntime" in missing
    assert str(text) in no_library
    assert "libm.so.6" in foreign
    assert "no OrtGetApiBase" in foreign
    assert "1.10.0" in old
    assert str(old_library) in old
    assert "pip install -U onnxruntime" in old
    assert "ORT_DISABLE_TELEMETRY=1" in old  # telemetry was off before the library was loaded
    assert good == library.version


@pytest.mark.parametrize("swapped", ["13,23", "30,31", "33,34", "36,37", "136,137"])
def test_a_library_whose_slots_are_others_is_refused(swapped_library: Path, swapped: str) -> None:
    error = open_swapped(swapped_library, swapped).stderr
    assert f"{swapped_library} does not answer a known model" in error
    assert "install one from 1.20 to 1.32" in error


def test_the_same_library_with_its_slots_in_order_is_taken(swapped_library: Path) -> None:
    assert open_swapped(swapped_library, "0,0").stdout.strip() == str(swapped_library)


def open_swapped(library: Path, slots: str) -> subprocess.CompletedProcess[str]:
    code = f"from ftax import _core; print(_core.open_onnxruntime({str(library)!r}).path)"
    real = str(ort.find_library())
    return run_python(code, environment={"FTAX_REAL": real, "FTAX_SWAP": slots})


# --- sessions and bindings -----------------------------------------------------------------------


@pytest.fixture
def session(library: _core.OnnxRuntimeLibrary, model: Path) -> _core.OnnxRuntimeSession:
    return _core.OnnxRuntimeSession(library, str(model))


def test_session_describes_inputs_and_outputs(session: _core.OnnxRuntimeSession) -> None:
    assert session.inputs == [("x", "float32", ("batch", 2)), ("w", "float32", (2, 3))]
    assert session.outputs == [("y", "float32", ("batch", 3)), ("s", "float32", ())]


@pytest.mark.parametrize("optimization", ["disable", "basic", "extended", "layout", "all"])
def test_every_node_is_on_the_cpu(
    library: _core.OnnxRuntimeLibrary, model: Path, optimization: str
) -> None:
    session = _core.OnnxRuntimeSession(library, str(model), optimization=optimization)
    assert session.count_nodes() == {CPU: {"MatMul": 1, "ReduceSum": 1, "Relu": 1}}


@pytest.mark.parametrize(
    ("options", "added"),
    [({}, 0), ({"intra_op_threads": 3}, 2)],
)
def test_a_session_has_the_threads_that_it_was_given(
    library: _core.OnnxRuntimeLibrary, model: Path, options: dict[str, int], added: int
) -> None:
    threads = Path("/proc/self/task")
    before = len(list(threads.iterdir()))
    session = _core.OnnxRuntimeSession(library, str(model), **options)
    assert len(list(threads.iterdir())) == before + added
    assert session.inputs


def test_outputs_that_onnxruntime_allocates_have_their_shapes(
    session: _core.OnnxRuntimeSession,
) -> None:
    inputs = make_inputs()
    for name, tensor in zip("xw", inputs, strict=True):
        session.bind_input(name, *view(tensor))
    for name in "ys":
        session.bind_output_to_device(name)
    session.run()
    y, s = session.collect_outputs()
    assert (y.name, y.element_type, y.shape, y.memory) == ("y", "float32", [1, 3], "Cpu")
    assert (s.name, s.element_type, s.shape, s.memory) == ("s", "float32", [], "Cpu")


def test_caller_memory_is_what_a_run_writes(session: _core.OnnxRuntimeSession) -> None:
    inputs, y, s = make_inputs(), torch.empty(1, 3), torch.empty(())
    for name, tensor in zip("xw", inputs, strict=True):
        session.bind_input(name, *view(tensor))
    session.bind_output("y", *view(y))
    session.bind_output("s", *view(s))
    session.run()
    assert torch.equal(y, Y)
    assert torch.equal(s, S)
    assert [output.data_ptr for output in session.collect_outputs()] == [y.data_ptr(), s.data_ptr()]


def test_an_empty_batch_runs(model: Path) -> None:
    _, weight = make_inputs()
    runner, (y, s) = make_runner(model, [torch.zeros(0, 2), weight])
    runner.run_once()
    assert y.shape == (0, 3)
    assert s == 0


X = torch.zeros(1, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("z", *view(X)), "no input 'z'; it has 'x', 'w'"),
        (("x", *view(X.double())), "'x' is bound to float64, but the model has float32"),
        (("x", *view(torch.zeros(1, 3))), r"shape \[1, 3\], but the model has \[batch, 2\]"),
        (("x", *view(torch.zeros(2))), r"shape \[2\], but the model has \[batch, 2\]"),
        (("x", X.data_ptr(), 4, [1, 2], "float32"), "bound to 4 bytes.*takes 8"),
        (("x", X.data_ptr(), 8, [-1, 2], "float32"), "dimension of -1 is negative"),
        (("x", X.data_ptr(), 8, [1, 2], "float33"), "'float33' is none.*use one of float32, "),
        (("x", *view(X), "cuda"), "device cuda cannot be bound to a session of provider cpu"),
        (("x", *view(X), "tpu"), "device is 'tpu'; use one of cpu, cuda"),
    ],
)
def test_binding_what_does_not_fit_says_what_would(
    session: _core.OnnxRuntimeSession, arguments: tuple[object, ...], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        session.bind_input(*arguments)


def test_running_unbound_names_what_is_missing(session: _core.OnnxRuntimeSession) -> None:
    x, w = make_inputs()
    session.bind_input("x", *view(x))
    with pytest.raises(InvalidArgumentError, match="input 'w' is not bound; bind 'x', 'w'"):
        session.run()
    session.bind_input("w", *view(w))
    session.bind_output_to_device("y")
    with pytest.raises(InvalidArgumentError, match="output 's' is not bound"):
        _core.OnnxRuntimeRunner(session, "unbound")


def test_output_of_a_wrong_size_is_refused_by_the_run(session: _core.OnnxRuntimeSession) -> None:
    inputs, y = make_inputs(), torch.full((2, 3), 7.0)
    for name, tensor in zip("xw", inputs, strict=True):
        session.bind_input(name, *view(tensor))
    session.bind_output("y", *view(y))  # fits the model, whose batch is free, but not these inputs
    session.bind_output_to_device("s")
    with pytest.raises(RunnerError, match=r"model\.onnx with INVALID_ARGUMENT.*'y'"):
        session.run()
    assert torch.equal(y, torch.full((2, 3), 7.0))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"optimization": "max"}, InvalidArgumentError, "'max'; use one of disable, basic"),
        ({"provider": "tpu"}, InvalidArgumentError, "'tpu'; use one of cpu, cuda"),
        ({"intra_op_threads": -1}, InvalidArgumentError, "intra_op_threads is -1"),
        ({"user_compute_stream": 1}, InvalidArgumentError, "are for provider cuda"),
        ({"provider_options": {"device_id": "0"}}, InvalidArgumentError, "are for provider cuda"),
    ],
)
def test_wrong_session_options_teach(
    library: _core.OnnxRuntimeLibrary,
    model: Path,
    options: dict[str, object],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        _core.OnnxRuntimeSession(library, str(model), **options)


def test_cuda_in_a_build_without_it_says_which_package_has_it(
    library: _core.OnnxRuntimeLibrary, model: Path
) -> None:
    if "CUDAExecutionProvider" in library.providers:
        pytest.skip("this onnxruntime has the CUDA provider")
    with pytest.raises(UnavailableError, match="pip install onnxruntime-gpu"):
        _core.OnnxRuntimeSession(library, str(model), provider="cuda")
