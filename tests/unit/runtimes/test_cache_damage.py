"""Damage in the cache and a full disk: what is kept is made again or not kept, never believed."""

import errno
import io
import os
import resource
import signal
import textwrap
from pathlib import Path

import pytest
import torch

from ftax.errors import UnavailableError
from ftax.runtimes import cache
from ftax.runtimes.cache import cache_root, get_or_make, write_through_memory
from ftax.runtimes.compilers import aoti
from ftax.runtimes.workspace import Workspace
from ftax.steps.loaded import LoadedModel
from support.forks import run_python

pytestmark = pytest.mark.usefixtures("own_cache")

CONTENT = "content " * 100


def make(folder: Path) -> dict[str, object]:
    (folder / "model").write_text(CONTENT)
    return {"answer": 42}


def place() -> Path:
    return cache_root() / "kind" / "key"


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def replace(path: Path, make_other) -> None:
    path.unlink()
    make_other(path)


def move_away(path: Path, make_other) -> None:
    path.rename(path.with_name("elsewhere"))
    make_other(path)


DAMAGE = {
    "a bit of a file": lambda folder: flip(folder / "model", 100),
    "a shorter file": lambda folder: os.truncate(folder / "model", 10),
    "no file": lambda folder: (folder / "model").unlink(),
    "a folder for a file": lambda folder: replace(folder / "model", Path.mkdir),
    "a pipe for a file": lambda folder: replace(folder / "model", os.mkfifo),
    "a loop for a file": lambda folder: replace(folder / "model", lambda p: p.symlink_to(p)),
    "a bit of the facts": lambda folder: flip(folder / "manifest.json", -30),
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "a folder for the manifest": lambda folder: replace(folder / "manifest.json", Path.mkdir),
    "a pipe for the manifest": lambda folder: replace(folder / "manifest.json", os.mkfifo),
    "a deep manifest": lambda folder: (folder / "manifest.json").write_text("[" * 100_000),
    "a file for all": lambda folder: move_away(folder, Path.touch),
    "a pipe for all": lambda folder: move_away(folder, os.mkfifo),
    "a loop for all": lambda folder: move_away(folder, lambda p: p.symlink_to(p)),
    "a link to nothing": lambda folder: move_away(folder, lambda p: p.symlink_to("/nowhere")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_damaged_is_made_again_and_then_used(damage: str) -> None:
    get_or_make("key", "kind", make)
    DAMAGE[damage](place())
    again = get_or_make("key", "kind", make)
    assert (again.from_cache, again.facts) == (False, {"answer": 42})
    assert (again.folder, (place() / "model").read_text()) == (place(), CONTENT)
    assert get_or_make("key", "kind", make).from_cache is True


def test_what_cannot_be_removed_is_in_nobodys_way(monkeypatch: pytest.MonkeyPatch) -> None:
    get_or_make("key", "kind", make)
    flip(place() / "model", 100)
    monkeypatch.setattr(cache, "_remove", lambda path: None)
    again = get_or_make("key", "kind", make)
    assert again.folder != place()
    assert (again.folder / "model").read_text() == CONTENT


def test_a_file_that_stays_as_it_is_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    get_or_make("key", "kind", make)
    cache._digests.clear()
    read = []
    digest = cache.hashlib.file_digest
    monkeypatch.setattr(
        cache.hashlib, "file_digest", lambda file, name: (read.append(1), digest(file, name))[1]
    )
    for _ in range(3):
        assert get_or_make("key", "kind", make).from_cache
    assert len(read) == 1


def test_a_disk_that_is_full_is_no_property_of_a_model() -> None:
    def fill(folder: Path) -> dict[str, object]:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(UnavailableError, match="No space left on device; make room, or set FTAX_"):
        get_or_make("key", "kind", fill)
    assert list((cache_root() / "kind").iterdir()) == []


def test_what_does_not_fit_says_how_much_it_is_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "model"

    def write_in_a_small_room() -> None:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        try:
            write_through_memory(path, lambda file: file.write(bytes(5000)))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)

    with pytest.raises(UnavailableError, match=r"model cannot be written .*: it takes 5,000 bytes"):
        write_in_a_small_room()
    assert not path.exists()


# In a process of its own: what is tested ended it.
EXPORT = """
    import resource, signal, sys
    from pathlib import Path
    import torch
    import ftax
    from ftax.errors import UnavailableError
    from ftax.runtimes.workspace import Workspace
    from ftax.runtimes.catalogue import find_runtime

    loaded = ftax.load_model(torch.nn.Linear(600, 600), inputs=torch.ones(1, 600))
    workspace = Workspace(loaded)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, -1))
    try:
        find_runtime("{runtime}").prepare(workspace, "python")
    except UnavailableError as error:
        print(error)
"""


@pytest.mark.parametrize("runtime", ["torchscript", "torchscript-frozen", "onnxruntime"])
def test_an_export_to_a_full_disk_is_said_and_does_not_end_the_process(runtime: str) -> None:
    result = run_python(textwrap.dedent(EXPORT.format(runtime=runtime)))
    assert result.returncode == 0, result.stderr[-2000:]
    assert "cannot be written" in result.stdout and "make room" in result.stdout


def test_no_writer_of_torch_is_given_a_path(
    tmp_path: Path, mlp: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of TorchScript and AOTInductor end the process where a disk is full."""

    def package(program: object, package_path: io.BytesIO) -> None:
        package_path.write(b"package")

    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", package)
    facts = aoti._compile(Workspace(mlp), tmp_path)
    assert (tmp_path / "model.pt2").read_bytes() == b"package"
    assert facts["package_bytes"] == 7
