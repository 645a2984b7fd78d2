"""How the command ends: 1 is an answer of `ftax compare`, and nothing else ends with it."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from support.forks import run_command, run_python

COMMAND = (sys.executable, "-m", "ftax")
ENVIRONMENT = {**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"}


def fail(statement):
    """The code of `ftax models`, in which the table is made by ``statement``."""
    return textwrap.dedent(f"""
        import sys
        import ftax.reports.tables.models_table as place
        from ftax.cli import main

        def list_rows(*, full):
            {statement}

        place.list_rows = list_rows
        sys.argv = ["ftax", "models"]
        main()
    """)


def run_failing(statement, **environment):
    return run_python(fail(statement), environment={"COLUMNS": "200", **environment})


@pytest.mark.parametrize(
    ("statement", "code", "said"),
    [
        ("raise KeyError('[/red]\\x1b[2J')", 70, r"fault of ftax: KeyError: '[/red]\x1b[2J'"),
        ("raise ValueError('[/red]\\x1b[2J')", 70, r"fault of ftax: ValueError: [/red]\x1b[2J"),
        ("list_rows(full=full)", 70, "RecursionError"),
        ("sys.exit(1)", 70, "SystemExit: 1"),
        ("raise MemoryError", 4, "ftax: out of memory; choose a smaller batch"),
        ("raise KeyboardInterrupt", 130, "ftax: interrupted"),
        ("raise BrokenPipeError(32, 'to a worker')", 70, "BrokenPipeError: [Errno 32] to a worker"),
        ("raise PermissionError(13, 'Denied', 'there')", 2, "ftax: there: Denied; choose a path"),
        ("import warnings; warnings.warn('[/x]\\x1b[2J'); 1 / 0", 70, r"UserWarning: [/x]\x1b[2J"),
        ("raise ExceptionGroup('several', [KeyError(1)])", 70, "several"),
    ],
)
def test_no_error_ends_with_the_code_that_means_slower(statement, code, said):
    result = run_failing(statement)
    assert (result.returncode, said in result.stderr) == (code, True), result.stderr
    assert "Traceback" not in result.stderr
    assert "\x1b" not in result.stderr


def test_a_fault_of_ftax_says_what_where_with_what_and_how_to_see_more():
    result = run_failing("import ftax.steps.zoo.registry as m; m.list_models(1, 2, 3)")
    assert "TypeError: list_models() takes" in result.stderr
    assert "in ftax/reports/tables/models_table.py, line " in result.stderr
    assert "ftax 0" in result.stderr and "torch 2" in result.stderr and "Python 3" in result.stderr
    assert "please report it" in result.stderr
    assert len(result.stderr.splitlines()) == 4
    in_full = run_failing("1 / 0", FTAX_TRACEBACK="1")
    assert in_full.returncode == 70
    assert "Traceback (most recent call last)" in in_full.stderr


def test_an_error_of_the_model_is_shown_in_full_where_that_is_asked_for():
    statement = "from ftax.errors import RunnerError; raise RunnerError('of a model')"
    assert run_failing(statement).stderr == "ftax: of a model\n"
    in_full = run_failing(statement, FTAX_TRACEBACK="1")
    assert in_full.returncode == 4
    assert "ftax: of a model\nTraceback (most recent call last)" in in_full.stderr


def test_what_to_give_is_named_as_the_command_takes_it():
    said = "give device='cpu', or on_host_read='check'"
    result = run_failing(f'from ftax.errors import RunnerError; raise RunnerError("{said}")')
    assert result.stderr == "ftax: give --device cpu, or on_host_read='check'\n"


def test_the_help_names_the_codes():
    said = " ".join(run_command("--help", environment={"COLUMNS": "200"}).stdout.split())
    assert "0 done" in said and "70 a fault of ftax" in said and "FTAX_TRACEBACK=1" in said


@pytest.mark.parametrize("arguments", [["models"], ["--help"], ["tax", "--help"]])
def test_a_reader_that_leaves_ends_the_command_without_a_word(arguments):
    reading, writing = os.pipe()
    os.close(reading)
    result = subprocess.run(
        [*COMMAND, *arguments], stdout=writing, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False
    )
    os.close(writing)
    assert (result.returncode, result.stderr) == (128 + signal.SIGPIPE, b"")


def test_an_error_that_cannot_be_told_still_ends_with_its_code():
    mute = "raise type('Mute', (Exception,), {'__str__': lambda self: 1 / 0})()"
    result = run_failing(mute)
    assert (result.returncode, "a fault of ftax: Mute\n" in result.stderr) == (70, True)
    with open("/dev/full", "wb") as full:
        unheard = subprocess.run([*COMMAND, "nosuch"], stderr=full, env=ENVIRONMENT, check=False)
    assert unheard.returncode == 2


def test_output_that_cannot_be_written_is_said():
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [*COMMAND, "models"], stdout=full, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False
        )
    assert result.returncode == 2
    assert b"the output: No space left on device" in result.stderr


def test_a_closed_standard_output_is_no_place_for_another_file(tmp_path):
    """Its number would be the next file's, and what a library prints would go into results."""
    path = tmp_path / "results.jsonl"
    opened = f"import os; os.open({str(path)!r}, os.O_CREAT | os.O_WRONLY)"
    code = fail(f"{opened}; os.write(1, b'a library prints'); raise KeyError('done')")
    result = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", code],
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        check=False,
    )
    assert (result.returncode, b"KeyError: 'done'" in result.stderr) == (70, True)
    assert path.read_bytes() == b""


