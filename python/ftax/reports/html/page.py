"""Writes the page: templates, style and scripts in one file that needs no network.

Its content security policy names the hash of its only script: text from a results file could not
run even if escaping failed, and nothing can be fetched. Charts need no script.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ftax import _build_info
from ftax.errors import InvalidArgumentError
from ftax.records.whole_file import write_whole
from ftax.reports.html.content import DescribeStudy, list_sections, make_content
from ftax.reports.html.sources import Sources, read_sources
from ftax.reports.html.view import typeset
from ftax.reports.terminal import clean

_TEMPLATES = Path(__file__).parent / "templates"
_START = b"<!doctype html>"


def write_report(
    paths: Sequence[str | Path],
    output: str | Path,
    *,
    skip_bad: bool = False,
    title: str | None = None,
    describe_study: DescribeStudy | None = None,
) -> Sources:
    """Write a page of all results in ``paths`` (files, or folders of .jsonl files) to ``output``.

    ``describe_study`` makes the sections of the paper. The same results give the same bytes.
    Returns what was read.

    Raises:
        ResultsError: a path has no results, or a line cannot be read and ``skip_bad`` is not given.
        InvalidArgumentError: ``output`` exists and is no HTML page, or cannot be written.
    """
    target = Path(os.path.realpath(output))  # what a link names is written, and the link stays
    _check_target(target)
    sources = read_sources(paths, skip_bad=skip_bad)
    text = make_page(
        sources, skip_bad=skip_bad, title=title or "ftax report", describe_study=describe_study
    )
    try:
        write_whole(target, text.encode("utf-8"))
    except OSError as error:
        raise InvalidArgumentError(
            f"{target}: {error.strerror or error}; choose a path that can be written"
        ) from error
    return sources


def make_page(
    sources: Sources,
    *,
    skip_bad: bool = False,
    title: str = "ftax report",
    describe_study: DescribeStudy | None = None,
) -> str:
    """The page as text; see `write_report`."""
    import jinja2
    import markupsafe

    context = make_content(sources, skip_bad=skip_bad, describe_study=describe_study)
    script = _read("page.js")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: (
            value if isinstance(value, markupsafe.Markup) else _write_text(value)
        ),
    )
    safe = markupsafe.Markup  # ours alone: nothing of a record goes through it
    return environment.get_template("page.html").render(
        **context,
        title=title,
        version=_build_info.VERSION,
        sections=list_sections(context),
        policy=_make_policy(script),
        style=safe(_read("report.css")),
        script=safe(script),
    )


def _write_text(value: Any) -> Any:
    """As on a terminal, nothing that turns the direction of writing or that is no UTF-8; and times
    as a page writes them."""
    return typeset(clean(value)) if isinstance(value, str) else value


def _make_policy(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _read(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _check_target(target: Path) -> None:
    """A page may be written anew; results must not be written over."""
    if target.is_dir():
        raise InvalidArgumentError(f"{target} is a folder; name a file, such as report.html")
    if target.exists() and not target.is_file():
        raise InvalidArgumentError(f"{target} is no regular file; name one, such as report.html")
    if not target.exists() or target.stat().st_size == 0:
        return
    with target.open("rb") as file:
        start = file.read(len(_START))
    if start.lower() != _START:
        raise InvalidArgumentError(
            f"{target} exists and is no HTML page, so it is not written over; choose another name"
        )
