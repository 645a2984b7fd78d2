"""What the site has beside the pages of docs/: see mkdocs.yml.

Nothing links to a repository. README, CONTRIBUTING and CHANGELOG are pages of the site, and any
other file outside docs/ that a page links to is copied into it under `files/`, so that a link is
checked when the site is built, and is as old as the page that has it.
"""

from __future__ import annotations

import inspect
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:)([^)#\s]+)")  # the target of [text](target#anchor)
_LOADED = re.compile(
    r"""<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=["']?(?:https?:)?//[^"'> ]+"""
)
_COMMANDS = """# Commands

Made from the commands themselves when this site is built; `ftax COMMAND --help` prints the same.
What exit codes mean is [a table of its own](failures.md#how-a-command-ends).
"""


def find_place(path: str) -> str:
    """Where a file of the repository is in the site."""
    if path in PAGES:
        return PAGES[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"files/{path}"


def relink(text: str, path: str) -> str:
    """The text of the page ``path`` of the repository, with its links as they are in the site.

    Raises ValueError for a link to a folder, which a site cannot show.
    """
    here = posixpath.dirname(find_place(path)) or "."

    def replace(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[1]))
        if not os.path.lexists(ROOT / target):
            return match[1]  # a page that is made (commands.md), or one that mkdocs will miss
        if (ROOT / target).is_dir():
            raise ValueError(f"{path} links to the folder {target}; link to a file in it")
        return posixpath.relpath(find_place(target), here)

    return _LINK.sub(replace, text)


def list_outside(text: str, path: str) -> Iterator[str]:
    """The files outside docs/ that the page ``path`` links to."""
    for target in _LINK.findall(text):
        found = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        is_outside = not found.startswith(("docs/", "../")) and found not in PAGES
        if is_outside and (ROOT / found).is_file():
            yield found


def render_commands(app: typer.Typer) -> str:
    """The reference of all commands, as Markdown."""
    from typer.main import get_command

    program: Any = get_command(app)
    parts = [_COMMANDS, program.help or ""]
    for name, command in program.commands.items():
        parts += [
            f"## ftax {name}",
            inspect.cleandoc(command.help or ""),
            _render_usage(name, command),
        ]
        options = [item for item in command.params if item.param_type_name == "option"]
        parts.append(_render_options(options))
    return "\n\n".join(part for part in parts if part) + "\n"


def _render_usage(name: str, command: Any) -> str:
    arguments = [item for item in command.params if item.param_type_name == "argument"]
    words = ["ftax", name, *map(_name_argument, arguments), "[OPTIONS]"]
    notes = [f"- `{_name_argument(item)}`: {_flatten(item.help)}" for item in arguments]
    return "\n".join(["```", " ".join(words), "```", "", *notes])


def _name_argument(argument: Any) -> str:
    name = argument.name.upper() + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _render_options(options: list[Any]) -> str:
    rows = [
        f"| {' '.join(map('`{}`'.format, (*item.opts, *item.secondary_opts)))} "
        f"| {_render_default(item)} | {_flatten(item.help)} |"
        for item in options
    ]
    return "\n".join(["| option | default | |", "|---|---|---|", *rows]) if rows else ""


def _render_default(option: Any) -> str:
    return "" if option.default is None or option.default is False else f"`{option.default}`"


def _flatten(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made or lie elsewhere, and the files that pages link to."""
    from mkdocs.structure.files import File, InclusionLevel

    from ftax.cli.commands import app

    outside: set[str] = set()
    for path in _list_pages(files):
        outside.update(list_outside((ROOT / path).read_text("utf-8"), path))
    for path, place in PAGES.items():
        files.append(File.generated(config, place, content=(ROOT / path).read_text("utf-8")))
    files.append(File.generated(config, "commands.md", content=render_commands(app)))
    for path in sorted(outside):
        files.append(
            File.generated(
                config, find_place(path), abs_src_path=str(ROOT / path),
                inclusion=InclusionLevel.NOT_IN_NAV,
            )
        )  # fmt: skip
    return files


def _list_pages(files: Files) -> list[str]:
    return [*PAGES, *(f"docs/{file.src_uri}" for file in files.documentation_pages())]


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as they are in the site."""
    back = {place: path for path, place in PAGES.items()}
    place = page.file.src_uri
    path = back.get(place) or (
        place.removeprefix("files/") if place.startswith("files/") else f"docs/{place}"
    )
    return relink(markdown, path)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Raise ValueError if the page would load anything from another host."""
    if found := _LOADED.search(output):
        raise ValueError(f"{page.file.src_uri} loads {found[0]}>: the site has to need no network")
    return output
