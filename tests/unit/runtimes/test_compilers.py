"""torch.compile and AOTInductor on a CPU: what they compute, what they keep, and how they fail.

The tests that compile share one cache and run in the order they are written, because each
compilation costs half a minute.
"""

import os
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ftax import _core
from ftax.errors import InvalidArgumentError, UnsupportedError
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.compilers.aoti import try_package
from ftax.runtimes.compilers.inductor import (
    caches_in,
    find_library_to_link,
    sound_compiler,
    start_phases,
)
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.timing.candidate import Candidate
from support.forks import run_python
from support.small_models import load_function, normal, same_bits
from support.workers import say, use_script

COMPILES = ("compile", "compile-reduce-overhead", "compile-max-autotune")


@pytest.fixture(scope="module")
def compiled_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def compiled_cache(compiled_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FTAX_CACHE", str(compiled_folder))
    return compiled_folder


def prepare(loaded: LoadedModel, runtime: str, host: Any = "python") -> Candidate:
    return find_runtime(runtime).prepare(Workspace(loaded), host)


def fake_compiler(folder: Path, answer: str) -> Path:
    """A compiler of which only its answer to -print-file-name is known."""
    path = folder / "g++"
    path.write_text(f"#!/bin/sh\necho {answer}\n")
    path.chmod(0o755)
    return path


# --- torch.compile ------------------------------------------------------------------------------


@pytest.mark.parametrize("runtime", COMPILES)
def test_torch_compile_has_no_cpp_host_and_names_the_one_that_has(runtime: str) -> None:
    spec = find_runtime(runtime)
    assert "its C++ form is aoti" in str(spec.find_obstacle(host="cpp"))


@pytest.mark.slow
def test_compiled_model_gives_eagers_outputs_and_is_compiled_once(
    mlp: LoadedModel, compiled_cache: Path
) -> None:
    prepared = prepare(mlp, "compile")
    assert prepared.checks.outputs.within_tolerance
    details = prepared.preparation.details
    assert (details["graphs"], details["graph_breaks"]) == (1, 0)
    phases = details["compile_phases_s"]
    assert isinstance(phases, Mapping)
    assert list(phases) == ["TorchDynamo", "AOTAutograd", "Inductor", "generated code"]
    assert all(seconds > 0 for seconds in phases.values())
    assert sum(phases.values()) < (prepared.preparation.seconds or 0.0)
    assert prepared.preparation.from_cache is False
    assert prepared.warnings == ()
    for _ in range(3):
        prepared.runner.run_once()
    assert list(prepared.judge()) == []
    with torch.enable_grad():  # another gradient mode: a compilation that nobody prepared
        torch.compile(mlp.module, mode="default", dynamic=False)(*mlp.args)
    (told,) = prepared.judge()
    assert "compiled 1 time during the rounds" in told
    assert "GLOBAL_STATE changed: grad_mode" in told


def test_what_else_inductor_has_compiled_is_in_no_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: dict[str, list[float]] = defaultdict(list)
    monkeypatch.setattr("torch._dynamo.utils.compilation_time_metrics", taken)
    taken["GraphLowering.compile_to_module"] += [50.0]  # AOTInductor's, without the other phases
    read = start_phases()
    assert read() == {}
    for function, seconds in (
        ("_compile.compile_inner", 10.0), ("OutputGraph.call_user_compiler", 9.0),
        ("compile_fx_inner", 7.0), ("GraphLowering.compile_to_module", 4.0),
    ):  # fmt: skip
        taken[function].append(seconds)
    assert read() == {
        "TorchDynamo": 1.0, "AOTAutograd": 2.0, "Inductor": 3.0, "generated code": 4.0
    }  # fmt: skip


@pytest.mark.slow
def test_another_process_finds_the_compiled_model_in_the_cache() -> None:
    # Two of them: under pytest, inductor's keys are others.
    script = """
import sys, torch
from torch import nn
import ftax
from ftax.runtimes.workspace import Workspace
from ftax.runtimes.catalogue import find_runtime
torch.manual_seed(0)
layers = nn.Sequential()
layers.add_module("first", nn.Linear(4, 8))
layers.add_module("between", nn.ReLU())
layers.add_module("second", nn.Linear(8, 3))
x = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
workspace = Workspace(ftax.load_model(layers, inputs=x))
facts = find_runtime("compile").prepare(workspace, "python").preparation.to_dict()
print(facts["from_cache"])
if facts["from_cache"]:
    print(facts["cache_hits"], facts["cache_misses"])
    print(facts["from_cache_seconds"] < facts["seconds"])
"""
    for expected in (["False"], ["True", "1", "0", "True"]):
        worker = run_python(script)
        assert worker.stdout.split() == expected, worker.stderr


def test_model_with_nothing_to_compile_is_refused() -> None:
    @torch.compiler.disable
    def shy(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    class Shy(nn.Module):
        forward = staticmethod(shy)

    with pytest.raises(UnsupportedError, match=r"torch\.compile finds nothing to compile in Shy"):
        prepare(load_model(Shy(), inputs=normal(3, 4)), "compile")


def test_failure_to_compile_is_one_line_that_names_torch_compile(tmp_path: Path) -> None:
    import torch._inductor.config as config

    loaded = load_function(lambda x: (x * 3).sum(0))
    with (
        config.patch({"cpp.cxx": (None, str(tmp_path / "no-compiler"))}),
        pytest.raises(UnsupportedError, match=r"^torch\.compile \(mode default\).*CxxComp") as got,
    ):
        prepare(loaded, "compile")
    assert "\n" not in str(got.value)


# --- AOTInductor --------------------------------------------------------------------------------


@pytest.mark.slow
def test_both_hosts_run_the_same_package(mlp: LoadedModel, compiled_cache: Path) -> None:
    by_python = prepare(mlp, "aoti", "python")
    by_cpp = prepare(mlp, "aoti", "cpp")
    assert len(list(compiled_cache.rglob("model.pt2"))) == 1
    assert (by_python.preparation.from_cache, by_cpp.preparation.from_cache) == (False, True)
    for prepared in (by_python, by_cpp):
        assert prepared.checks.outputs.within_tolerance
        assert prepared.checks.second_input.within_tolerance
        prepared.runner.run_once()
    assert all(map(same_bits, by_python.run(), by_cpp.run()))
    assert (by_cpp.runner.host, by_cpp.runner.needs_gil) == ("cpp", False)


def test_model_that_cannot_be_exported_is_refused_in_one_line() -> None:
    class Fickle(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(UnsupportedError, match=r"^torch\.export\.export failed on Fickle") as got:
        prepare(load_model(Fickle(), inputs=normal(3, 4)), "aoti")
    assert "\n" not in str(got.value)


def test_file_that_is_no_package_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(b"no package")
    with pytest.raises(InvalidArgumentError, match=r"cannot load .* as an AOTInductor package"):
        _core.AotiRunner(str(path), "aoti", device="cpu", grad_mode=_core.GradMode.inference)


def test_package_that_fails_in_the_worker_names_the_call(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(b"no package")
    with pytest.raises(UnsupportedError, match=r"aoti_load_package fails in a process of its own"):
        try_package(path, [normal(2, 4)])


def test_package_that_kills_the_worker_names_the_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = say("call", name="torch._inductor.aoti_load_package")
    use_script(monkeypatch, tmp_path, f"{call}\nkill -SEGV $$")
    with pytest.raises(UnsupportedError, match=r"aoti_load_package fails in .* ended by SIGSEGV"):
        try_package(tmp_path / "model.pt2", [normal(2, 4)])


# --- what they share ----------------------------------------------------------------------------


def test_compiler_with_a_shared_libstdcxx_is_left_alone(tmp_path: Path) -> None:
    assert find_library_to_link([str(fake_compiler(tmp_path, "/usr/lib/libstdc++.so"))]) is None
    assert find_library_to_link([str(tmp_path / "missing")]) is None


def test_compiler_with_a_static_libstdcxx_is_told_of_the_loaded_one(tmp_path: Path) -> None:
    import torch._inductor.config as config

    compiler = fake_compiler(tmp_path, "libstdc++.so")  # echoes that and nothing else
    with config.patch({"cpp.cxx": (None, str(compiler))}):
        with sound_compiler() as library:
            assert library is not None and Path(library).is_file()
            script = Path(str(config.cpp.cxx[1]))
        assert (script.name, config.cpp.cxx[1]) == ("g++", str(compiler))
    compiler.write_text('#!/bin/sh\necho "$@"\n')

    def call(*arguments: str) -> str:
        return subprocess.run([script, *arguments], capture_output=True, text=True).stdout.strip()

    assert call("-shared", "a.o", "-o", "a b") == f"-shared a.o -o a b -Wl,{library}"
    assert call("-c", "a.cpp") == "-c a.cpp"  # not a link: a library would be an input


def test_caches_go_into_the_folder_and_the_environment_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "mine")
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    with caches_in(tmp_path):
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path)
        assert os.environ["TRITON_CACHE_DIR"].startswith(str(tmp_path))
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "mine"
    assert "TRITON_CACHE_DIR" not in os.environ