def run_beside(folder, torch, *command):
    """Python beside a package of the name of torch, which is this code."""
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(torch)
    environment = {**ENVIRONMENT, "PYTHONPATH": f"{folder}"}
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=environment, check=False
    )


@pytest.mark.parametrize(
    ("statement", "code", "said"),
    [
        ("raise ImportError('another torch')", 3, "ftax: another torch\n"),
        ("raise KeyboardInterrupt", 130, ""),
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        ("-m", "ftax", "compare", "a.jsonl", "b.jsonl"),
        ("-c", "import sys; sys.argv[0] = '/bin/ftax'; from ftax.cli import main; main()"),
    ],
)
def test_another_torch_is_no_slower_model(command, statement, code, said, tmp_path):
    """What is wrong with the build is told while `import ftax` fails, and Ctrl-C comes then too."""
    result = run_beside(tmp_path, statement, *command)
    assert (result.returncode, result.stderr) == (code, said)


def test_a_program_that_imports_ftax_still_gets_the_error(tmp_path):
    result = run_beside(tmp_path, "raise ImportError('another torch')", "-c", "import ftax")
    assert result.returncode == 1
    assert "ImportError: another torch" in result.stderr


def test_wrong_usage_is_one_sentence_without_anything_that_commands_a_terminal():
    for argument in ("--n\x1b[2Jo", "\x1b[2J[/x]"):
        result = run_command("tax", "gpt2", argument)
        assert result.returncode == 2
        assert r"\x1b[2J" in result.stderr and "\x1b" not in result.stderr
        assert result.stderr.count("\n") == 1


def test_csv_and_markdown_together_are_refused_before_anything_is_measured():
    result = run_command("bench", "no-such-model", "--csv", "--markdown")
    assert (result.returncode, "not both" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    "size", [{"COLUMNS": "0"}, {"COLUMNS": "1"}, {"TERM": "dumb"}, {"LINES": "0"}]
)
@pytest.mark.parametrize("arguments", [("runtimes",), ("tax", "--help"), ("no-such-command",)])
def test_a_size_that_no_terminal_has_changes_nothing(arguments, size):
    wanted = run_command(*arguments, environment={"COLUMNS": "80", "LINES": "25"})
    found = run_command(*arguments, environment={"COLUMNS": "", **size})
    assert (found.stdout, found.stderr) == (wanted.stdout, wanted.stderr)
    assert len(wanted.stdout + wanted.stderr) > 50
