"""The environment: machines described by files, torch's switches, checkouts."""

import getpass
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch

import ftax
from ftax import _build_info
from ftax.errors import InvalidArgumentError
from ftax.machines import environment
from ftax.machines import host as host_module
from ftax.machines.environment import (
    Environment,
    collect_environment,
    collect_settings,
    collect_source,
    read_commit,
)
from ftax.machines.host import Condition, collect_condition, collect_host

CPUINFO = """\
processor\t: {cpu}
model name\t: Fictional 9000
cpu MHz\t\t: {mhz}
flags\t\t: fpu vme {flags}
"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine of one core with two threads, described by files; returns a writer of more."""

    def describe(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    monkeypatch.setattr(host_module, "SYSTEM_ROOT", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr("ftax.machines.host._find_hypervisor", lambda: None)
    describe(
        "proc/cpuinfo",
        "\n".join(CPUINFO.format(cpu=cpu, mhz=2000.5 + cpu, flags="") for cpu in range(3)),
    )
    describe("proc/stat", "cpu  10 20 30 40 50 60 70 80 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n")
    for cpu in range(2):
        directory = f"sys/devices/system/cpu/cpu{cpu}"
        describe(f"{directory}/topology/thread_siblings_list", "0-1\n")
        describe(f"{directory}/cpufreq/scaling_governor", "performance\n")
    describe("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_min_freq", "400000\n")
    describe("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3500000\n")
    describe("sys/devices/system/cpu/smt/active", "1\n")
    return describe


def test_the_host_is_what_its_files_say(machine):
    host = collect_host()
    assert host.cpu_model == "Fictional 9000"
    assert (host.usable_cpus, host.physical_cores, host.smt) == (2, 1, True)
    assert host.governor == "performance"
    assert (host.min_frequency_hz, host.max_frequency_hz) == (400_000_000, 3_500_000_000)
    assert (host.virtualised, host.hypervisor) == (False, None)


def test_differing_governors_are_all_named(machine):
    machine("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n")
    assert collect_host().governor == "performance+powersave"


def test_a_guest_is_recognised_by_the_cpu_flag_or_by_its_hypervisor(machine, monkeypatch):
    machine("proc/cpuinfo", CPUINFO.format(cpu=0, mhz=1, flags="hypervisor"))
    assert collect_host().virtualised is True
    machine("proc/cpuinfo", "processor: 0\nCPU architecture: 8\n")
    assert collect_host().virtualised is None  # an Arm CPU has no such flag
    monkeypatch.setattr("ftax.machines.host._find_hypervisor", lambda: "KVM")
    assert collect_host().virtualised is True


def test_a_system_that_says_nothing_gives_unknowns_and_no_error(tmp_path, monkeypatch):
    monkeypatch.setattr(host_module, "SYSTEM_ROOT", tmp_path)
    host, condition = collect_host(), collect_condition()
    for value in (host.governor, host.physical_cores, host.smt, host.max_frequency_hz):
        assert value is None
    assert (condition.steal_ticks, condition.cpu_low_mhz, condition.cpu_high_mhz) == (None,) * 3


def test_the_condition_has_steal_time_and_the_clocks_of_usable_cpus_only(machine):
    condition = collect_condition()
    assert condition.steal_ticks == 80
    assert (condition.cpu_low_mhz, condition.cpu_high_mhz) == (2000.5, 2001.5)
    assert condition.ticks_hz == os.sysconf("SC_CLK_TCK")
    age = datetime.now(UTC) - datetime.fromisoformat(condition.utc)
    assert 0 <= age.total_seconds() < 60


@pytest.mark.parametrize("utc", ["yesterday", "2026-01-31T12:00:00", "2026-01-31T12:00:00+01:00"])
def test_a_time_that_is_not_utc_is_refused(utc):
    fields = collect_condition().to_dict()
    with pytest.raises(InvalidArgumentError, match=r"Condition\.utc"):
        Condition(**{**fields, "utc": utc})


def test_an_environment_comes_back_from_json_unchanged():
    environment = collect_environment()
    assert Environment.from_dict(json.loads(json.dumps(environment.to_dict()))) == environment


def test_versions_are_those_of_the_running_process():
    software = collect_environment().software
    assert software.python == ".".join(str(part) for part in sys.version_info[:3])
    assert software.torch == str(torch.__version__)
    assert software.numpy == __import__("numpy").__version__
    assert software.parallel_backend in ("OpenMP", "native thread pool")
    assert collect_environment().source.ftax == ftax.__version__


def test_switches_are_read_anew_each_time(monkeypatch):
    before = collect_environment().settings
    cuda = torch.backends.cuda
    try:
        torch.use_deterministic_algorithms(True)
        cuda.enable_flash_sdp(False)
        torch.backends.cudnn.benchmark = True
        with torch.inference_mode():
            changed = collect_environment().settings
    finally:
        torch.use_deterministic_algorithms(False)
        cuda.enable_flash_sdp(True)
        torch.backends.cudnn.benchmark = False
    assert (before.deterministic_algorithms, changed.deterministic_algorithms) == (False, True)
    assert (before.cudnn_benchmark, changed.cudnn_benchmark) == (False, True)
    assert (before.inference_mode, changed.inference_mode) == (False, True)
    assert (before.grad_enabled, changed.grad_enabled) == (True, False)
    assert set(before.sdpa_backends) - set(changed.sdpa_backends) == {"flash"}
    assert collect_environment().settings == before


OLD_SWITCHES = torch.__version__ < "2.9"


@pytest.mark.skipif(not OLD_SWITCHES, reason="this torch has the new names")
def test_the_old_switches_are_read_under_the_new_names():
    before = collect_settings()
    try:
        torch.backends.cuda.matmul.allow_tf32 = True
        changed = collect_settings()
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    assert (before.matmul_fp32_precision, changed.matmul_fp32_precision) == ("ieee", "tf32")
    assert changed.conv_fp32_precision == "tf32"  # on unless switched off


@pytest.mark.skipif(OLD_SWITCHES, reason="this torch has the old names alone")
def test_a_precision_set_through_both_of_torchs_interfaces_is_still_readable():
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        settings = collect_settings()
    finally:
        torch.backends.cuda.matmul.fp32_precision = "none"
    assert settings.matmul_fp32_precision == "tf32"
    assert settings.float32_matmul_precision is None


def test_variables_are_recorded_without_paths_and_others_not_at_all(monkeypatch):
    for name, value in {
        "OMP_NUM_THREADS": "2",
        "KMP_AFFINITY": "granularity=fine",
        "PYTHONHASHSEED": "0",
        "OMP_TOOL_LIBRARIES": "/home/somebody/tool.so",
        "MY_PASSWORD": "secret",
    }.items():
        monkeypatch.setenv(name, value)
    variables = collect_settings().variables
    assert variables["OMP_NUM_THREADS"] == "2"
    assert variables["KMP_AFFINITY"] == "granularity=fine"
    assert variables["PYTHONHASHSEED"] == "0"
    assert variables["OMP_TOOL_LIBRARIES"] == "(set; the value holds a path)"
    assert "MY_PASSWORD" not in variables


def list_texts(value):
    if isinstance(value, dict):
        return [text for item in value.values() for text in list_texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in list_texts(item)]
    return [value] if isinstance(value, str) else []


def test_nothing_tells_whose_machine_it_was():
    texts = list_texts(collect_environment().to_dict())
    assert len(texts) > 10
    for text in texts:
        assert text not in (platform.node(), getpass.getuser())
        assert not re.search(r"(^|[\s=:])/\w", text), text
        assert str(Path.home()) not in text


def test_what_cannot_change_is_read_once(monkeypatch):
    first = collect_environment()

    def refuse(*args, **kwargs):
        raise AssertionError("a process was started again")

    monkeypatch.setattr(subprocess, "run", refuse)
    assert collect_environment().source is first.source


needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "a.py").write_text("1\n")
    run_git(tmp_path, "init", "-q")
    run_git(tmp_path, "add", ".")
    return tmp_path


def run_git(directory, *words):
    identity = ["-c", "user.name=Nobody", "-c", "user.email=nobody@example.org"]
    command = ["git", *identity, "-c", "commit.gpgsign=false", *words]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@needs_git
def test_a_checkout_has_its_commit_and_is_dirty_while_its_sources_differ(checkout):
    assert read_commit(checkout) == (None, None)  # nothing is committed yet
    run_git(checkout, "commit", "-q", "-m", "first")
    commit = run_git(checkout, "rev-parse", "HEAD")
    assert read_commit(checkout) == (commit, False)
    (checkout / "notes.txt").write_text("no source\n")
    assert read_commit(checkout) == (commit, False)
    (checkout / "python" / "new.py").write_text("2\n")
    assert read_commit(checkout) == (commit, True)
    (checkout / "python" / "new.py").unlink()
    (checkout / "python" / "a.py").write_text("3\n")
    assert read_commit(checkout) == (commit, True)


@needs_git
def test_a_package_inside_a_checkout_of_another_project_has_no_commit(checkout):
    run_git(checkout, "commit", "-q", "-m", "first")
    inside = checkout / "venv" / "lib" / "python3.11"
    inside.mkdir(parents=True)
    assert read_commit(inside) == (None, None)


@pytest.fixture
def collect_source_again():
    collect_source.cache_clear()
    yield collect_source
    collect_source.cache_clear()


def test_an_installed_ftax_names_the_commit_that_it_was_built_from(
    monkeypatch, collect_source_again
):
    monkeypatch.setattr(environment, "read_commit", lambda checkout: (None, None))
    monkeypatch.setattr(_build_info, "SOURCE_COMMIT", "abc")
    monkeypatch.setattr(_build_info, "SOURCE_DIRTY", True)
    found = collect_source_again()
    assert (found.commit, found.dirty) == ("abc", True)


@needs_git
def test_a_build_finds_its_commit_unless_it_is_told(checkout):
    cmake = shutil.which("cmake", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    script = checkout / "show.cmake"
    module = Path(__file__).parents[3] / "cmake" / "FtaxSource.cmake"
    script.write_text(f'include({module})\nmessage("[${{FTAX_COMMIT}}] ${{FTAX_DIRTY}}")\n')

    def ask(*options):
        command = [cmake, *options, "-P", script]
        done = subprocess.run(
            command,
            cwd=checkout,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stderr.strip()

    assert ask() == "[] OFF"  # nothing is committed yet
    run_git(checkout, "commit", "-q", "-m", "first")
    assert ask() == f"[{run_git(checkout, 'rev-parse', 'HEAD')}] OFF"
    (checkout / "python" / "a.py").write_text("3\n")
    assert ask() == f"[{run_git(checkout, 'rev-parse', 'HEAD')}] ON"
    assert ask("-DFTAX_SOURCE_COMMIT=told") == "[told] OFF"
