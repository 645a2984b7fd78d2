"""Options that several commands share, declared once.

A group is a function: its parameters are options, and what it returns is what the command gets. A
command's own signature has the groups' parameters only once `takes` has put them there. So every
command has the same options, with the same names and the same words. Those of a setting are the
fields of `Setting`, which has their words.
"""

from __future__ import annotations

import copy
import functools
import inspect
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.models import OptionInfo

from ftax.errors import InvalidArgumentError
from ftax.records.store import check_appendable
from ftax.steps.setting import Setting, read_setting

Group = Callable[..., Any]
Command = Callable[..., None]
Sites = Mapping[str, Any]  # keywords of `ftax.sweep`: where its workers run
PlanChanges = Mapping[str, Any]  # fields of a Plan, by name: those that were given

_TWO_ON_STDOUT = typer.BadParameter(
    "--json - has standard output for itself; name a file, or leave --csv and --markdown out"
)


def _check_json(context: typer.Context, path: Path | None) -> Path | None:
    if path is None:
        return None
    if str(path) != "-":
        check_appendable(path)
    elif any(context.params.get(name) for name in ("csv", "markdown")):
        raise _TWO_ON_STDOUT
    return path


def check_output(path: Path | None) -> Path | None:
    """The path of a file to write. Raises BadParameter if it cannot be written."""
    if path is None:
        return None
    _refuse_dash(path)
    folder = path.absolute().parent
    if not folder.is_dir():
        raise typer.BadParameter(f"there is no folder {path.parent}; make it, or choose another")
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder; name a file in it")
    # Written beside it first, but for a device or a pipe.
    places = [path] * path.exists() + [folder] * (path.is_file() or not path.exists())
    if not all(os.access(place, os.W_OK) for place in places):
        raise typer.BadParameter(f"{path} may not be written; choose another path")
    return path


def _refuse_dash(path: Path) -> None:
    if str(path) == "-":
        raise typer.BadParameter(
            "'-' would be a file of that name, not standard output; name a file, such as t.json"
        )


def _check_format(context: typer.Context, given: bool) -> bool:
    """Before anything is measured; whichever of the two comes second sees the first."""
    if given and any(context.params.get(name) for name in ("csv", "markdown")):
        raise typer.BadParameter("give --csv or --markdown, not both")
    if given and str(context.params.get("json")) == "-":
        raise _TWO_ON_STDOUT
    return given


ModelName = Annotated[
    str,
    typer.Argument(
        help="A zoo name (`ftax models`), a local Hugging Face folder, or your own code: "
        "my_package.model:make or ./file.py:make, a module or a step, or a function without "
        "arguments that returns one, or a pair of a module or a function and its inputs."
    ),
]
Device = Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")]
Label = Annotated[
    str, typer.Option(help="What to call the result, such as before; `ftax compare` reads it.")
]
# Outputs are looked at first: a mistyped folder must not cost what was measured.
_make_trace_file = functools.partial(typer.Option, callback=check_output)
_FOR_A_VIEWER = "here for Perfetto or chrome://tracing."
TraceOutput = Annotated[
    Path | None, _make_trace_file("--trace", help=f"GPU: write the traces {_FOR_A_VIEWER}")
]
ChromeOutput = Annotated[
    Path | None, _make_trace_file("--chrome", help=f"Write the trace {_FOR_A_VIEWER}")
]


def _option(panel: str, help: str, *names: str, **more: Any) -> OptionInfo:
    found: OptionInfo = typer.Option(*names, help=help, rich_help_panel=panel, **more)
    return found


_in_setting = functools.partial(_option, "What is run, and how")
_in_plan = functools.partial(_option, "How it is timed")
_in_sites = functools.partial(_option, "Where it is run")
_in_output = functools.partial(_option, "What comes out")


def make_setting(*, settings: list[str] | None = None, **given: Any) -> Setting:
    """The setting that the options describe; Setting itself checks the values."""
    return read_setting({**given, "runtime_options": parse_settings(settings)})


