"""`ftax.capture` over the zoo, a training step and decoding: what is captured, what is equal, what
it gives back.

Models: captured, held against eager on three fresh inputs, and timed in the rounds of a receipt.
Training: a hundred steps with a schedule, beside the same steps of eager. Decoding: tokens of a
loop around a captured step against those of the loop alone. A refusal is a result, and its reason
is the record's.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

import ftax
from ftax.captures.captured import Captured
from ftax.errors import FtaxError, describe
from ftax.runtimes.candidates import drive_python
from ftax.runtimes.catalogue import find_runtime
from ftax.runtimes.workspace import Workspace
from ftax.steps.inputs import INPUT_STREAM, make_generator
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import call_model, flatten_outputs
from ftax.steps.prompt import name_cache
from ftax.steps.tensors import same_bytes
from ftax.steps.zoo.registry import list_models
from ftax.timing.candidate import Candidate, Preparation
from ftax.timing.checks import Checks
from ftax.timing.session import measure
from record import Figure, add_part_options, figure, make_parser, run_parts

_TIMED = (
    "bert-base", "resnet-50", "gpt2", "vit-b-16", "distilbert", "bert-large", "llama-160m",
    "squeezenet", "albert", "wav2vec2", "vgg16", "densenet121",
)  # fmt: skip
_FRESH = 3  # inputs that a capture is held against
_STEPS = 100  # of training
_TOKENS = 256
_LOOKS = 50  # at guards


def capture_model(name: str, dtype: Any, options: argparse.Namespace) -> dict[str, Any]:
    """One model of the zoo: captured or refused, and equal or not."""
    loaded = ftax.load_model(name, tiny=options.tiny, device=options.device, dtype=dtype)
    with torch.inference_mode():
        start = time.perf_counter()
        captured = try_to_capture(loaded)
        if isinstance(captured, dict):
            return captured
        seconds = time.perf_counter() - start
        different = sum(not is_equal(captured, loaded, seed) for seed in range(1, _FRESH + 1))
        facts = captured.explain().programs[0]
        found = {
            "captured": True,
            "checks_reads": bool(facts.checked),
            "seconds": seconds,
            "different": different,
            "operators": facts.operators,
            "guards": len(facts.guarded),
            "guards_ns": time_guards(captured),
            "memory_bytes": captured.memory_bytes,
        }
    captured.close()
    return found


def try_to_capture(loaded: LoadedModel) -> Captured | dict[str, Any]:
    """With numbers that are read refused, or else compared; or why neither is to be had."""
    given = (loaded.args, dict(loaded.kwargs))
    reasons = []
    for way in ("refuse", "check"):
        try:
            return ftax.capture(loaded.module, given, on_host_read=way)
        except FtaxError as error:
            reasons.append(describe(error))
    return {"captured": False, "reasons": reasons}


def is_equal(captured: Captured, loaded: LoadedModel, seed: int) -> bool:
    """Whether both give the same bits on inputs of another seed, and with the same random ones."""
    setting = loaded.setting
    fresh = ftax.load_model(
        loaded.name, tiny=setting.tiny, device=loaded.device, dtype=setting.dtype, seed=seed
    )
    results = []
    for call in (captured, loaded.module):
        torch.manual_seed(seed)
        results.append(pytree.tree_leaves(call(*fresh.args, **fresh.kwargs)))
    return all(
        same_bytes(a, b) if isinstance(a, torch.Tensor) else a == b
        for a, b in zip(*results, strict=True)
    )


def time_guards(captured: Captured) -> float:
    """ns of one look at all of them, in the cache."""
    guards = captured._recordings.programs[0].state.guards
    times = []
    for _ in range(_LOOKS):
        start = time.perf_counter_ns()
        guards.find_change()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times)


def time_model(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """Latencies of eager, the lowest rung, captures and torch.compile, in the same rounds; and what
    it took to make each."""
    on_gpu = options.device != "cpu"
    dtype: Any = {"dtype": "fp16"} if on_gpu else {}
    loaded = ftax.load_model(name, tiny=options.tiny, device=options.device, **dtype)
    workspace = Workspace(loaded)
    lowest = ("cuda-graph", "cpp") if on_gpu else ("eager", "cpp")
    compiled = "compile-reduce-overhead" if on_gpu else "compile"
    wanted = (("eager", "python"), lowest, ("capture", "python"), (compiled, "python"),
              *([("compile-capture", "python")] if on_gpu else []))  # fmt: skip
    candidates, missing, seconds = [], {}, {}
    for runtime, host in wanted:
        start = time.perf_counter()
        try:
            candidates.append(find_runtime(runtime).prepare(workspace, host))
        except FtaxError as error:
            missing[runtime] = describe(error)
        else:
            seconds[runtime] = time.perf_counter() - start
    if not missing.get("capture"):
        candidates.append(borrow(workspace))
    plan = ftax.Plan(duration_s=options.duration, patience_s=options.duration / 2)
    session = measure(loaded, candidates, plan)
    found = {str(item.place): item for item in session.measurements if item is not None}
    times = {place: item.latency_ns for place, item in found.items()}
    captured = found.get("capture/python")
    bottom = "/".join(lowest)
    return {
        "latency_ns": times,
        "outputs": None if captured is None else Checks.of(captured.checks).judge_outputs().words,
        "over_lowest": divide(times, "capture/python", bottom),
        "borrowed_over_lowest": divide(times, "capture-borrowed/python", bottom),
        "over_compiled": divide(times, "capture/python", f"{compiled}/python"),
        "compile_capture_over_compiled": divide(
            times, "compile-capture/python", f"{compiled}/python"
        ),
        "speedup": divide(times, "eager/python", "capture/python"),
        "made_s": seconds,
        "unavailable": missing,
    }


def borrow(workspace: Workspace) -> Candidate:
    """A capture that copies neither inputs nor results."""
    loaded = workspace.loaded
    with loaded.guard():
        captured = ftax.capture(loaded.module, (loaded.args, dict(loaded.kwargs)), borrow=True)
    args, kwargs = captured.inputs
    call = functools.partial(captured, *args, **kwargs)

    def run() -> list[torch.Tensor]:
        with loaded.guard():
            return flatten_outputs((call_model(call), ()))

    return Candidate(
        runtime="capture-borrowed", host="python", run=run,
        runner=workspace.on_stream(drive_python(workspace, "capture-borrowed", call)),
        preparation=Preparation(made_seconds=0.0),
    )  # fmt: skip


def divide(times: dict[str, float], one: str, other: str) -> float | None:
    """One latency over another, where both are there."""
    return times[one] / times[other] if one in times and other in times else None


def train(options: argparse.Namespace) -> dict[str, Any]:
    """A hundred steps of BERT-base with a schedule, captured and not, by turns."""
    on_gpu = options.device != "cpu"

    def make() -> tuple[LoadedModel, torch.optim.Optimizer, Callable[[], torch.Tensor]]:
        setting: Any = {"tiny": options.tiny, "device": options.device, "batch": 4}
        loaded = ftax.load_model("bert-base", dtype="bf16" if on_gpu else "fp32", **setting)
        model = loaded.module
        model.requires_grad_(True).eval()  # dropout off, so that both see the same numbers
        rate = torch.tensor(1e-4, device=options.device) if on_gpu else 1e-4
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, fused=True, capturable=on_gpu)

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(*loaded.args, **loaded.kwargs)[0].float().square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return loaded, optimizer, step

    sides = [make() for _ in range(2)]
    calls: list[Callable[[], torch.Tensor]] = [sides[0][2], ftax.capture(sides[1][2])]
    losses: list[list[float]] = [[], []]
    seconds: list[list[float]] = [[], []]
    for place in range(_STEPS):
        for side, (_, optimizer, _) in enumerate(sides):
            if place in (_STEPS // 3, 2 * _STEPS // 3):
                for group in optimizer.param_groups:
                    group["lr"] *= 0.5  # a tensor in place, a number anew
            start = time.perf_counter()
            losses[side].append(calls[side]().item())
            seconds[side].append(time.perf_counter() - start)
    weights = zip(*(loaded.module.parameters() for loaded, _, _ in sides), strict=True)
    eager_s, captured_s = map(statistics.median, seconds)
    return {
        "losses_equal": losses[0] == losses[1],
        "different": sum(not torch.equal(a, b) for a, b in weights),
        "eager_s": eager_s,
        "captured_s": captured_s,
        "speedup": eager_s / captured_s,
    }


def decode(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Tokens after a prompt, one call of the model each, from a static cache: those of a loop, of
    the same loop captured, and of generate(); and what the graph alone takes a token."""
    from transformers import GenerationConfig, StaticCache

    context = 16 if options.tiny else 128
    setting: Any = {"tiny": options.tiny, "device": options.device, "sequence": context}
    loaded = ftax.load_model(name, dtype="fp32" if options.device == "cpu" else "fp16", **setting)
    model: Any = loaded.module
    vocabulary, generator = model.config.vocab_size, make_generator(1, INPUT_STREAM)
    prompt = torch.randint(0, vocabulary, (1, context), generator=generator).to(options.device)
    most = context + 2 * _TOKENS + 8  # the graph alone goes on where the loop has ended

    def make_cache() -> dict[str, Any]:
        return {name_cache(model): StaticCache(config=model.config, max_cache_len=most)}

    found: list[list[int]] = []
    times: list[float] = []
    graph_s = None
    with torch.inference_mode():
        for captures in (False, True):
            cache = make_cache()

            def step(token: torch.Tensor, cache: dict[str, Any] = cache) -> torch.Tensor:
                return model(token, use_cache=True, **cache).logits[:, -1:].argmax(-1)

            token = step(prompt)
            run: Any = ftax.capture(step, token) if captures else step
            tokens, start = [token], time.perf_counter()
            for _ in range(_TOKENS):
                tokens.append(run(tokens[-1]))
            found.append([int(item) for item in tokens])
            times.append((time.perf_counter() - start) / _TOKENS)
        if options.device != "cpu":
            graph_s = time_graph(run)
        settings = GenerationConfig(
            max_new_tokens=_TOKENS + 1, min_new_tokens=_TOKENS + 1, do_sample=False,
            use_cache=True, disable_compile=True,
        )  # fmt: skip
        generated = model.generate(prompt, generation_config=settings, **make_cache())
    return {
        "tokens_equal": found[0] == found[1] == generated[0, context:].tolist(),
        "eager_s": times[0],
        "captured_s": times[1],
        "graph_s": graph_s,
        "over_graph": None if graph_s is None else times[1] / graph_s,
        "speedup": times[0] / times[1],
    }


