"""Grids: the product, and every way in which one can be wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ftax.cli.commands import app
from ftax.errors import InvalidArgumentError
from ftax.steps.setting import Setting
from ftax.sweeps.grid import Grid, join_cells, make_grid, read_cell, read_grids

DOCS = Path(__file__).parents[3] / "docs" / "sweep.md"


def test_cells_are_the_product_with_defaults_resolved():
    grid = Grid(
        models=("bert-base", "resnet-50"),
        runtimes=("eager", "torchscript/cpp"),
        hosts=("python", "cpp"),
        dtypes=("fp32", "fp16"),
        batches=(1, 8),
    )
    cells = grid.cells()
    assert len(cells) == len(set(cells)) == 2 * 3 * 2 * 2
    assert {(cell.runtime, cell.host) for cell in cells} == {
        ("eager", "python"),
        ("eager", "cpp"),
        ("torchscript", "cpp"),
    }
    assert {(cell.model, cell.sequence) for cell in cells} == {
        ("bert-base", 128),
        ("resnet-50", None),
    }


def test_a_choice_that_is_no_default_tells_cells_apart():
    plain, tiny = (
        Grid(models=("bert-base",), setting=Setting(tiny=tiny)).cells()[0] for tiny in (False, True)
    )
    assert (dict(plain.options), dict(tiny.options)) == ({}, {"tiny": True})
    assert (plain.sequence, tiny.sequence) == (128, 8)
    plain, counted = (
        Grid(models=("bert-base",), devices=("cuda",), utilisation=wanted).cells()[0]
        for wanted in (False, True)
    )
    assert counted == plain  # the same latency, looked at more closely


def test_a_setting_is_in_the_cells_and_can_be_read_from_them():
    values = {
        "models": "bert-base", "runtimes": "onnxruntime/cpp", "devices": "cuda", "tiny": True,
        "grad_mode": "no_grad", "transfers": True, "runtime_options": {"optimization": "basic"},
    }  # fmt: skip
    grid = make_grid(values)
    (cell,) = grid.cells()
    assert cell.grad_mode == "no_grad"
    assert dict(cell.options) == {"tiny": True, "transfers": True, "optimization": "basic"}
    size = {"dtype": "fp32", "batch": 1, "sequence": cell.sequence}
    assert read_cell(cell) == replace(grid.setting, **size)
    assert make_grid(grid.to_dict()) == grid
    json.dumps(grid.to_dict())


def test_a_cell_measured_once_more_is_the_cell_with_a_mark():
    grid = Grid(models=("bert-base",), batches=(1, 2), repetitions=3)
    assert [(cell.batch, cell.options.get("repetition")) for cell in grid.cells()] == [
        (batch, mark) for mark in (None, 1, 2, 3) for batch in (1, 2)
    ]
    once = Grid(models=("bert-base",), batches=(1, 2))
    assert len(join_cells([once, grid])) == 8  # what is measured anyway counts as the first


def test_a_bare_runtime_goes_with_the_hosts_that_it_has():
    grid = Grid(models=("bert-base",), runtimes=("flat", "eager"), hosts=("python", "cpp"))
    assert grid.pairs == (("flat", "python"), ("eager", "python"), ("eager", "cpp"))


def test_joined_grids_have_each_cell_once():
    one = Grid(models=("bert-base",), batches=(1, 2))
    two = Grid(models=("bert-base",), batches=(2, 4))
    assert [cell.batch for cell in join_cells([one, two])] == [1, 2, 4]
    with pytest.raises(InvalidArgumentError, match="no grid, so no cell"):
        join_cells([])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "has no models"),
        ({"models": []}, "models is empty, so the grid has no cell"),
        ({"models": "bert-base", "batches": []}, "batches is empty"),
        ({"models": "bert-bse"}, "unknown model 'bert-bse': did you mean 'bert-base'"),
        ({"models": "bert-base", "runtimes": "egaer"}, "did you mean 'eager'"),
        ({"models": "bert-base", "runtimes": "flat/cpp"}, "driven from cpp .*flat/python"),
        ({"models": "bert-base", "runtimes": 3}, "runtimes has 3; write a name"),
        ({"models": "bert-base", "hosts": "rust"}, "host is 'rust'; it has to be 'python'"),
        ({"models": "bert-base", "dtypes": "int8"}, "dtypes has 'int8'; .*give one of fp32"),
        ({"models": "bert-base", "devices": "cuda:99999"}, "devices has 'cuda:99999'; .*to 127"),
        ({"models": "bert-base", "batches": [1, 0]}, "batches has 0; .*a whole number from 1"),
        ({"models": "bert-base", "repetitions": -1}, "repetitions is -1; give a whole number"),
        ({"models": "bert-base", "repetitions": 2.0}, "repetitions is 2.0; give a whole number"),
        ({"models": "bert-base", "batches": ["8"]}, "batches has '8'"),
        ({"models": "bert-base", "sequences": 4096}, "sequence is 4096.*at most 512.*another grid"),
        ({"models": "resnet-50", "sequences": 128}, "takes images, which have none"),
        ({"models": "bert-base", "devices": "tpu"}, "devices has 'tpu'; .*give 'cpu'"),
        (
            {"models": "bert-base", "runtimes": "cuda-graph", "devices": ["cuda", "cpu"]},
            r"'cuda-graph', which does not run on 'cpu'; put it into .* devices = \['cuda'\]",
        ),
        ({"models": "bert-base", "attention": "flash"}, "attention is 'flash'"),
        ({"models": "resnet-50", "attention": "sdpa"}, "no attention to choose"),
        ({"models": "bert-base", "use_cache": True}, "has no key-value cache"),
        ({"models": "bert-base", "tiny": "yes"}, "tiny is 'yes': give True or False"),
        ({"models": "bert-base", "utilisation": True}, "devices has only 'cpu'"),
        ({"models": "bert-base", "batch": 1}, "no field 'batch'; did you mean 'batches'"),
        ({"models": "bert-base", "transfers": True}, "transfers is True, but that is of a GPU"),
        (
            {"models": "bert-base", "runtime_options": {"optimization": "basic"}},
            "eager has no option 'optimization'",
        ),
        ({"models": "bert-base", "threads": 1}, "a grid has no field 'threads'"),
        ({"models": "./nothing-here"}, "there is no file or folder"),
        ({"models": [["bert-base"]]}, r"models has \['bert-base'\]"),
    ],
)  # fmt: skip
def test_what_a_grid_refuses(values, message):
    with pytest.raises(InvalidArgumentError, match=message):
        make_grid(values)


def test_default_stands_for_the_models_own_length():
    grid = make_grid({"models": "bert-base", "sequences": ["default", 16]})
    assert [cell.sequence for cell in grid.cells()] == [128, 16]


def test_the_example_of_the_page_is_a_grid(tmp_path):
    text = DOCS.read_text().split("```toml\n", 1)[1].split("```", 1)[0]
    path = tmp_path / "grid.toml"
    path.write_text(text)
    grids = read_grids(path)
    assert len(grids) > 1
    assert {cell.device for cell in join_cells(grids)} == {"cuda", "cpu"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models = [", "is not TOML"),
        ("", "has no models"),
        ("grid = 3", r"write each grid as a table \[\[grid\]\]"),
        ("grid = []", "has no grid"),
        ("seed = 1\n[[grid]]\nmodels = 'bert-base'", "has 'seed' beside"),
        (
            "[[grid]]\nmodels = 'bert-base'\n[[grid]]\nmodels = 'bert'",
            "grid.toml, grid 2: unknown model 'bert'",
        ),
    ],
)
def test_a_file_that_is_wrong_is_named(text, message, tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(text)
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        read_grids(path)
    assert str(path) in str(caught.value)
    with pytest.raises(InvalidArgumentError, match="cannot be read"):
        read_grids(tmp_path / "none.toml")


LIBRARIES = """
[[grid]]
models = "bert-base"

