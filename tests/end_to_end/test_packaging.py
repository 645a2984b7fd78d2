"""What is built and shipped: which torch it is for, and what an sdist holds."""

import importlib.metadata
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from ftax import _build_info

ROOT = Path(__file__).parents[2]
FIND_TORCH = ROOT / "cmake" / "ftax_torch.py"
NEEDED = ("CMakeLists.txt", "LICENSE", "NOTICE", "README.md", "pyproject.toml")
FOLDERS = ("cmake", "csrc", "python/ftax", "python/ftax_pytest")
BUILD = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"


def find_torch(folder, version, cuda=None):
    """What CMake and the Makefile are told where torch is of ``version``."""
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text("raise RuntimeError('it was imported')\n")
    (folder / "torch" / "version.py").write_text(f"__version__ = {version!r}\ncuda = {cuda!r}\n")
    return subprocess.run(
        [sys.executable, FIND_TORCH],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(folder)},
        check=False,
    )


@pytest.mark.parametrize(
    ("version", "cuda", "said"),
    [("2.13.0+cpu", None, "2.13.0+cpu;;213cpu"), ("2.14.1", "13.0", "2.14.1;13.0;214cu130")],
)
def test_torch_is_found_without_importing_it(tmp_path, version, cuda, said):
    result = find_torch(tmp_path, version, cuda)
    assert result.stdout == f"{tmp_path}/torch;{said}"


def test_a_torch_that_is_too_old_is_refused(tmp_path):
    result = find_torch(tmp_path, "2.7.1")
    assert result.returncode == 1
    assert result.stderr == "ftax needs torch >= 2.8, found 2.7.1: `pip install -U torch`\n"


def test_a_build_that_sees_no_torch_is_told_how_it_would():
    command = [sys.executable, "-I", "-S", FIND_TORCH]  # without site-packages
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "`pip install --no-build-isolation .`" in result.stderr


def test_an_installed_ftax_requires_the_minor_of_torch_that_it_was_built_for():
    major, minor = _build_info.TORCH_VERSION.split(".")[:2]
    torch = [text for text in importlib.metadata.requires("ftax") if text.startswith("torch=")]
    assert torch == [f"torch=={major}.{minor}.*"]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="only git knows which files are ours")
def test_an_sdist_holds_what_a_build_needs_and_no_more(tmp_path):
    subprocess.run([sys.executable, "-c", BUILD, tmp_path], cwd=ROOT, check=True)
    listing = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "--")
    ours = subprocess.run(
        [*listing, *NEEDED, *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    (path,) = tmp_path.iterdir()
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2]: name for name in archive.getnames()}
        said = archive.extractfile(names.pop("PKG-INFO")).read().decode()
    assert set(names) == {name for name in ours.stdout.splitlines() if (ROOT / name).exists()}
    # Its wheels will require one minor version each.
    assert "\nDynamic: Requires-Dist\n" in said
    assert "\nRequires-Dist: torch>=2.8\n" in said
