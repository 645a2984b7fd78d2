"""What the tape costs per operator, against the fastest ways there are to call the same operators.

A chain of linear, add and layer norm on tensors of four numbers leaves nothing but overhead, so a
difference of latencies divided by the number of operators is a cost per operator. The reference is
hand-written C++ (`_core.ChainRunner`), which no replay can beat; below it, a tiny BERT shows the
same ways on a model.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional as F

from ftax import _core
from ftax.errors import FtaxError, RunnerError
from ftax.machines.environment import collect_environment
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.tape.equality import compare_outputs
from ftax.timing.candidate import Candidate, Host
from ftax.timing.differences import compute_difference
from ftax.timing.plan import Plan
from ftax.timing.session import measure, require
from record import figure, finish, make_parser, progress, run_workers, show

_REPEATS, _WIDTH = 50, 4
_BERT = "bert-base, tiny"
_TITLES = {
    "eager/python": "Python eager",
    "flat/python": "flat Python",
    "eager/cpp": "tape",
    "torchscript/cpp": "TorchScript in C++",
    "torchscript-frozen/cpp": "TorchScript in C++, frozen",
    "onnxruntime/cpp": "ONNX Runtime in C++",
    "hand-written/cpp": "hand-written C++",
}
_LEFT_OUT = {"chain": "onnxruntime/cpp", _BERT: "torchscript-frozen/cpp"}
# What the tape may cost beyond each of them, ns per operator.
_LIMITS_NS = {"torchscript/cpp": 0.0, "torchscript-frozen/cpp": 0.0, "hand-written/cpp": 100.0}


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


def prepare_all(workspace: Workspace, left_out: str) -> list[Candidate]:
    """The runtimes that are to be had; the others are named and left out."""
    prepared = []
    for label in _TITLES:
        runtime, host = label.split("/")
        if label == left_out or runtime == "hand-written":
            continue
        try:
            prepared.append(find_runtime(runtime).prepare(workspace, cast("Host", host)))
        except FtaxError as error:
            progress(f"tape: {label} is left out: {error}")
    if isinstance(workspace.loaded.module, Chain):
        prepared.append(prepare_by_hand(workspace))
    return prepared


def time_model(name: str, loaded: LoadedModel, plan: Plan) -> dict[str, Any]:
    """All ways in the same rounds: latency of each and what it has above the tape, ns, with the
    interval from the rounds."""
    workspace = Workspace(loaded)
    prepared = prepare_all(workspace, _LEFT_OUT[name])
    measurements = require(measure(loaded, prepared, plan))
    labels = [str(measurement.place) for measurement in measurements]
    tape = labels.index("eager/cpp")
    ways = {}
    for place, (label, measurement) in enumerate(zip(labels, measurements, strict=True)):
        above_ns, interval = compute_difference(measurements, place, tape)
        ways[label] = {
            "latency_ns": measurement.latency_ns, "above_tape_ns": above_ns,
            "above_tape_interval_ns": None if place == tape else interval,
        }  # fmt: skip
    return {"operators": len(workspace.taped.tape.operators), "ways": ways}


def work(quick: bool) -> dict[str, Any]:
    """One process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    plan = Plan(rounds=5 if quick else 160, round_ms=5.0, duration_s=60.0)
    chain = load_model(Chain(_WIDTH, _REPEATS), inputs=torch.randn(1, _WIDTH))
    return {
        "chain": time_model("chain", chain, plan),
        _BERT: time_model(_BERT, load_model("bert-base", tiny=True), plan),
        "environment": collect_environment().to_dict(),
    }


def make_rows(
    outputs: Sequence[dict[str, Any]], model: str, divisor: float
) -> list[tuple[str, ...]]:
    """The median process of each way, in the unit that ``divisor`` ns make."""
    rows: list[tuple[str, ...]] = []
    for label in outputs[0][model]["ways"]:
        ways = [output[model]["ways"][label] for output in outputs]
        middle = sorted(ways, key=lambda way: way["above_tape_ns"])[len(ways) // 2]
        latency = statistics.median(way["latency_ns"] for way in ways) / divisor
        ends = " to ".join(f"{e / divisor:+.1f}" for e in middle["above_tape_interval_ns"] or ())
        above = f"{middle['above_tape_ns'] / divisor:+.1f}"
        rows.append((model, _TITLES[label], f"{latency:.1f}", above, ends))
    return rows


def main() -> None:
    """Run the workers, print the table, save the record."""
    options = make_parser(__doc__).parse_args()
    if options.worker:
        print(json.dumps(work(options.quick)))
        return
    outputs = run_workers(__file__, options)
    operators = outputs[0]["chain"]["operators"]
    rows = [*make_rows(outputs, "chain", operators), *make_rows(outputs, _BERT, 1e3)]
    columns = ("model", "way", "median", "beyond the tape", "95 % interval (median process)")
    title = f"chain: ns per operator, {operators} of them; BERT: us per inference; 1 thread"
    show(title, columns, rows, left=2)
    figures = [
        figure(
            f"tape minus {_TITLES[label]}, per operator",
            (-o["chain"]["ways"][label]["above_tape_ns"] / operators for o in outputs),
            "ns",
            at_most=limit,
        )
        for label, limit in _LIMITS_NS.items()
    ]
    raw = [{key: o[key] for key in ("chain", _BERT)} for o in outputs]
    finish(__file__, options, figures, raw=raw, environment=outputs[0]["environment"])


if __name__ == "__main__":
    main()