def _list_of_setting() -> Iterator[inspect.Parameter]:
    """The options of `make_setting`: what `Setting` says of its fields, and two of other forms."""
    kinds = get_type_hints(Setting)
    for item in fields(Setting):
        if words := item.metadata:
            kind: Any = int | None if int in get_args(kinds[item.name]) else str | None
            flags = words["flags"]
            if kinds[item.name] is bool:
                kind, flags = bool, (f"--{item.name.replace('_', '-')}",)
            option = _in_setting(words["help"], *flags, show_default=words["shown"] or True)
            yield _make_parameter(item.name, kind, option, item.default)
    no_grad = _in_setting("torch.no_grad instead of inference mode.", "--no-grad")
    yield _make_parameter("no_grad", bool, no_grad, False)
    options = _in_setting("An option of the runtime; repeatable.", "--set", metavar="NAME=VALUE")
    yield _make_parameter("settings", list[str] | None, options, None)


def _make_parameter(name: str, kind: Any, option: OptionInfo, default: Any) -> inspect.Parameter:
    annotation = Annotated[kind, option]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=default, annotation=annotation)


def make_plan(
    *,
    mode: Annotated[str | None, _in_plan("latency or throughput.", show_default="latency")] = None,
    warmup: Annotated[int | None, _in_plan("So many warm-up requests, if there is time.")] = None,
    rounds: Annotated[int | None, _in_plan("So many rounds, if there is time.")] = None,
    duration: Annotated[
        float | None,
        _in_plan(
            "Seconds of warm-up and rounds, after which nothing begins but a first round; getting "
            "ready comes before, looking closer after."
        ),
    ] = None,
    precision: Annotated[
        float | None,
        _in_plan(
            "Stop when each interval's half-width is within this share of its mean.",
            show_default="0.01",
        ),
    ] = None,
    seed: Annotated[
        int | None, _in_plan("Of the order of runners in the rounds.", show_default="0")
    ] = None,
    cpus: Annotated[str | None, _in_plan("Pin to a set of CPUs, such as 0,1 or 2-5.")] = None,
    patience: Annotated[
        float | None,
        _in_plan(
            "Seconds, besides --duration, to wait for a neighbour to leave the core.",
            show_default="0",
        ),
    ] = None,
) -> PlanChanges:
    """What the options change of a command's own plan. Raises InvalidArgumentError, naming the
    option, for what a plan refuses, before anything is built."""
    fields = {
        "mode": mode,
        "warmup": warmup,
        "rounds": rounds,
        "duration_s": duration,
        "target_ratio": precision,
        "seed": seed,
        "cpus": None if cpus is None else parse_cpus(cpus),
        "patience_s": patience,
    }
    found = {name: value for name, value in fields.items() if value is not None}
    for name, value in found.items():
        _check_in_plan(name, value)
    return found


def _check_in_plan(name: str, value: Any) -> None:
    from ftax.timing.plan import Plan

    option = {"duration_s": "duration", "target_ratio": "precision", "patience_s": "patience"}
    named = f"--{option.get(name, name)}"
    try:
        Plan(**{name: value})
    except InvalidArgumentError as error:
        raise InvalidArgumentError(str(error).replace(name, named, 1)) from error
    if name == "target_ratio" and value >= 1:  # not in Plan, into which old records are read
        raise InvalidArgumentError(
            f"{named} is {value:g}; it is a share of the mean, and 0.01 is 1 %: give less than 1"
        )


