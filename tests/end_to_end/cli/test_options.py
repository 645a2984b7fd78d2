"""The options that commands share: which has which, and that all mean the same by them."""

import re
import typing
from dataclasses import fields

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import ftax.paper.study  # noqa: F401  (before a test replaces what it imports)
from ftax.cli import options as o
from ftax.cli.commands import app
from ftax.cli.ending import run
from ftax.errors import InvalidArgumentError
from ftax.ladders.choice import TaxOptions
from ftax.steps.setting import Setting
from ftax.sweeps.sweep import FULL, QUICK
from ftax.timing.plan import Plan

MEASURING = {"tax", "bench", "compare", "knee", "trace", "ops"}  # one model, now
SEVERAL = {"sweep", "paper"}  # grids: axes of their own, under the same names
# What each option of a group is for, and so which commands have it. A command that is not there has
# a reason: conform times nothing, a trace has no rounds, a knee stops by its own rule, a receipt
# has --throughput, a sweep's records are in its folder, and what a paper runs is the paper's.
TABLE = {
    "--dtype": MEASURING | SEVERAL | {"conform"},
    "--device": MEASURING | SEVERAL | {"conform", "runtimes", "doctor"},
    "--batch": MEASURING | SEVERAL | {"conform"},
    "--sequence": MEASURING | {"sweep", "conform"},
    "--tiny": MEASURING | {"sweep", "conform"},
    "--attention": MEASURING | {"sweep", "conform"},
    "--use-cache": MEASURING | {"sweep", "conform"},
    "--step": MEASURING | {"sweep"},
    "--tokens": MEASURING | {"sweep"},
    "--cache": MEASURING | {"sweep"},
    "--sample": MEASURING | {"sweep"},
    "--optimizer": MEASURING | {"sweep"},
    "--threads": MEASURING | SEVERAL,
    "--no-grad": MEASURING | {"sweep"},
    "--cold": MEASURING | {"sweep"},
    "--transfers": MEASURING | {"sweep"},
    "--set": MEASURING | {"sweep"},
    "--mode": {"bench", "compare"},
    "--warmup": MEASURING - {"trace"} | SEVERAL,
    "--rounds": MEASURING - {"trace"} | SEVERAL,
    "--duration": MEASURING - {"trace"} | SEVERAL | {"check"},
    "--precision": MEASURING - {"trace", "knee"} | SEVERAL,
    "--seed": MEASURING - {"trace"} | SEVERAL,
    "--cpus": MEASURING - {"trace"} | SEVERAL,
    "--patience": MEASURING - {"trace"} | SEVERAL,
    "--json": MEASURING | {"conform"},
    "--csv": MEASURING | SEVERAL | {"conform", "models", "runtimes", "doctor", "show", "check"},
    "--markdown": MEASURING
    | SEVERAL
    | {"conform", "models", "runtimes", "doctor", "show", "check"},
}
COMMANDS = get_command(app).commands


def list_flags(command):
    return {flag: item for item in command.params for flag in item.opts if flag.startswith("--")}


def list_group(group):
    return {
        flag for flag in TABLE if flag[2:].replace("-", "_").replace("set", "settings") in group
    }


@pytest.mark.parametrize("flag", TABLE)
def test_what_exists_for_one_command_exists_for_all_where_it_makes_sense(flag):
    found = {name for name, command in COMMANDS.items() if flag in list_flags(command)}
    assert found == TABLE[flag]


@pytest.mark.parametrize("flag", TABLE)
def test_an_option_has_the_same_words_and_default_wherever_it_is_one_value(flag):
    found = [list_flags(COMMANDS[name])[flag] for name in TABLE[flag] & (MEASURING | {"conform"})]
    assert len({(item.help, tuple(item.opts), item.default) for item in found}) == 1
    assert {item.required for item in found} == {False}


def test_every_option_of_a_group_is_in_the_table():
    groups = (o.make_setting, o.make_plan, o.make_output)
    names = [name for group in groups for name in o._list_options(group)]
    flags = {"--" + name.replace("_", "-").replace("settings", "set") for name in names}
    assert flags == set(TABLE)


def test_an_option_of_a_setting_is_declared_once():
    """As a field of it: what is not of the command line, or has another form there, is named."""
    names = {item.name for item in fields(Setting)} - {"seed", "grad_mode", "runtime_options"}
    assert {*o._list_options(o.make_setting)} == {*names, "no_grad", "settings"}


