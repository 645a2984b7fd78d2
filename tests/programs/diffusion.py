"""Makes images with a small U-Net, in 20 steps each. An iteration is a denoising step."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from support import Clock, finish, parse, plant

STEPS = 20


class Residual(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, before), nn.GroupNorm(8, after)
        self.conv1 = nn.Conv2d(before, after, 3, padding=1)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1)
        self.time = nn.Linear(64, after)
        self.shortcut = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x, time):
        y = self.conv1(F.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return self.conv2(F.silu(self.norm2(y))) + self.shortcut(x)


class UNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        widths = [width, 2 * width, 4 * width]
        self.first = nn.Conv2d(4, width, 3, padding=1)
        self.down = nn.ModuleList(Residual(a, b) for a, b in zip([width, *widths], widths))
        self.middle = nn.ModuleList(Residual(4 * width, 4 * width) for _ in range(2))
        self.up = nn.ModuleList(
            Residual(a + b, b) for a, b in zip([4 * width, *widths[:0:-1]], widths[::-1])
        )
        self.last = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, x, time):
        x, kept = self.first(x), []
        for block in self.down:
            x = block(x, time)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        for block in self.middle:
            x = block(x, time)
        plant(1)
        for block in self.up:
            x = F.interpolate(x, scale_factor=2.0)
            x = block(torch.cat([x, kept.pop()], dim=1), time)
        return self.last(x)


class Scheduler:
    """How much noise is left, in Python's own numbers."""

    def __init__(self):
        self.left = [math.cos(1.54 * step / STEPS) ** 2 for step in range(STEPS + 1)]

    def step(self, noise, step, x):
        now, then = self.left[step], self.left[step - 1]
        plant(3)
        clean = (x - math.sqrt(1 - now) * noise) / math.sqrt(now)
        return math.sqrt(then) * clean.clamp(-3, 3) + math.sqrt(1 - then) * noise


def embed(step, frequencies):
    plant(0)
    angles = frequencies * (1000.0 * step / STEPS)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def guide(noise):
    plant(2)
    with_text, without = noise.chunk(2)
    return without + 4.0 * (with_text - without)


@torch.inference_mode()
def make_image(model, scheduler, x, frequencies, steps):
    for step, _ in zip(range(STEPS, 0, -1), steps):
        time = embed(step, frequencies).to(x.dtype)
        noise = guide(model(torch.cat([x, x * 0.9]), time))
        x = scheduler.step(noise, step, x)
        plant(4)
    return (x.float() * 40 + 128).clamp(0, 255).cpu()


def main():
    options = parse()
    device, big = options.device, options.device.type == "cuda"
    width, size, dtype = (128, 32, torch.float16) if big else (8, 8, torch.float32)
    model = UNet(width).to(device, dtype).eval()
    frequencies = torch.logspace(0, -4, 32, device=device)[None]
    scheduler, clock, image = Scheduler(), Clock(options), None
    steps = clock.iterations()
    while not clock.done:
        x = torch.randn(1, 4, size, size).to(device, dtype)
        image = make_image(model, scheduler, x, frequencies, steps)
    finish(clock, image)


if __name__ == "__main__":
    main()
