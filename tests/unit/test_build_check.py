"""Building and importing: the wrong torch is refused with the remedy, and importing stays light."""

import os
import subprocess
import sys

import pytest

from ftax._build_check import describe_mismatch


@pytest.mark.parametrize(
    ("version", "cuda", "problem"),
    [
        ("2.13.0", None, None),
        ("2.13.4+cpu", None, None),
        ("2.14.0", None, r"built for torch 2.13.0.*this is torch 2.14.0.*'torch==2.13.\*'"),
        ("2.13.0", "13.0", "built for the CPU build of torch.*this is the CUDA 13.0 build"),
    ],
)
def test_torch_has_to_match_in_major_minor_and_cuda(version, cuda, problem):
    found = describe_mismatch(built_version="2.13.0", built_cuda=None, version=version, cuda=cuda)
    if problem is None:
        assert found is None
    else:
        import re

        assert re.search(problem, found)


def test_import_brings_no_heavy_package():
    heavy = ("transformers", "onnxruntime", "onnx", "typer", "rich")
    code = f"import ftax, sys; print([m for m in {heavy!r} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


COMMAND = """
import sys
from ftax.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize("words", [("run", "--", "true"), ("run", "--help"), ("tax",)])
def test_only_run_starts_without_torch(tmp_path, words):
    (tmp_path / "torch.py").write_text("raise ImportError('torch is imported')")
    (tmp_path / "ftax").write_text(COMMAND)  # as an installed script
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path}
    for command in (("-m", "ftax"), (str(tmp_path / "ftax"),)):
        ended = subprocess.run(
            [sys.executable, *command, *words], capture_output=True, text=True, env=environment
        )
        if words[0] == "run":
            assert (ended.returncode, "torch" in ended.stderr) == (0, False)
        else:
            assert (ended.returncode, ended.stderr) == (3, "ftax: torch is imported\n")


def test_every_public_name_resolves():
    import ftax

    for name in ftax.__all__:
        assert getattr(ftax, name) is not None
    with pytest.raises(AttributeError, match="tacks"):
        _ = ftax.tacks
