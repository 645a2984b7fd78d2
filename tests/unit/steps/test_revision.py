"""Code at a git revision: where it is put, and where its modules have to come from."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from ftax.errors import InvalidArgumentError, RunnerError
from ftax.steps.revision import check_origin, check_out, list_own_path, suggest_setup


def git(folder, *arguments):
    who = ("-c", "user.name=n", "-c", "user.email=a@b.c")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    (tmp_path / "src" / "pkg").mkdir(parents=True)
    (tmp_path / "src" / "pkg" / "__init__.py").write_text("VALUE = 1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "one")
    (tmp_path / "src" / "pkg" / "__init__.py").write_text("VALUE = 2\n")
    (tmp_path / "later").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_revision_is_a_tree_beside_and_is_gone_afterwards(repository):
    with check_out("HEAD") as revision:
        source = Path(revision.worktree, "src", "pkg", "__init__.py")
        assert source.read_text() == "VALUE = 1\n"
        assert revision.path[0] == revision.folder
        assert str(source.parents[1]) in revision.path
        assert str(repository / "src") in list_own_path(revision)
    assert not source.exists()
    listed = subprocess.run(["git", "worktree", "list"], capture_output=True, text=True).stdout
    assert len(listed.splitlines()) == 1


def test_the_folder_is_the_one_that_the_user_is_in(repository, monkeypatch):
    monkeypatch.chdir(repository / "later")  # which the revision has not got
    with check_out("HEAD") as revision:
        assert revision.folder == str(Path(revision.worktree, "later"))
        assert os.path.isdir(revision.folder)


def test_what_is_no_revision_is_said(repository, tmp_path_factory, monkeypatch):
    with pytest.raises(InvalidArgumentError, match=r"no revision 'main-x' here.*git fetch"):
        check_out("main-x").__enter__()
    monkeypatch.chdir(tmp_path_factory.mktemp("outside"))
    with pytest.raises(InvalidArgumentError, match=r"--base: .*not a git repository"):
        check_out("HEAD").__enter__()


def test_the_setup_runs_in_the_tree_and_installs_beside_it(repository):
    place = '"$PIP_PREFIX/lib/python3.11/site-packages"'
    with check_out("HEAD", f"mkdir -p {place} && cp -r src/pkg {place}") as revision:
        assert Path(revision.path[0], "pkg", "__init__.py").read_text() == "VALUE = 1\n"
        assert revision.path[0].startswith(revision.site)


def test_a_setup_that_fails_is_told_with_what_it_said(repository, capfd):
    with pytest.raises(RunnerError, match=r"--setup 'echo no; false' ended .* code 1; what it"):
        check_out("HEAD", "echo no; false").__enter__()
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "no\n")


def test_a_setup_that_installs_for_both_sides_is_refused(repository, tmp_path, monkeypatch):
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(tmp_path))
    with pytest.raises(InvalidArgumentError, match=r"changed pkg-1 in .*uv pip install --prefix"):
        check_out("HEAD", f"mkdir {tmp_path}/pkg-1.dist-info").__enter__()


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        ("importing m failed: ModuleNotFoundError: No module named 'pkg._core'", "pip install"),
        ("calling make failed: FileNotFoundError: [Errno 2] 'weights.pt'", "ln -s"),
        ("calling make failed: ValueError: no weights", None),
    ],
)
def test_what_a_tree_may_lack_is_suggested(failure, words):
    found = suggest_setup(failure)
    assert words in found if words else found == ""


def make_module(name, file):
    module = ModuleType(name)
    module.__file__ = str(file)
    return module


@pytest.mark.parametrize(
    ("name", "place", "is_refused"),
    [
        ("pkg", "{tree}/src/pkg/__init__.py", False),
        ("pkg", "{site}/pkg/__init__.py", False),
        ("pkg", "{own}/src/pkg/__init__.py", True),  # an editable install
        ("pkg._core", "/usr/lib/python3/site-packages/pkg/_core.so", True),  # an installed one
        ("helpers", "{own}/helpers.py", True),  # which the revision has not got
        ("numpy_like", "{own}/.venv/lib/python3/site-packages/numpy_like.py", False),
        ("json", "/usr/lib/python3/json/__init__.py", False),
    ],
)
def test_every_module_of_the_repository_comes_from_the_revision(
    repository, monkeypatch, name, place, is_refused
):
    with check_out("HEAD") as revision:
        file = place.format(tree=revision.worktree, site=revision.site, own=repository)
        monkeypatch.setitem(sys.modules, name, make_module(name, file))
        if is_refused:
            with pytest.raises(InvalidArgumentError, match=rf"{name} comes from .*--setup"):
                check_origin(revision)
        else:
            check_origin(revision)