def time_graph(captured: Captured) -> float:
    """Seconds of a launch of its graph, one behind the other as a loop makes them."""
    replay: Any = captured._recordings.programs[0].replay
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(_TOKENS):
        replay._launch()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / _TOKENS


def list_figures(raw: dict[str, dict[str, Any]], device: str) -> list[Figure]:
    """Each over all that ran."""
    models = [cell for name, cell in raw.items() if name.startswith("capture ")]
    taken = [cell for cell in models if cell["captured"]]
    timed = [cell for name, cell in raw.items() if name.startswith("time ")]
    ratios = [cell["over_lowest"] for cell in timed if cell["over_lowest"] is not None]
    found = []
    if models:
        wrong = sum(cell["different"] for cell in taken)
        found += [
            figure("models", len(models), "models"),
            figure("captured", len(taken), "models"),
            figure(
                "of these only with numbers compared",
                sum(cell["checks_reads"] for cell in taken),
                "models",
            ),
            figure("inputs not equal", wrong, "inputs", at_most=0),
        ]
    if ratios:
        found.append(figure("capture over lowest rung", ratios, "x"))
    for name, cell in raw.items():
        if name.startswith(("train", "decode")):
            least = 5.0 if name.startswith("train") and device != "cpu" else None
            found.append(figure(f"{name}: faster", cell["speedup"], "x", at_least=least))
        if cell.get("over_graph") is not None:
            over = (cell["over_graph"],)
            found.append(figure(f"{name}: over graph", over, "x", at_most=1.1))
    return found


def main() -> None:
    """All parts, or those that are asked for."""
    parser = make_parser(__doc__)
    add_part_options(parser, duration_s=5.0)
    options = parser.parse_args()
    wanted: dict[str, Callable[[], dict[str, Any]]] = {
        f"time {name}": functools.partial(time_model, options, name) for name in _TIMED
    }
    wanted["train bert-base"] = functools.partial(train, options)
    for name in ("llama-160m", "llama-1b"):
        wanted[f"decode {name}"] = functools.partial(decode, name, options)
    for dtype in ("fp32",) if options.device == "cpu" else ("fp16", "fp32"):
        for spec in list_models():
            if spec.family != "layer":
                take = functools.partial(capture_model, spec.name, dtype, options)
                wanted[f"capture {spec.name} {dtype}"] = take
    run_parts(__file__, wanted, options, functools.partial(list_figures, device=options.device))


if __name__ == "__main__":
    main()