def make_sites(
    *,
    gpus: Annotated[str, _in_sites("GPUs that share the cells of device cuda, such as 0,1.")] = "0",
    workers: Annotated[
        int | None,
        _in_sites(
            "That share a GPU: they get ready side by side, and one at a time measures. As many as "
            "have room, up to 4.",
            min=1,
        ),
    ] = None,
    on: Annotated[
        str,
        _in_sites(
            "local: this machine. ray, or ray=HOST:PORT: the machines of a Ray cluster share the "
            "cells (docs/fleet.md).",
            "--on",
        ),
    ] = "local",
    mixed: Annotated[
        bool, _in_sites("Of a cluster: machines with other software too, marked.", "--mixed")
    ] = False,
) -> Sites:
    """Where the workers of a sweep run."""
    shared = [f"cuda:{number}" for number in parse_numbers("--gpus", gpus)]
    return {"gpus": shared, "workers": workers, "on": on, "mixed": mixed}


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where results go, beside the terminal, and in which form they are printed."""

    json: Path | None = None
    csv: bool = False
    markdown: bool = False


def make_output(
    *,
    json: Annotated[
        Path | None,
        _in_output(
            "Append the record to this file; - prints it, and nothing else.",
            "--json",
            callback=_check_json,
        ),
    ] = None,
    csv: Annotated[
        bool, _in_output("Print CSV instead of tables.", "--csv", callback=_check_format)
    ] = False,
    markdown: Annotated[
        bool, _in_output("Print Markdown instead of tables.", "--markdown", callback=_check_format)
    ] = False,
) -> Output:
    """What the options of the output describe."""
    return Output(json=json, csv=csv, markdown=markdown)


def some_of(
    group: Group, only: Collection[str] = (), *, without: Collection[str] = (), **defaults: str
) -> Group:
    """The group with some of its options; the others have their defaults. ``defaults`` are words
    for the help, where a command's own differ."""

    @functools.wraps(group)
    def smaller(**given: Any) -> Any:
        return group(**given)

    parameters = _list_options(group)
    for name, words in defaults.items():
        parameters[name] = _show_default(parameters[name], words)
    kept = [item for name, item in parameters.items() if name in (only or parameters)]
    _set_signature(smaller, [item for item in kept if item.name not in without])
    return smaller


def takes(**groups: Group) -> Callable[[Command], Command]:
    """Give a command the options of ``groups``: its parameters of these names are made of them."""

    def put(command: Command) -> Command:
        options = {name: _list_options(group) for name, group in groups.items()}

        @functools.wraps(command)
        def run(**given: Any) -> None:
            made = {
                name: group(**{option: given.pop(option) for option in options[name]})
                for name, group in groups.items()
            }
            command(**given, **made)

        own = _list_options(command)
        shared = [item for name in groups for item in options[name].values()]
        _set_signature(run, [*(item for item in own.values() if item.name not in groups), *shared])
        return run

    return put


def _list_options(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function, eval_str=True).parameters)


def _set_signature(function: Any, parameters: Any) -> None:
    """What typer reads: a signature and annotations."""
    found = [item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in parameters]
    function.__signature__ = inspect.Signature(found)
    function.__annotations__ = {item.name: item.annotation for item in found}


def _show_default(parameter: inspect.Parameter, words: str) -> inspect.Parameter:
    kind, option = get_args(parameter.annotation)
    option = copy.copy(option)
    option.show_default = words
    return parameter.replace(annotation=Annotated[kind, option])


def parse_settings(texts: list[str] | None) -> dict[str, str]:
    """``["optimization=basic"]`` as a dict."""
    pairs = [text.partition("=") for text in texts or ()]
    for text, (name, equals, value) in zip(texts or (), pairs, strict=True):
        if not (name and equals and value):
            raise typer.BadParameter(f"{text!r} sets nothing; write optimization=basic")
    return {name: value for name, _, value in pairs}


def parse_list(texts: str | list[str] | None) -> list[str]:
    """``"a, b"``, or several of these, as ["a", "b"]."""
    given = [texts] if isinstance(texts, str) else texts or []
    return [part.strip() for text in given for part in text.split(",")]


def parse_numbers(option: str, texts: str | list[str] | None) -> list[int]:
    """``"1,8"``, or several of these, as [1, 8]."""
    parts = parse_list(texts)
    for part in parts:
        if not re.fullmatch("[0-9]{1,30}", part):
            raise InvalidArgumentError(f"{option} has {part!r}; write whole numbers, such as 1,8")
    return [int(part) for part in parts]


def parse_cpus(text: str) -> tuple[int, ...]:
    """``"0,2-4"`` as (0, 2, 3, 4)."""
    cpus: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part.strip())
        found = range(int(match[1]), int(match[2] or match[1]) + 1) if match else ()
        if not found:
            raise typer.BadParameter(f"{text!r} is no set of CPUs; write 0,1 or 2-5")
        cpus += found
    return tuple(dict.fromkeys(cpus))


make_form = some_of(make_output, ("csv", "markdown"))  # of what saves no record
make_sweep_plan = some_of(
    make_plan,
    without=("mode",),
    duration="2 for each size, with --quick 0.5",
    patience="0.5 for each size, with --quick 0",
    precision="all rounds, 20, with --quick 4",
)
_set_signature(make_setting, _list_of_setting())
