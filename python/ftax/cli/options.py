"""Options that several commands share, declared once."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer

from ftax.records.store import check_appendable
from ftax.timing.session import Plan

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


def _check_output(path: Path | None) -> Path | None:
    if path is None:
        return None
    _refuse_dash(path)
    folder = path.absolute().parent
    if not folder.is_dir():
        raise typer.BadParameter(f"there is no folder {path.parent}; make it, or choose another")
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder; name a file in it")
    if not os.access(path if path.exists() else folder, os.W_OK):
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
    str, typer.Argument(help="A zoo name (`ftax models`) or a local Hugging Face folder.")
]
Dtype = Annotated[str, typer.Option(help="fp32, fp16 or bf16.")]
Device = Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")]
Batch = Annotated[int, typer.Option(help="Requests in one call.")]
Sequence = Annotated[
    int | None, typer.Option("--sequence", "--seq", help="Tokens of a request (text models).")
]
Tiny = Annotated[
    bool,
    typer.Option("--tiny", help="Same depth and operators, small widths: host work dominates."),
]
Attention = Annotated[str | None, typer.Option(help="Attention implementation: sdpa or eager.")]
UseCache = Annotated[bool, typer.Option("--use-cache", help="Return the key-value cache (GPT-2).")]
Threads = Annotated[int | None, typer.Option(help="Intra-op threads; torch's setting if left out.")]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="That share a GPU: they get ready side by side, and one at a time measures. As many "
        "as have room, up to 4.",
    ),
]
NoGrad = Annotated[bool, typer.Option("--no-grad", help="torch.no_grad instead of inference mode.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="An option of the runtime; repeatable."),
]
Transfers = Annotated[
    bool,
    typer.Option("--transfers", help="GPU: with copies from and to the host's memory."),
]
Mode = Annotated[str, typer.Option(help="latency or throughput.")]
Warmup = Annotated[int | None, typer.Option(help="So many warm-up requests, if there is time.")]
Rounds = Annotated[int | None, typer.Option(help="So many rounds, if there is time.")]
DURATION = (
    "Seconds of warm-up and rounds, after which nothing begins but a first round; getting ready "
    "comes before, looking closer after"
)
Duration = Annotated[float, typer.Option(help=f"{DURATION}.")]
Precision = Annotated[
    float,
    typer.Option(help="Stop when each interval's half-width is within this share of its mean."),
]
Seed = Annotated[int, typer.Option(help="Of the order of runners in the rounds.")]
Cpus = Annotated[str | None, typer.Option(help="Pin to a set of CPUs, such as 0,1 or 2-5.")]
Patience = Annotated[
    float,
    typer.Option(help="Seconds, besides --duration, to wait for a neighbour to leave the core."),
]
Label = Annotated[
    str, typer.Option(help="What to call the result, such as before; `ftax compare` reads it.")
]
Json = Annotated[
    Path | None,
    typer.Option(
        "--json",
        callback=_check_json,
        help="Append the record to this file; - prints it, and nothing else.",
    ),
]
# Outputs are looked at first: a mistyped folder must not cost what was measured.
TraceOutput = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        callback=_check_output,
        help="GPU: write the traces here for Perfetto or chrome://tracing.",
    ),
]
ChromeOutput = Annotated[
    Path | None,
    typer.Option(
        "--chrome",
        callback=_check_output,
        help="Write the trace here for Perfetto or chrome://tracing.",
    ),
]
Csv = Annotated[
    bool, typer.Option("--csv", callback=_check_format, help="Print CSV instead of tables.")
]
Markdown = Annotated[
    bool,
    typer.Option("--markdown", callback=_check_format, help="Print Markdown instead of tables."),
]


def make_plan(
    *,
    mode: str = "latency",
    warmup: int | None,
    rounds: int | None,
    duration: float,
    precision: float,
    seed: int,
    cpus: str | None,
    patience: float,
) -> Plan:
    """The plan that the options describe; Plan itself checks the values."""
    return Plan(
        mode=mode,  # type: ignore[arg-type]  # checked by Plan
        warmup=warmup,
        rounds=rounds,
        duration_s=duration,
        target_ratio=precision,
        seed=seed,
        cpus=parse_cpus(cpus),
        patience_s=patience,
    )


def parse_settings(texts: list[str] | None) -> dict[str, str]:
    """``["optimization=basic"]`` as a dict."""
    pairs = [text.partition("=") for text in texts or ()]
    for text, (name, equals, value) in zip(texts or (), pairs, strict=True):
        if not (name and equals and value):
            raise typer.BadParameter(f"{text!r} sets nothing; write optimization=basic")
    return {name: value for name, _, value in pairs}


def parse_cpus(text: str | None) -> tuple[int, ...]:
    """``"0,2-4"`` as (0, 2, 3, 4)."""
    if text is None:
        return ()
    cpus: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part.strip())
        found = range(int(match[1]), int(match[2] or match[1]) + 1) if match else ()
        if not found:
            raise typer.BadParameter(f"{text!r} is no set of CPUs; write 0,1 or 2-5")
        cpus += found
    return tuple(dict.fromkeys(cpus))
