"""Writes the page: templates, style and scripts in one file that needs no network.

The surprising choice: the page forbids itself everything. Its content security policy names the
hashes of its own scripts, so that text from a results file could not run even if escaping failed,
and nothing can be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ftax import _build_info
from ftax.errors import InvalidArgumentError, UnavailableError
from ftax.reports.html.content import (
    DescribeClaims,
    leave_claims,
    list_sections,
    make_content,
)
from ftax.reports.html.sources import Sources, read_sources
from ftax.reports.html.theme import DARK, LIGHT, SANS, SERIES, make_properties
from ftax.reports.html.view import typeset
from ftax.reports.terminal import clean

_TEMPLATES = Path(__file__).parent / "templates"
_SCRIPTS = ("core.js", "charts.js", "page.js")
_START = b"<!doctype html>"
# What would end a script element, or a line of one.
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def write_report(
    paths: Sequence[str | Path],
    output: str | Path,
    *,
    skip_bad: bool = False,
    title: str | None = None,
    describe_claims: DescribeClaims = leave_claims,
) -> Sources:
    """Write a page of all results in ``paths`` (files, or folders of .jsonl files) to ``output``.

    ``describe_claims`` makes the section of verdicts. The same results give the same bytes.
    Returns what was read.

    Raises:
        ResultsError: a path has no results, or a line cannot be read and ``skip_bad`` is not given.
        InvalidArgumentError: ``output`` is a file that is no HTML page, or cannot be written.
        UnavailableError: plotly is not installed.
    """
    target = Path(output)
    _check_target(target)
    sources = read_sources(paths, skip_bad=skip_bad)
    text = make_page(
        sources, skip_bad=skip_bad, title=title or "ftax report", describe_claims=describe_claims
    )
    try:
        _write(target, text.encode("utf-8"))
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
    describe_claims: DescribeClaims = leave_claims,
) -> str:
    """The page as text; see `write_report`."""
    import jinja2
    import markupsafe

    context, data = make_content(sources, skip_bad=skip_bad, describe_claims=describe_claims)
    theme = {"light": dict(LIGHT), "dark": dict(DARK), "sans": SANS, "series": SERIES}
    scripts = [_read_plotly(), *(_read(name) for name in _SCRIPTS)]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, markupsafe.Markup) else _clean(value),
    )
    environment.filters["typeset"] = typeset
    safe = markupsafe.Markup  # ours alone: nothing of a record goes through it
    return environment.get_template("page.html").render(
        **context,
        title=title,
        version=_build_info.VERSION,
        sections=list_sections(context),
        policy=_make_policy(scripts),
        light=safe(make_properties(LIGHT)),
        dark=safe(make_properties(DARK)),
        sans=safe(SANS),
        style=safe(_read("report.css")),
        data=safe(_make_json(_clean({**data, "theme": theme}))),
        scripts=[safe(script) for script in scripts],
    )


def _clean(value: Any) -> Any:
    """As on a terminal: nothing that turns the direction of writing, or that is no UTF-8."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value


def _make_json(data: Any) -> str:
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for character, escape in _UNSAFE.items():
        text = text.replace(character, escape)
    return text


def _make_policy(scripts: Sequence[str]) -> str:
    digests = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts
    ]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _read(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _read_plotly() -> str:
    """plotly.js, from the Python package, so that nobody has to fetch it."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise UnavailableError(
            "the report needs plotly, which is not installed; pip install 'ftax[report]'"
        ) from error
    script: str = get_plotlyjs()
    # A parser of HTML turns \r into \n, which would change the hash, and ends at </script.
    script = script.replace("\r\n", "\n").replace("\r", "\n")
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _check_target(target: Path) -> None:
    """A page may be written anew; results must not be written over."""
    if target.is_dir():
        raise InvalidArgumentError(f"{target} is a folder; name a file, such as report.html")
    if not target.is_file() or target.stat().st_size == 0:
        return
    with target.open("rb") as file:
        start = file.read(len(_START))
    if start.lower() != _START:
        raise InvalidArgumentError(
            f"{target} exists and is no HTML page, so it is not written over; choose another name"
        )


def _write(target: Path, content: bytes) -> None:
    """All or nothing: a reader never sees half a page."""
    handle, name = tempfile.mkstemp(dir=target.absolute().parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)  # as any new file; temporary ones are for their owner only
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
