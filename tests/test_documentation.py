"""The Python of the README and of docs/: its names are there, its calls fit, and what reads results
files is run as it stands."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ftax.runtimes.prepare import _MODEL_OPTIONS
from support.records import make_measurement

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def list_blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


BLOCKS = [
    pytest.param(code, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, code in enumerate(list_blocks(page), start=1)
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
    names = {"ftax": importlib.import_module("ftax")}
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
            assert set(bound.arguments.get("model_options", ())) <= _MODEL_OPTIONS


def test_results_are_read_as_documented(tmp_path):
    (code,) = list_blocks(ROOT / "docs" / "results.md")
    make_measurement([100, 110]).save(tmp_path / "first.jsonl")
    script = f'import ftax\n(measurement,) = ftax.Measurement.load("first.jsonl")\n{code}'
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "results.jsonl").exists()