GIVEN = (
    "--dtype", "fp16", "--device", "cuda", "--batch", "3", "--seq", "5", "--tiny", "--attention",
    "eager", "--use-cache", "--step", "decode", "--tokens", "4", "--cache", "static", "--sample",
    "--threads", "2", "--no-grad", "--cold", "--transfers", "--set",
    "optimization=basic",
)  # fmt: skip
WANTED = Setting(
    dtype="fp16", device="cuda", batch=3, sequence=5, tiny=True, attention="eager", use_cache=True,
    step="decode", tokens=4, cache="static", sample=True,
    threads=2, grad_mode="no_grad", cold=True, transfers=True,
    runtime_options={"optimization": "basic"},
)  # fmt: skip
TIMED = ("--rounds", "7", "--duration", "3", "--patience", "9", "--seed", "4", "--cpus", "0-1")


class Seen(Exception):
    """Ends a command where it would begin to measure."""

    def __init__(self, *arguments, **given):
        super().__init__()
        self.arguments, self.given = arguments, given


def stop(*arguments, **given):
    raise Seen(*arguments, **given)


def see(*command):
    error = CliRunner().invoke(app, command).exception
    if not isinstance(error, Seen):
        raise error
    return error


def check_plan(plan, **usual):
    wanted = {
        "rounds": 7, "duration_s": 3.0, "patience_s": 9.0, "seed": 4, "cpus": (0, 1), **usual,
    }  # fmt: skip
    assert plan == Plan(**wanted)


def test_one_setting_and_one_plan_reach_a_job(monkeypatch):
    monkeypatch.setattr("ftax.sweeps.processes.run_repeatedly", stop)
    (job,) = see("bench", "gpt2", "--mode", "throughput", *GIVEN, *TIMED).arguments
    assert job.setting == WANTED
    check_plan(job.plan, mode="throughput")
    (job,) = see("bench", "gpt2").arguments
    assert (job.setting, job.plan) == (Setting(), Plan())


def test_they_reach_the_sides_of_a_comparison(monkeypatch):
    monkeypatch.setattr("ftax.ladders.verdict.compare_by_turns", stop)
    seen = see("compare", "gpt2", "gpt2:flat:python", *GIVEN, *TIMED)
    sides = seen.arguments[0]
    assert [side.setting for side in sides] == [WANTED, WANTED]
    # Without a runtime it is eager, or a capture where the code gives one.
    assert [(side.runtime, side.host) for side in sides] == [("", "python"), ("flat", "python")]
    assert seen.given["duration_s"] == 3.0  # of all pairs
    check_plan(seen.given["plan"], duration_s=2.0, round_ms=10.0)  # of a side in a pair
    seen = see("compare", "gpt2", "gpt2", "--label", "x", "--label", "y")
    assert [side.label for side in seen.arguments[0]] == ["x", "y"]
    assert (seen.given["duration_s"], seen.given["plan"].rounds) == (55.0, 80)


def test_they_reach_a_receipt_and_a_trace(monkeypatch):
    monkeypatch.setattr("ftax.ladders.tax.tax_with_traces", stop)
    seen = see("tax", "gpt2", "--energy", *GIVEN, *TIMED).given
    assert (seen["setting"], seen["energy"]) == (WANTED, True)
    check_plan(seen["plan"]("cuda:0"))
    usual = see("tax", "gpt2").given
    assert usual["setting"] == Setting()
    assert [usual["plan"](device).duration_s for device in ("cpu", "cuda:0")] == [25.0, 10.0]
    seen = see("ops", "gpt2", *GIVEN, *TIMED).given
    assert seen["setting"] == WANTED
    check_plan(seen["plan"], max_rounds=10)
    monkeypatch.setattr("ftax.ladders.trace.trace", stop)
    assert see("trace", "gpt2", *GIVEN).given["setting"] == WANTED
    assert see("trace", "gpt2").given["setting"] == Setting(dtype="fp16", device="cuda")


def test_they_reach_a_knee(monkeypatch):
    monkeypatch.setattr("ftax.steps.load.load_model", stop)
    assert see("knee", "gpt2", "--over", "heads", *GIVEN).given["setting"] == WANTED
    monkeypatch.undo()
    monkeypatch.setattr("ftax.sweeps.knee.knee", stop)
    seen = see("knee", "bert-1x64", "--threads", "1", *TIMED)
    assert seen.arguments[0].setting.threads == 1
    check_plan(seen.given["plan"], max_rounds=80)
    assert see("knee", "bert-1x64").given["plan"].duration_s == 45.0


