"""What it would give to record the pieces of a program between the numbers that it reads.

Two loops that `ftax.capture` refuses whole, since each turn reads a number: a diffusion sampler,
whose scheduler reads sigma, and a decoder that stops at a token. Their pieces are captured by hand,
with what Python makes of a number given to them as a tensor. Beside that the module alone is
captured, which takes one line in any program. All three run by turns on one thread, and have to
give the same bits.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ftax
from record import figure, finish, make_parser, run_workers, show

_STEPS, _TOKENS, _STOP = 20, 48, -1  # a token that does not come, so that all turns are alike
_TURNS = 30
WAYS = ("eager", "module captured", "pieces captured")


class Block(nn.Module):
    """A residual block that is told the time."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.norms = nn.ModuleList(nn.GroupNorm(4, width) for _ in range(2))
        self.time = nn.Linear(width, width)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """``x`` (1, width, side, side), ``time`` (1, width)."""
        h = self.first(F.silu(self.norms[0](x))) + self.time(time)[:, :, None, None]
        return x + self.second(F.silu(self.norms[1](h)))


class Denoiser(nn.Module):
    """A U-Net of two levels."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.enter, self.leave = (
            nn.Conv2d(4, width, 3, padding=1),
            nn.Conv2d(width, 4, 3, padding=1),
        )
        self.time = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width))
        self.down, self.middle, self.up = (
            nn.ModuleList(Block(width) for _ in range(2)) for _ in range(3)
        )

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Noise in ``x`` (1, 4, side, side) at ``time`` (1, 1)."""
        embedded, x = self.time(time), self.enter(x)
        for block in self.down:
            x = block(x, embedded)
        h = F.avg_pool2d(x, 2)
        for block in self.middle:
            h = block(h, embedded)
        x = x + F.interpolate(h, scale_factor=2.0)
        for block in self.up:
            x = block(x, embedded)
        return self.leave(x)


def move(net: Any, x: Tensor, scale: Any, moment: Tensor, sigma: Any, following: Any) -> Tensor:
    """One turn of the sampler, behind the read."""
    noise = net(x * scale, moment)
    denoised = x - noise * sigma
    return x + (x - denoised) / sigma * (following - sigma)


def sample(net: Any, step: Callable[..., Tensor], number: Callable[[float], Any]) -> list[Tensor]:
    """Euler's method. ``number`` makes of what Python computes what is given to a step."""
    x = torch.randn(1, 4, 16, 16, generator=torch.Generator().manual_seed(0))
    sigmas = torch.linspace(10.0, 0.1, _STEPS + 1)
    for index in range(_STEPS):
        sigma, following = sigmas[index].item(), sigmas[index + 1].item()
        scale = 1 / math.sqrt(sigma**2 + 1)
        moment = torch.tensor([[math.log(sigma) / 4]])
        x = step(net, x, number(scale), moment, number(sigma), number(following))
    return [x]


def make_sampler() -> dict[str, Callable[[], list[Tensor]]]:
    """It, by each way."""
    net = Denoiser().eval()
    x, moment = torch.randn(1, 4, 16, 16), torch.zeros(1, 1)
    numbers = [torch.ones((), dtype=torch.float64) for _ in range(3)]
    fast_net = ftax.capture(net, (x, moment))
    fast_step = ftax.capture(
        lambda x, scale, moment, sigma, following: move(net, x, scale, moment, sigma, following),
        (x, numbers[0], moment, *numbers[1:]),
    )
    return {
        "eager": lambda: sample(net, move, float),
        "module captured": lambda: sample(fast_net, move, float),
        "pieces captured": lambda: sample(
            net,
            lambda _, *given: fast_step(*given),
            lambda value: torch.tensor(value, dtype=torch.float64),
        ),
    }


def make_decoder() -> dict[str, Callable[[], list[Tensor]]]:
    """Greedy decoding with a static cache, by each way; a piece is what is between two tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

    config = LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=4,
        num_attention_heads=4,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()

    def generate(module: Any, cache: Any, wrap: Callable[..., Any]) -> list[Tensor]:
        def step(token: Tensor) -> Tensor:
            return module(token, past_key_values=cache, use_cache=True).logits[:, -1:].argmax(-1)

        cache.reset()
        token = step(torch.tensor([[1, 2, 3]]))
        found = [token]
        call = wrap(step, token)
        for _ in range(_TOKENS):
            token = call(token)
            found.append(token)
            if token.item() == _STOP:
                break
        return found

    def make(way: str) -> Callable[[], list[Tensor]]:
        cache = StaticCache(config=config, max_cache_len=_TOKENS + 8)
        kept: list[Any] = []

        def wrap(step: Callable[..., Any], token: Tensor) -> Any:
            if way == "eager":
                return step
            if not kept:
                kept.append(capture(step, token))
            return kept[0]

        def capture(step: Callable[..., Any], token: Tensor) -> Any:
            if way == "pieces captured":
                return ftax.capture(step, token)
            logits = ftax.capture(
                lambda token: model(token, past_key_values=cache, use_cache=True).logits, token
            )
            return lambda token: logits(token)[:, -1:].argmax(-1)

        return lambda: generate(model, cache, wrap)

    return {way: make(way) for way in WAYS}


def measure() -> dict[str, dict[str, float]]:
    """Microseconds of a turn of each loop, by each way."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = {}
    with torch.inference_mode():
        for name, make, turns in (
            ("diffusion", make_sampler, _STEPS),
            ("decoding", make_decoder, _TOKENS),
        ):
            ways = make()
            expected = ways["eager"]()
            for way, run in ways.items():
                for _ in range(3):
                    if not all(map(torch.equal, expected, run())):
                        raise RuntimeError(f"{name}, {way}: other bits than eager's")
            times: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(_TURNS):
                for way, run in ways.items():
                    start = time.perf_counter()
                    run()
                    times[way].append((time.perf_counter() - start) * 1e6 / turns)
            found[name] = {way: statistics.median(values) for way, values in times.items()}
    return found


def main() -> None:
    """Run, print, save."""
    options = make_parser(__doc__).parse_args()
    if options.worker:
        import json

        print(json.dumps(measure()))
        return
    found = run_workers(__file__, options)
    names = list(found[0])
    rows = [
        (name, *(f"{statistics.median(f[name][way] for f in found):,.0f}" for way in WAYS))
        for name in names
    ]
    show("us a turn of the loop", ("program", *WAYS), rows)
    figures = [
        figure(f"{name}: {way} over pieces captured",
               [item[name][way] / item[name]["pieces captured"] for item in found],
               at_least=1.5)
        for name in names
        for way in WAYS[:2]
    ]  # fmt: skip
    finish(__file__, options, figures, raw=found)


if __name__ == "__main__":
    main()
