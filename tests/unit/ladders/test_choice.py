"""Which alternatives a receipt holds, what it says of the rest, and the errors it keeps."""

from pathlib import Path

import pytest
import torch

import ftax
from ftax import InvalidArgumentError, UnavailableError, UnsupportedError
from ftax.errors import tell_in_full
from ftax.ladders.choice import choose_alternatives, list_slower
from ftax.ladders.ladder import EAGER
from ftax.runtimes.catalogue import list_runtimes
from ftax.runtimes.spec import RuntimeSpec
from ftax.timing.plan import Plan
from support.records import make_measurement
from support.small_models import load_function

QUICK = Plan(rounds=3, warmup=2, round_ms=1.0)
RESULTS = Path(__file__).parents[3] / "bench" / "results"


def test_available_are_those_without_an_obstacle(monkeypatch):
    monkeypatch.setattr(
        RuntimeSpec,
        "find_obstacle",
        lambda self, *, host, device, kind: "no" if self.name == "torchscript" else None,
    )
    chosen = choose_alternatives("available", "cpu")
    assert ("torchscript-frozen", "cpp") in chosen and ("torchscript", "cpp") not in chosen
    assert ("torchscript", "cpp") in choose_alternatives("all", "cpu")


def test_quick_are_the_plain_ones_that_can_run_here(monkeypatch):
    monkeypatch.setattr(
        RuntimeSpec,
        "find_obstacle",
        lambda self, *, host, device, kind: "no" if self.name == "torchscript-frozen" else None,
    )
    quick = {name for name, _ in choose_alternatives("quick", "cpu")}
    assert quick == {
        *("capture", "eager-one-thread", "onnxruntime", "onnxruntime-run", "torchscript")
    }
    on_gpu = choose_alternatives("quick", "cuda")
    assert ("onnxruntime-cuda-graph", "cpp") in on_gpu and set(on_gpu) < set(
        choose_alternatives("available", "cuda")
    )
    everything = {name for name, _ in choose_alternatives("available", "cpu")}
    added = set(list_slower("cpu"))
    assert "compile" in added and "compile-reduce-overhead" in list_slower("cuda:0")
    assert added == everything - quick


def test_all_has_every_host_but_no_rung_and_on_a_cpu_no_cuda_runtime():
    on_gpu, on_cpu = (choose_alternatives("all", device) for device in ("cuda", "cpu"))
    assert ("cuda-graph", "python") in on_gpu
    assert not {name for name, _ in on_gpu} & {"flat", "launch-replay", "eager"}
    assert not set(on_gpu) & set(EAGER.places)
    cuda_only = {spec.name for spec in list_runtimes() if "cpu" not in spec.devices}
    assert cuda_only and not cuda_only & {name for name, _ in on_cpu}
    assert {host for _, host in choose_alternatives("all", "cuda", ("cpp",))} == {"cpp"}


@pytest.mark.parametrize(("names", "hosts"), [([], ("cpp",)), (["torchscipt"], ("cpp",)),
                                              ("all", ("rust",))])  # fmt: skip
def test_what_is_no_choice_is_refused(names, hosts):
    with pytest.raises(InvalidArgumentError):
        choose_alternatives(names, "cpu", hosts)


def test_a_runtime_that_fails_leaves_its_reason_and_its_whole_error(monkeypatch):
    def fail(workspace, host):
        try:
            raise ValueError("the graph broke at /home/someone/models/bert.py")
        except ValueError as error:
            raise UnsupportedError("torch.jit.trace cannot trace f: the graph broke") from error

    monkeypatch.setattr("ftax.runtimes.compilers.torchscript.prepare_torchscript", fail)
    receipt = ftax.tax(
        load_function(torch.exp), runtimes=["torchscript", "torchscript-frozen"], plan=QUICK
    )
    assert [item.runtime for item in receipt.unavailable] == ["torchscript"] * 2
    reason, error = receipt.unavailable[0].reason, receipt.unavailable[0].error
    assert reason == "torch.jit.trace cannot trace f: the graph broke"
    assert "ValueError: the graph broke at bert.py" in error
    assert 'File "test_choice.py"' in error and "/home" not in error
    assert {row.measurement.cell.runtime for row in receipt.alternatives} == {"torchscript-frozen"}


def test_a_very_long_error_keeps_its_ends():
    text = tell_in_full(UnavailableError("begin " + "x" * 50_000 + " end; see https://a.org/b/c"))
    assert len(text) < 21_000
    assert "begin" in text and text.endswith("https://a.org/b/c")
    assert "characters left out" in text


def test_throughput_is_measured_for_each_runtime_if_asked_for(tmp_path):
    receipt = ftax.tax(
        load_function(torch.exp), runtimes=["torchscript"], hosts=["cpp"], plan=QUICK,
        throughput=True, operators=False,
    )  # fmt: skip
    assert len(receipt.throughputs) == len(receipt.rungs) + len(receipt.others)
    assert all(item.mode == "throughput" for item in receipt.throughputs)
    rates = {row.measurement.place: row.examples_per_s for row in receipt.runtimes}
    for item in receipt.throughputs:  # beside busy neighbours some may be in doubt
        assert item.doubt if rates[item.place] is None else rates[item.place] > 0
    receipt.save(tmp_path / "r.jsonl")
    (loaded,) = ftax.Receipt.load(tmp_path / "r.jsonl")
    assert loaded.runtimes == receipt.runtimes
    with pytest.raises(InvalidArgumentError, match="mode 'latency'"):
        ftax.Receipt(rungs=receipt.rungs, throughputs=receipt.rungs)


def make_hosts(python_ns, cpp_ns):
    return ftax.HostComparison(
        python=make_measurement(python_ns), cpp=make_measurement(cpp_ns, host="cpp")
    )


def test_the_cost_of_a_host_is_paired_and_unpacks(tmp_path):
    found = make_hosts([1000, 1010, 990, 1000, 1000], [400, 410, 390, 400, 400])
    python, cpp = found
    assert (python.cell.host, cpp.cell.host) == ("python", "cpp")
    assert found.overhead_ns == pytest.approx(600.0)
    assert found.interval_ns == pytest.approx((600.0, 600.0))
    assert found.describe() == (
        "Calling eager on mlp from Python costs 600 ns of 1 us (60.0%; 600 to 600 ns)."
    )
    assert found.describe() in " ".join(str(found).split())
    found.save(tmp_path / "hosts.jsonl")
    assert ftax.read_records(tmp_path / "hosts.jsonl").records == (found,)


def test_a_host_that_costs_nothing_for_certain_is_said_so():
    assert (
        "is not resolved"
        in make_hosts([100, 140, 90, 120, 110], [120, 90, 140, 110, 100]).describe()
    )
    assert make_hosts([400] * 5, [500] * 5).describe().startswith("C++ is slower than")


def test_measurements_of_other_rounds_are_no_comparison_of_hosts():
    with pytest.raises(InvalidArgumentError, match="from the same rounds"):
        make_hosts([1, 2, 3], [1, 2])
    with pytest.raises(InvalidArgumentError, match="from the same rounds"):
        ftax.HostComparison(python=make_measurement([1, 2]), cpp=make_measurement([1, 2]))
