"""What every command line tool does: --version, -h, and completion in a shell."""

import pytest
import torch
from typer.testing import CliRunner

import ftax
from ftax.cli.commands import app
from ftax.cli.ending import describe_versions
from support.forks import run_command

COMMANDS = [command.name for command in app.registered_commands]


def test_version_names_ftax_torch_and_python():
    result = run_command("--version")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"ftax {ftax.__version__} (")
    assert f" torch {torch.__version__} (" in result.stdout
    assert " Python 3." in result.stdout


@pytest.mark.parametrize(
    ("with_cuda", "torch_cuda", "said"),
    [
        (False, None, "(CPU build), torch {} (CPU build)"),
        (True, "13.0", "(CUDA 13.0 build), torch {} (CUDA 13.0 build)"),
        (False, "12.8", "(CPU build), torch {} (CUDA 12.8 build)"),
    ],
)
def test_version_tells_ftax_from_torch_where_one_has_cuda(monkeypatch, with_cuda, torch_cuda, said):
    monkeypatch.setattr("ftax._build_info.WITH_CUDA", with_cuda)
    monkeypatch.setattr("ftax._build_info.TORCH_CUDA", torch_cuda)
    monkeypatch.setattr("torch.version.cuda", torch_cuda)
    assert said.format(torch.__version__) in describe_versions()


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_h_is_help(command):
    short, long = (CliRunner().invoke(app, [*command, flag]) for flag in ("-h", "--help"))
    assert short.exit_code == 0
    assert short.output == long.output
    assert "-h" in short.output


def test_a_shell_is_told_what_could_come_next():
    asked = {"_FTAX_COMPLETE": "complete_bash", "COMP_WORDS": "ftax tax --thr", "COMP_CWORD": "2"}
    result = run_command(environment=asked)
    assert (result.returncode, result.stderr) == (0, "")
    assert sorted(result.stdout.split()) == ["--threads", "--throughput"]


def test_the_completion_of_a_shell_can_be_shown(monkeypatch):
    # typer looks which shell started it: under make that is sh, which has no completion.
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    result = CliRunner().invoke(app, ["--show-completion"], prog_name="ftax")
    assert result.exit_code == 0
    assert "complete -o default -F _ftax_completion ftax" in result.stdout
