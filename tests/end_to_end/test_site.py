"""What docs/hooks.py makes of the pages; `make docs` builds the site itself, strictly."""

import importlib.util
import inspect
import re
from pathlib import Path

import pytest
from typer.main import get_command

import ftax
from ftax.cli.commands import app

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("ftax_site", ROOT / "docs" / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("path", "link", "made"),
    [
        ("README.md", "docs/receipt.md", "receipt.md"),
        ("README.md", "docs/tutorials/reproduce-the-paper.md", "tutorials/reproduce-the-paper.md"),
        ("README.md", "NOTICE", "files/NOTICE"),
        ("README.md", "CONTRIBUTING.md", "contributing.md"),
        ("docs/receipt.md", "tape.md", "tape.md"),
        ("docs/receipt.md", "../README.md", "index.md"),
        ("docs/extending.md", "../examples/mlp_c/mlp.c", "files/examples/mlp_c/mlp.c"),
        ("docs/tutorials/reproduce-the-paper.md", "../paper.md", "../paper.md"),
        ("docs/tutorials/reproduce-the-paper.md", "../../README.md", "../index.md"),
        ("docs/trust.md", "commands.md", "commands.md"),  # which is made
        ("docs/trust.md", "https://example.org/docs/tape.md", "https://example.org/docs/tape.md"),
    ],
)
@pytest.mark.parametrize("anchor", ["", "#part"])
def test_a_link_of_the_repository_becomes_one_of_the_site(hooks, path, link, made, anchor):
    text = f"see [it]({link}{anchor}), and more"
    assert hooks.relink(text, path) == f"see [it]({made}{anchor}), and more"


def test_a_link_to_a_folder_is_refused(hooks):
    with pytest.raises(ValueError, match="links to the folder examples/mlp_c"):
        hooks.relink("[it](../examples/mlp_c)", "docs/extending.md")


def test_files_outside_docs_are_copied_and_pages_are_not(hooks):
    text = (
        "[a](../examples/mlp_c/mlp.c) [b](tape.md) [c](../README.md) [d](../nothing.c)"
        "[e](../../elsewhere.c) [f](https://example.org/x.c)"
    )
    assert list(hooks.list_outside(text, "docs/extending.md")) == ["examples/mlp_c/mlp.c"]


@pytest.mark.parametrize(
    ("html", "refused"),
    [
        ('<script src="https://unpkg.com/x.js">', True),
        ('<link rel="stylesheet" href="//fonts.example.org/a.css">', True),
        ("<img alt=x src=http://example.org/a.png>", True),
        ('<script src="assets/x.js">', False),
        ('<a href="https://arxiv.org/abs/2302.06117">', False),
    ],
)
def test_a_page_that_would_load_something_from_elsewhere_is_refused(hooks, html, refused):
    class Page:
        class file:
            src_uri = "tape.md"

    if refused:
        with pytest.raises(ValueError, match=r"tape\.md loads"):
            hooks.on_post_page(html, Page, None)
    else:
        assert hooks.on_post_page(html, Page, None) == html


def test_the_reference_has_every_command_argument_and_option(hooks):
    text = hooks.render_commands(app)
    sections = dict(re.findall(r"^## ftax (\S+)\n(.*?)(?=^## |\Z)", text, re.M | re.S))
    commands = get_command(app).commands
    assert [*sections] == [*commands]
    for name, command in commands.items():
        for item in command.params:
            if item.param_type_name == "argument":
                assert re.search(rf"^- `\[?{item.name.upper()}[.\]]*`: ", sections[name], re.M)
            else:
                for flag in (*item.opts, *item.secondary_opts):
                    assert f"`{flag}`" in sections[name]
            assert " ".join(item.help.split()).replace("|", "\\|") in sections[name]
    assert "| `--batch` |  | Requests in one call. |" in sections["tax"]
    assert "| `--margin` | `0.05` |" in sections["compare"]
    assert "| `--tiny` |  |" in sections["tax"]


def test_the_reference_of_python_has_every_public_name():
    text = (ROOT / "docs" / "python.md").read_text("utf-8")
    assert sorted(re.findall(r"^::: ftax\.(\w+)$", text, re.M)) == sorted(
        name for name in ftax.__all__ if not inspect.ismodule(getattr(ftax, name))
    )


def test_every_page_is_in_the_navigation():
    listed = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.M)
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    made = {"index.md", "commands.md", "contributing.md", "changelog.md"}
    assert sorted(listed) == sorted(pages | made)
