"""ftax.toml: what it says, and how a wrong one is refused."""

import pytest

from ftax.budgets.budget_file import read_budget_file
from ftax.errors import InvalidArgumentError

TEXT = """
[steps.forward]
step = "my_package.model:make"

[steps.decode]
step = "llama-160m"
tiny = true
allow = ["stopping.py"]
budget = {host_reads = 0, python_calls = "any", operators = "2.5%", latency = "5 %"}
"""


def read(folder, text):
    path = folder / "ftax.toml"
    path.write_text(text)
    return read_budget_file(path)


def test_steps_with_their_settings_and_budgets(tmp_path):
    found = read(tmp_path, TEXT)
    forward, decode = found.choose([])
    assert (forward.step, forward.setting.chosen, dict(forward.budget.most)) == (
        "my_package.model:make", {}, {},
    )  # fmt: skip
    assert decode.setting.tiny
    assert dict(decode.budget.most) == {"host_reads": 0, "python_calls": None}
    assert dict(decode.budget.more) == {"operators": 0.025, "latency": 0.05}
    assert decode.budget.allow == ("stopping.py",)
    assert found.find_baseline(decode) == tmp_path / "ftax_baselines" / "decode.txt"
    assert found.choose(["decode"]) == [decode]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it has no steps; write"),
        ("steps = 1", "it has no steps; write"),
        ("[step.a]\nstep = 'm:make'", "unknown table 'step'"),
        ("[steps.a]", "steps.a names no step"),
        ("[steps.a]\nstep = 1", "steps.a names no step"),
        ("[steps.a]\nstep = 'm:make'\nbudgets = {}", "steps.a: unknown option 'budgets'"),
        ("[steps.a]\nstep = 'm:make'\nbudget = 3", "budget is a table"),
        ("[steps.a]\nstep = 'm:make'\nbudget = {operator = 3}", "'operator' is not counted"),
        ("[steps.a]\nstep = 'm:make'\nbudget = {operators = -1}", "operators is -1"),
        ("[steps.a]\nstep = 'm:make'\nbudget = {operators = true}", "operators is True"),
        (
            "[steps.a]\nstep = 'm:make'\nbudget = {latency = '200 us'}",
            "latency is '200 us': give how",
        ),
        ("[steps.a]\nstep = 'm:make'\nbudget = {latency = 200}", "latency is 200: give how much"),
        ("[steps.a]\nstep = 'm:make'\nbudget = {latency = '0.5 %'}", 'give "1 %" or more'),
        ("[steps.a]\nstep = 'm:make'\nbudget = {instructions = '1 %'}", "is in no baseline"),
        ("[steps.a]\nstep = 'm:make'\nbudget = {operators = 'x %'}", "operators is 'x %'"),
        ("[steps.a]\nstep = 'm:make'\nallow = [3]", "allow has 3"),
        ("[steps.a]\nstep = 'm:make'\ndevice = 'tpu'", "steps.a: device is 'tpu'"),
        ("[steps.'../a']\nstep = 'm:make'", "a step is called '../a'"),
        ("[steps", "is not TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, said):
    with pytest.raises(InvalidArgumentError) as error:
        read(tmp_path, text)
    assert "ftax.toml" in str(error.value)
    assert said in str(error.value)


def test_a_file_or_a_step_that_is_not_there(tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"there is no .*ftax.toml: write one"):
        read_budget_file(tmp_path / "ftax.toml")
    with pytest.raises(InvalidArgumentError, match="did you mean 'decode'"):
        read(tmp_path, TEXT).choose(["decodes"])