def test_they_reach_a_sweep_and_the_paper(monkeypatch):
    monkeypatch.setattr("ftax.sweeps.sweep.run_sweep", stop)
    given = [*GIVEN[:-2], "--tiny"]  # bert's eager has no option to set
    given.remove("--use-cache")
    seen = see("sweep", "--model", "bert-base", *given, *TIMED)
    ((grid,), _), more = seen.arguments, seen.given
    assert (more["threads"], more["seed"]) == (2, 4)
    (cell,) = grid.cells()
    assert (cell.batch, cell.sequence, cell.dtype, cell.device) == (3, 5, "fp16", "cuda")
    assert cell.grad_mode == "no_grad"
    assert cell.step == "decode"
    assert dict(cell.options) == {
        "tiny": True, "attention": "eager", "tokens": 4, "cache": "static", "sample": True,
        "cold": True, "transfers": True,
    }  # fmt: skip
    check_plan(more["plan"], max_rounds=20, round_ms=5.0, target_ratio=1e-6)
    assert see("sweep", "--model", "bert-base", "--quick").given["plan"] == QUICK
    monkeypatch.setattr("ftax.paper.study.run_study", stop)
    seen = see("paper", "fig1", "--device", "cpu", "--no-draw", "--threads", "2", *TIMED).given
    assert (seen["threads"], seen["seed"]) == (2, 4)
    check_plan(seen["plan"], max_rounds=20, round_ms=5.0, target_ratio=1e-6)
    assert see("paper", "fig1", "--device", "cpu", "--no-draw").given["plan"] == FULL


def test_what_was_measured_already_takes_no_setting(tmp_path):
    for option in (("--batch", "8"), ("--duration", "3")):
        with pytest.raises(InvalidArgumentError, match="measured already: leave it out") as caught:
            see("compare", "a.jsonl", "b.jsonl", *option)
        assert str(caught.value).startswith(option[0])


def test_a_grid_file_and_options_of_cells_do_not_go_together(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text('models = "bert-base"')
    with pytest.raises(InvalidArgumentError, match="transfers is given beside"):
        see("sweep", str(path), "--transfers")


def test_nothing_that_a_receipt_holds_is_named_twice():
    assert not set(TaxOptions.__slots__) & set(Setting.__slots__)


# What each command with numbers among its options is given beside them, and what begins its work.
WORK = {
    "tax": (("bert-1x64",), "ftax.ladders.tax.load"),
    "bench": (("bert-1x64",), "ftax.sweeps.processes.run_bench"),
    "compare": (("bert-1x64", "gpt2"), "ftax.sweeps.processes.run_bench"),
    "knee": (("bert-1x64",), "ftax.steps.load.load_model"),
    "sweep": (("--model", "bert-1x64"), "ftax.sweeps.sweep.lock_folder"),
    "trace": (("bert-1x64",), "ftax.ladders.trace._ready_on_gpu"),
    "ops": (("bert-1x64",), "ftax.ladders.tax.load"),
    "paper": (("fig1", "--device", "cpu", "--no-draw"), "ftax.sweeps.sweep.lock_folder"),
    "conform": ((__file__,), "ftax.runtimes.plugins.conform.load"),
    "check": ((), "ftax.steps.revision.check_out"),
}
NUMBERS = [
    (command.name, (option.param_decls or [f"--{name.replace('_', '-')}"])[0], kind)
    for command in app.registered_commands
    for name, parameter in o._list_options(command.callback).items()
    for kind, option in [typing.get_args(parameter.annotation) or (str, None)]
    if {int, float} & {kind, *typing.get_args(kind)}
]


def test_every_command_with_numbers_is_tried():
    assert {command for command, _, _ in NUMBERS} == set(WORK)


@pytest.mark.parametrize(
    ("command", "flag", "kind"), [pytest.param(*item, id=" ".join(item[:2])) for item in NUMBERS]
)
def test_a_number_that_cannot_be_is_refused_before_any_work(
    command, flag, kind, monkeypatch, capsys, tmp_path
):
    """20 digits were a fault of ftax (code 70), or measured for ever."""
    monkeypatch.chdir(tmp_path)
    given, work = WORK[command]
    monkeypatch.setattr(work, stop)
    is_float = float in (kind, *typing.get_args(kind))
    for value in ("99999999999999999999", "-1", *(("nan", "inf", "1e400") if is_float else ())):
        tried = [*given, flag, value]
        if flag == "--tokens":
            tried += ["--step", "decode"]
        assert run(app, [command, *tried]) == 2, value
        said = capsys.readouterr().err.strip().splitlines()[-1]
        assert said.startswith("ftax: ") and re.search("give|should be|range", said), said
        assert flag[2:].replace("-", "_") in said.replace("-", "_"), said
