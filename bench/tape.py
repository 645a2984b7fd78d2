"""What the tape costs per operator, against the fastest ways there are to call the same operators.

A chain of linear, add and layer norm on tensors of four numbers leaves nothing but overhead, so a
difference of latencies divided by the number of operators is a cost per operator. The surprising
choice: the reference is hand-written C++ (`_core.ChainRunner`), which no replay can beat; below it,
a tiny BERT shows the same ways on a model.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ftax import _core
from ftax.errors import FtaxError, RunnerError
from ftax.machines.environment import collect_environment
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.equality import compare_outputs
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.timing.candidate import Candidate, Host
from ftax.timing.differences import compute_difference
from ftax.timing.measurement import Measurement
from ftax.timing.session import Plan, measure, require
from record import Figure, finish, make_parser, progress, run_workers, show

_REPEATS = 50
_WIDTH = 4
_CHAIN: tuple[tuple[str, Host], ...] = (
    ("eager", "python"),
    ("flat", "python"),
    ("eager", "cpp"),
    ("torchscript", "cpp"),
    ("torchscript-frozen", "cpp"),
)
_BERT: tuple[tuple[str, Host], ...] = (
    ("eager", "python"),
    ("flat", "python"),
    ("eager", "cpp"),
    ("torchscript", "cpp"),
    ("onnxruntime", "cpp"),
)
_TITLES = {
    "eager/python": "Python eager",
    "flat/python": "flat Python",
    "eager/cpp": "tape",
    "torchscript/cpp": "TorchScript in C++",
    "torchscript-frozen/cpp": "TorchScript in C++, frozen",
    "hand-written/cpp": "hand-written C++",
    "onnxruntime/cpp": "ONNX Runtime in C++",
}
_ENDS = ("torchscript/cpp", "torchscript-frozen/cpp", "hand-written/cpp")


class Chain(nn.Module):
    """``repeats`` times x = layer_norm(x + linear(x)), the same weights each time."""

    def __init__(self, width: int, repeats: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.shape = (width,)
        self.repeats = repeats

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x with ``width`` numbers in each row."""
        for _ in range(self.repeats):
            x = F.layer_norm(x + self.linear(x), self.shape)
        return x


def prepare_by_hand(workspace: Workspace) -> Candidate:
    """The chain in hand-written C++. Raises RunnerError unless its outputs are eager's."""
    weight, bias = map(workspace.loaded.module.get_parameter, ("linear.weight", "linear.bias"))
    (x,) = workspace.loaded.flat_inputs()
    runner = _core.ChainRunner(x, weight, bias, _REPEATS)
    equality = compare_outputs(workspace.reference, [runner.run()])
    if not equality.bitwise:
        raise RunnerError(f"hand-written C++ is not the chain: {equality.describe()}")
    return Candidate(runtime="hand-written", host="cpp", runner=runner, run=lambda: [runner.run()])


def prepare_all(workspace: Workspace, wanted: Sequence[tuple[str, Host]]) -> list[Candidate]:
    """The runtimes that are to be had; the others are named and left out."""
    prepared = []
    for runtime, host in wanted:
        try:
            prepared.append(find_runtime(runtime).prepare(workspace, host))
        except FtaxError as error:
            progress(f"tape: {runtime}/{host} is left out: {error}")
    return prepared


def describe(measurements: Sequence[Measurement], operators: int) -> dict[str, Any]:
    """Latency of each and its difference from the tape, with intervals from the rounds, in ns."""
    labels = [f"{m.cell.runtime}/{m.cell.host}" for m in measurements]
    tape = labels.index("eager/cpp")
    ways = {}
    for place, (label, measurement) in enumerate(zip(labels, measurements, strict=True)):
        above, interval = compute_difference(measurements, place, tape)
        ways[label] = {
            "latency_ns": measurement.latency_ns,
            "above_tape_ns": above,
            "above_tape_interval_ns": interval if place != tape else None,
        }
    return {"operators": operators, "rounds": len(measurements[0].values_ns), "ways": ways}


def time_model(loaded: LoadedModel, ways: Sequence[tuple[str, Host]], plan: Plan) -> dict[str, Any]:
    """All ways in the same rounds, and hand-written C++ where there is one."""
    workspace = Workspace(loaded)
    prepared = prepare_all(workspace, ways)
    if isinstance(loaded.module, Chain):
        prepared.append(prepare_by_hand(workspace))
    measurements = require(measure(loaded, prepared, plan))
    return describe(measurements, len(workspace.taped.tape.operators))


def work(quick: bool) -> dict[str, Any]:
    """One process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    plan = (
        Plan(rounds=5, round_ms=5.0) if quick else Plan(rounds=160, round_ms=5.0, duration_s=60.0)
    )
    chain = load_model(Chain(_WIDTH, _REPEATS), inputs=torch.randn(1, _WIDTH))
    return {
        "chain": time_model(chain, _CHAIN, plan),
        "bert-base, tiny": time_model(load_model("bert-base", tiny=True), _BERT, plan),
        "environment": collect_environment().to_dict(),
    }


def show_model(outputs: Sequence[dict[str, Any]], model: str, unit: str, divisor: float) -> None:
    """The median over processes of each way, in the unit that ``divisor`` ns make."""
    rows = []
    for label in outputs[0][model]["ways"]:
        found = [output[model]["ways"].get(label) for output in outputs]
        ways = [way for way in found if way is not None]
        middle = sorted(ways, key=lambda way: way["above_tape_ns"])[len(ways) // 2]
        latency = statistics.median(way["latency_ns"] for way in ways) / divisor
        interval = middle["above_tape_interval_ns"]
        ends = "-" if interval is None else " to ".join(f"{end / divisor:+.1f}" for end in interval)
        above = "-" if interval is None else f"{middle['above_tape_ns'] / divisor:+.1f}"
        rows.append((_TITLES[label], f"{latency:.1f}", above, ends))
    operators = outputs[0][model]["operators"]
    show(
        f"{model}: {unit}, {operators} operators, 1 thread",
        ("way", "median", "beyond the tape", "95 % interval (median process)"),
        rows,
    )


def main() -> None:
    """Run the workers, print the tables, save the record."""
    options = make_parser(__doc__).parse_args()
    if options.worker:
        print(json.dumps(work(options.quick)))
        return
    outputs = run_workers(__file__, options)
    operators = outputs[0]["chain"]["operators"]
    show_model(outputs, "chain", "ns per operator", operators)
    show_model(outputs, "bert-base, tiny", "us per inference", 1e3)
    tape_over = {
        end: tuple(-o["chain"]["ways"][end]["above_tape_ns"] / operators for o in outputs)
        for end in _ENDS
    }
    targets = {"torchscript/cpp": 0.0, "torchscript-frozen/cpp": 0.0, "hand-written/cpp": 100.0}
    figures = [
        Figure(
            name=f"tape minus {_TITLES[end]}, per operator",
            values=values,
            unit="ns",
            at_most=targets[end],
        )
        for end, values in tape_over.items()
    ]
    raw = [{key: o[key] for key in ("chain", "bert-base, tiny")} for o in outputs]
    finish(__file__, options, figures, raw=raw, environment=outputs[0]["environment"])


if __name__ == "__main__":
    main()
