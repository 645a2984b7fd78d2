"""Building and importing: the wrong torch is refused with the remedy, and importing stays light."""

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


def test_every_public_name_resolves():
    import ftax

    for name in ftax.__all__:
        assert getattr(ftax, name) is not None
    with pytest.raises(AttributeError, match="tacks"):
        _ = ftax.tacks