[[grid]]
models = "bert-base"
runtimes = ["eager/python", "./from-elsewhere.so?tile=64/cpp"]
"""


def test_a_file_names_no_library_that_nobody_allowed(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(LIBRARIES)
    message = (
        r"grid.toml, grid 2: runtimes has '\./from-elsewhere.so\?tile=64', .*--allow-libraries"
    )
    with pytest.raises(InvalidArgumentError, match=message):
        read_grids(path)
    runtimes = [cell.runtime for cell in join_cells(read_grids(path, allow_libraries=True))]
    assert runtimes == ["eager", "./from-elsewhere.so?tile=64"]


def test_the_command_line_allows_libraries_of_a_file_or_names_them(tmp_path, monkeypatch):
    path = tmp_path / "grid.toml"
    path.write_text(LIBRARIES)
    swept = []

    def note(grids, folder, **options):
        swept.append([cell.runtime for cell in join_cells(grids)])
        raise InvalidArgumentError("not in this test")

    monkeypatch.setattr("ftax.sweeps.sweep.run_sweep", note)
    sweep = ["sweep", "-o", str(tmp_path / "out")]

    def invoke(*arguments):
        return str(CliRunner().invoke(app, [*sweep, *arguments]).exception)

    assert "--allow-libraries" in invoke(str(path))
    assert "--allow-libraries" in invoke(str(path), "--resume")
    assert swept == []
    assert invoke(str(path), "--allow-libraries") == "not in this test"
    assert invoke("--model", "bert-base", "--runtime", "./mine.so/cpp") == "not in this test"
    assert swept == [["eager", "./from-elsewhere.so?tile=64"], ["./mine.so"]]


def test_a_cell_has_the_units_that_one_run_makes():
    """As a measurement of the same step has."""

    def units(**values):
        return [cell.units for cell in make_grid({"models": "bert-base", **values}).cells()]

    assert units(batches=[1, 4]) == [1, 1]
    assert units(step="train", batches=[1, 4]) == [1, 4]
    assert units(models="llama", step="decode", batches=[1, 4]) == [8, 8]
    assert units(models="llama", step="decode", tokens=3) == [3]


def refuse_to_make(*_arguments, **_options):
    raise AssertionError("a cell or a setting was made")


MANY = {"batches": range(1, 2001), "sequences": range(1, 501), "dtypes": ("fp32", "bf16")}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            MANY,
            r"has 2,000,000 cells \(2 dtypes x 2,000 batches x 500 sequences\) and a sweep takes",
        ),
        ({"batches": range(1, 102), "repetitions": 999}, "101,000 cells .*1,000 repetitions"),
        ({"batches": range(1, 10**30)}, "batches has more than 100,000 values"),
    ],
)
def test_a_grid_of_too_many_cells_is_refused_by_its_product(values, message, monkeypatch):
    """It said nothing for a minute, and would have taken months."""
    setting = Setting()
    monkeypatch.setattr("ftax.sweeps.grid.Cell.of", refuse_to_make)
    monkeypatch.setattr("ftax.sweeps.grid.Setting", refuse_to_make)
    with pytest.raises(InvalidArgumentError, match=message):
        Grid(models=("bert-base",), setting=setting, **values)


def test_grids_of_too_many_cells_together_are_refused_before_any_is_made(tmp_path, monkeypatch):
    path = tmp_path / "grid.toml"
    batches = f"batches = {list(range(1, 401))}"
    sequences = f"sequences = {list(range(1, 201))}"
    path.write_text(f'[[grid]]\nmodels = "bert-base"\n{batches}\n{sequences}\n' * 2)
    monkeypatch.setattr("ftax.sweeps.grid.Cell.of", refuse_to_make)
    grids = read_grids(path)
    assert [grid.size for grid in grids] == [80_000, 80_000]
    with pytest.raises(InvalidArgumentError, match="have 160,000 cells and a sweep takes at most"):
        join_cells(grids)
    path.write_text(f'models = "bert-base"\n{batches}\nsequences = {list(range(1, 501))}\n')
    with pytest.raises(InvalidArgumentError, match=r"grid.toml: the grid has 200,000 cells"):
        read_grids(path)


def test_the_number_of_cells_is_known_without_them():
    grid = Grid(
        models=("bert-base", "gpt2"), runtimes=("eager", "flat"), hosts=("python", "cpp"),
        batches=(1, 8, 64), repetitions=2,
    )  # fmt: skip
    assert grid.size == len(grid.cells())
