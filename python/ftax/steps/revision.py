"""Code as it was at a git revision, in a temporary worktree that stands first on Python's path.

Once the model is built, every module that the repository defines has to come from the worktree; an
editable install or a compiled extension of the other tree would otherwise be compared with itself.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ftax.errors import InvalidArgumentError, RunnerError

_HOW_TO_BUILD = (
    'build it there with --setup "pip install --no-deps .", or give a Python that has this '
    "revision (--base-python PATH)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A revision that was checked out.

    Attributes:
        ref: as the user named it.
        repository: the tree that it is another revision of.
        worktree: where its files are.
        site: the prefix that the setup installs into.
        folder: that of the worktree in whose place the user is.
    """

    ref: str
    repository: str
    worktree: str
    site: str
    folder: str

    @property
    def path(self) -> tuple[str, ...]:
        """The folders that come first where modules are looked for: what was installed, then the
        worktree."""
        prefixes = (Path(self.site), Path(self.site, "local"))
        found = (item for each in prefixes for item in each.glob("lib*/python3*/*-packages"))
        return (*map(str, found), *_list_roots(self.folder, self.worktree))


def list_own_path(revision: Revision) -> tuple[str, ...]:
    """The folders of the repository itself that correspond to `Revision.path`."""
    return _list_roots(os.getcwd(), revision.repository)


def _list_roots(folder: str, root: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((folder, root, str(Path(root, "src")))))


@contextmanager
def check_out(ref: str, setup: str = "") -> Iterator[Revision]:
    """A worktree of the repository around the current folder at ``ref``, while inside; ``setup`` is
    a command that is run in it, and what its pip installs goes beside it.

    Raises InvalidArgumentError if this is no repository or it has no such revision, RunnerError if
    the command fails.
    """
    repository = _git(Path.cwd(), "rev-parse", "--show-toplevel")
    commit = _git(Path(repository), "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}", of=ref)
    inside = Path.cwd().resolve().relative_to(Path(repository).resolve())
    with tempfile.TemporaryDirectory(prefix="ftax-base-") as folder:
        worktree, site = Path(folder, "tree"), Path(folder, "site")
        _git(Path(repository), "worktree", "add", "--detach", "--quiet", str(worktree), commit)
        try:
            place = worktree / inside
            place.mkdir(parents=True, exist_ok=True)  # a folder that the revision has not got
            if setup:
                _set_up(setup, worktree, site)
            yield Revision(
                ref=ref,
                repository=repository,
                worktree=str(worktree),
                site=str(site),
                folder=str(place),
            )
        finally:
            _git(Path(repository), "worktree", "remove", "--force", str(worktree))


def _git(folder: Path, *arguments: str, of: str = "") -> str:
    try:
        found = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise InvalidArgumentError("--base needs git, which is not installed") from None
    if found.returncode:
        said = (found.stderr.strip().splitlines() or ["git says no more"])[-1]
        if of:
            said = f"there is no revision {of!r} here; CI has to fetch it (git fetch origin REF)"
        raise InvalidArgumentError(f"--base: {said}")
    return found.stdout.strip()


def _set_up(command: str, worktree: Path, site: Path) -> None:
    """Run it, with what it says on standard error. It is told a prefix and not a target, which
    pip's isolated builds would inherit and fail with."""
    to_prefix = {"PIP_PREFIX": str(site), "PIP_IGNORE_INSTALLED": "1", "PIP_USER": "0"}
    before = _list_installed()
    done = subprocess.run(
        command, shell=True, cwd=worktree, env={**os.environ, **to_prefix}, stdout=2, check=False
    )
    if done.returncode:
        raise RunnerError(
            f"--setup {command!r} ended with exit code {done.returncode}; what it said is above"
        )
    if changed := sorted(_list_installed() ^ before):
        raise InvalidArgumentError(
            f"--setup {command!r} changed {changed[0][0]} in the environment of both sides: "
            'install to $PIP_PREFIX (uv pip install --prefix "$PIP_PREFIX" ...)'
        )


def _list_installed() -> set[tuple[str, int]]:
    """The packages of this Python, and when each was installed."""
    folders = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    found = (item for folder in folders for item in Path(folder).glob("*.dist-info"))
    return {(item.stem, item.stat().st_mtime_ns) for item in found}


def suggest_setup(failure: str) -> str:
    """What may be missing in a worktree whose code failed so; "" for all else."""
    if re.search(r"\b(ModuleNotFound|Import)Error\b", failure):
        return f"if it is a compiled extension, {_HOW_TO_BUILD}"
    if "FileNotFoundError" in failure:
        return (
            "if git does not have that file, link it there with --setup "
            "'ln -s \"$(git rev-parse --git-common-dir)/../FILE\" .'"
        )
    return ""


def check_origin(revision: Revision, *installed: str) -> None:
    """Raises InvalidArgumentError if a module that the repository defines was imported from
    anywhere but the revision, or folders where it is ``installed``."""
    repository = Path(revision.repository).resolve()
    allowed = [Path(place).resolve() for place in (revision.worktree, revision.site, *installed)]
    roots = [Path(root) for root in _list_roots(revision.folder, revision.worktree)]
    for name, module in list(sys.modules.items()):
        file, top = getattr(module, "__file__", None) or "", name.partition(".")[0]
        # torch.ops says that it comes from "_ops.py".
        if not os.path.isabs(file) or top == "ftax" or top in sys.stdlib_module_names:
            continue
        place = Path(file).resolve()
        if any(place.is_relative_to(folder) for folder in allowed):
            continue
        is_own = any(
            (root / part).is_file()
            for root in roots
            for part in (f"{top}.py", f"{top}/__init__.py")
        )
        if is_own or (place.is_relative_to(repository) and not _is_installed(place)):
            raise InvalidArgumentError(
                f"--base {revision.ref}: the module {name} comes from {file}, not from that "
                f"revision (an editable install, or a compiled extension?); {_HOW_TO_BUILD}"
            )


def _is_installed(place: Path) -> bool:
    """In an environment that lies in the repository's folder."""
    return "site-packages" in place.parts or "dist-packages" in place.parts
