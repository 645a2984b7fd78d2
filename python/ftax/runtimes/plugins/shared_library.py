"""Shared libraries of others as runtimes: `runtime="./libmine.so"`, or "./libmine.so?config".

A library runs twice. First in a process that it may crash or hang, where its outputs are looked at;
then, only if it came through, in the measuring process, in the same loop as everything else. Driven
from a process of its own it would be timed with a pipe in between.
"""

from __future__ import annotations

import functools
import hashlib
import time
from pathlib import Path

import torch

from ftax import _build_info, _core
from ftax.errors import UnavailableError, UnsupportedError
from ftax.runtimes.candidates import check_later
from ftax.runtimes.cost import measure_cost
from ftax.runtimes.plugins.case import (
    INPUT_SETS,
    CheckFailedError,
    PluginCase,
    TriedLibrary,
    make_case,
)
from ftax.runtimes.plugins.trial import open_session
from ftax.runtimes.workspace import Workspace
from ftax.tape.equality import compare_outputs
from ftax.timing.candidate import Candidate
from ftax.timing.checks import Checks
from ftax.workers.time_limit import default_seconds

_LIMIT_S = 120.0  # of the trial: building plans may take long, hanging takes longer
_SOAK_S, _SOAK_RUNS = 1.0, 200
# Relative norm of the difference beyond which outputs have nothing to do with the model's: zeros
# are at 1, unrelated values beyond. What is nearer but not near enough is timed, and marked.
_GARBAGE = 0.5

_BUILT = Path(_build_info.__file__).parent


def split_name(name: str) -> tuple[str, str]:
    """Path and config of "path?config"; the config is handed over as it is."""
    path, _, config = name.partition("?")
    return path, config


def prepare_plugin(workspace: Workspace, name: str) -> Candidate:
    """Try the library in a worker process, then make it ready here.

    Raises InvalidArgumentError for a path without a file, UnsupportedError for a library that
    crashes, hangs, returns garbage, or was built for another version of the interface.
    """
    library, config = split_name(name)
    with measure_cost(workspace.loaded.device) as cost:
        case = make_case(workspace.loaded)
        _try_in_worker(library, config, case)
    tried = TriedLibrary(path=str(Path(library).absolute()), config=config, case=case)
    stream: int = workspace.stream.cuda_stream if workspace.stream else 0
    bound = tried.bind(stream=stream)

    def run() -> list[torch.Tensor]:
        bound.poison()
        bound.run_once()
        return [output.clone() for output in bound.outputs]

    def check() -> Checks:
        outputs, second_input = (
            compare_outputs(case.references[place], bound.run(place)) for place in range(2)
        )
        bound.set_inputs(0)
        return Checks(outputs=outputs, second_input=second_input)

    checks = check()
    opened = tried.open_library()
    return Candidate(
        runtime=name,
        host="cpp",
        runner=_core.PluginRunner(
            bound.plugin, opened.name, workspace.loaded.device, stream, memory_owner=bound
        ),
        run=run,
        preparation=cost.to_preparation(
            library=Path(library).name,
            library_name=opened.name,
            library_digest=_digest(Path(library)),
            config=config,
            has_prepare=opened.has_prepare,
        ),
        checks=checks,
        check_again=functools.partial(check_later, checks, check),
    )


def _try_in_worker(library: str, config: str, case: PluginCase) -> None:
    limit_s = default_seconds(_LIMIT_S)
    with open_session(library, config, case) as session:
        answer = session.run("ftax.runtimes.plugins.shared_library:try_out", limit_s=limit_s)
    if answer.status != "passed":
        raise UnsupportedError(
            f"{Path(library).name} did not come through its trial in a worker process: "
            f"{answer.reason}; `ftax conform` looks closer"
        )


def try_out(tried: TriedLibrary) -> None:
    """Both inputs, then many inferences more. Runs in the worker."""
    check_device(tried)
    bound = tried.bind()
    for place, reference in enumerate(tried.case.references):
        equality = compare_outputs(reference, bound.run(place))
        if equality.difference > _GARBAGE:
            raise CheckFailedError(
                f"enqueue returned garbage {INPUT_SETS[place]}: {equality.problem}"
            )
    end = time.monotonic() + _SOAK_S
    for _ in range(_SOAK_RUNS):
        bound.run_once()
        if time.monotonic() > end:
            break


def check_device(tried: TriedLibrary) -> None:
    """Raise CheckFailedError unless the library says that it runs on the case's device."""
    library = tried.open_library()
    kind = torch.device(tried.case.device).type
    if not (library.runs_on_cuda if kind == "cuda" else library.runs_on_cpu):
        raise CheckFailedError(
            f"the library does not say that it runs on {kind}: capabilities lack "
            f"FTAX_RUNS_ON_{kind.upper()}"
        )


def _digest(path: Path) -> str:
    """Two results with one path may have been two libraries."""
    try:
        return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError as error:
        raise UnavailableError(f"cannot read {path.name} ({error.strerror})") from error


def get_include() -> str:
    """The folder to give to a compiler (``-I``), so that it finds ``ftax/runner.h``."""
    source = Path(__file__).parents[4] / "csrc" / "include"  # of a checkout that is not installed
    for folder in (_BUILT / "include", source):
        if (folder / "ftax" / "runner.h").is_file():
            return str(folder)
    raise UnavailableError(
        "ftax/runner.h is missing from this installation: "
        "`pip install --no-build-isolation --force-reinstall --no-deps ftax`"
    )
