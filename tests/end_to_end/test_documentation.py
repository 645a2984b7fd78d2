"""The code of README and docs/: names of ftax are there, calls fit, commands have their options,
and what a reader would run from top to bottom runs.

Pages are run with two rounds in place of what a reader gets. What is shown is how things are
called; what comes out is tested elsewhere.
"""

import ast
import functools
import importlib
import inspect
import re
import shlex
import sys
from pathlib import Path

import pytest
from ftax_run.cli import make_parser
from typer.main import get_command

import ftax
from ftax.cli.commands import app
from ftax.runtimes.plugins import conform as suite
from support.forks import run_python
from support.plugins import compile_c
from support.records import make_measurement
from support.signatures import list_options

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
EXTENDING = ROOT / "docs" / "extending.md"
TUTORIALS = (*sorted((ROOT / "docs" / "tutorials").glob("*.md")), EXTENDING)
PAGES = (README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))

_FENCE = re.compile(r'^ *```(\w*)(?: title="([^"]+)")?\n(.*?)^ *```$', re.DOTALL | re.MULTILINE)


def list_blocks(page, *languages):
    """The code of a page in these languages, Python if none is named, and the file that it is
    shown as, or None."""
    return [
        (code, title or None)
        for language, title, code in _FENCE.findall(page.read_text(encoding="utf-8"))
        if language in (languages or ("python",))
    ]


BLOCKS = [
    pytest.param(code, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, (code, _) in enumerate(list_blocks(page), start=1)
]


def resolve(node, names):
    """The object of ftax that an expression names; None for anything else."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute) and (owner := resolve(node.value, names)) is not None:
        return getattr(owner, node.attr)
    return None


@pytest.mark.parametrize("code", BLOCKS)
def test_names_are_there_and_calls_fit(code):
    tree = ast.parse(code)
    names = {"ftax": ftax}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("ftax"):
            module = importlib.import_module(node.module)
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found = getattr(module, alias.name, None) or importlib.import_module(full)
                names[alias.asname or alias.name] = found
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            resolve(node, names)  # AttributeError if it is not there
        if isinstance(node, ast.Call) and (function := resolve(node.func, names)) is not None:
            keywords = {keyword.arg: None for keyword in node.keywords if keyword.arg}
            bound = inspect.signature(function).bind(*node.args, **keywords)
            options = set(bound.arguments.get("options", ()))
            assert not options or options <= list_options(function)


_FILE = re.compile(r"`([\w./-]+\.(?:py|cpp|cu|h|md|toml|json|jsonl))`")
_FOLDERS = ("python", "csrc", "tests", "bench", "docs", "examples", ".ci")
FILES = {
    "/" + str(path.relative_to(ROOT))
    for folder in (ROOT / name for name in _FOLDERS)
    for path in folder.rglob("*.*")
} | {"/" + path.name for path in ROOT.glob("*.*")}


@pytest.mark.parametrize("page", [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md"])
def test_a_map_names_files_that_are_there(page):
    named = set(_FILE.findall(page.read_text(encoding="utf-8")))
    assert len(named) > 20
    assert [
        name for name in sorted(named) if not any(path.endswith(f"/{name}") for path in FILES)
    ] == []


def list_commands():
    """Each line of a shell block that calls ftax, and of lines in backquotes."""
    for page in PAGES:
        for code, _ in list_blocks(page, "sh", "yaml", ""):
            for line in code.splitlines():
                for part in line.removeprefix("$ ").strip().split(";"):
                    if part.strip().startswith("ftax "):
                        yield page, part.strip()


COMMANDS = [pytest.param(line, id=f"{page.stem}: {line}") for page, line in list_commands()]


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_and_their_options_are_there(line):
    name, *words = shlex.split(line, comments=True)[1:]
    command = get_command(app).commands[name]
    known = {flag for item in command.params for flag in (*item.opts, *item.secondary_opts)}
    if name == "run":  # its options are ftax_run's
        known = set(re.findall("--[a-z]+", make_parser().format_help()))
    given = {word.partition("=")[0].rstrip(":") for word in words if word.startswith("--")}
    assert given <= known


@pytest.fixture
def quickly(monkeypatch):
    """Two rounds, and no runtime beside the ladder but those that a page names; one check."""
    monkeypatch.setattr(suite, "CHECKS", suite.CHECKS[:1])

    def hurry(function):
        takes = inspect.signature(function).parameters

        @functools.wraps(function)
        def measure(*args, **options):
            options["plan"] = ftax.Plan(rounds=2, warmup=1, round_ms=1.0)
            if "runtimes" in takes:
                options.setdefault("runtimes", "none")
            return function(*args, **options)

        return measure

    for name in ("tax", "cpp_bench", "py_bench", "compare_hosts", "knee"):
        monkeypatch.setattr(ftax, name, hurry(getattr(ftax, name)))


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """A folder with the files of the tutorials; the README's package is theirs too."""
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").touch()
    for page in TUTORIALS:
        for code, title in list_blocks(page):
            if title is not None:
                (tmp_path / title).write_text(code)
    (tmp_path / "my_package" / "model.py").write_text((tmp_path / "service.py").read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("service", "bert_service", "training", "mlp", "my_package", "my_package.model"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("page", [README, *TUTORIALS], ids=lambda page: page.stem)
def test_a_page_runs_from_top_to_bottom(page, reader, quickly, capsys):
    if page == EXTENDING:
        Path(compile_c(reader)).rename(reader / "libmlp.so")
    blocks = [code for code, title in list_blocks(page) if title is None]
    names = {}
    for code in blocks:
        exec(compile(code, str(page), "exec"), names)
    assert bool(capsys.readouterr().out) == bool(blocks)


def test_results_are_read_as_documented(tmp_path):
    ((code, _),) = list_blocks(ROOT / "docs" / "results.md")
    make_measurement([100, 110]).save(tmp_path / "first.jsonl")
    script = f'import ftax\n(measurement,) = ftax.Measurement.load("first.jsonl")\n{code}'
    done = run_python(script, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "results.jsonl").exists()


def test_the_readme_is_read_in_one_go():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 120


@pytest.mark.parametrize("target", ["run", "test"])
def test_the_first_screen_of_the_readme_says_how_to_run_and_how_to_test(target):
    first_screen = README.read_text(encoding="utf-8").splitlines()[:40]
    assert any(f"`make {target}`" in line for line in first_screen)
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_tests_and_files_that_pages_name_are_there():
    """The name of a test that has gone is a claim that nothing checks."""
    tests = [path for kind in ("py", "cpp") for path in (ROOT / "tests").rglob(f"*.{kind}")]
    known = {path.stem for path in tests}
    known.update(
        name
        for path in tests
        for name in re.findall(r"\b(test_\w+)\(", path.read_text(encoding="utf-8"))
    )
    places = [ROOT / "python", ROOT / "python" / "ftax", ROOT / "csrc", ROOT / "bench", ROOT]
    for page in set(PAGES) - {EXTENDING}:
        text = page.read_text(encoding="utf-8")
        assert set(re.findall(r"`(?:[\w/]+/)?(test_\w+)(?:\.py)?`", text)) <= known, page
        files = re.findall(r"`([\w/]+/\w+\.(?:py|cpp|h|cu))`", text)
        assert all(any((place / name).exists() for place in places) for name in files), page
