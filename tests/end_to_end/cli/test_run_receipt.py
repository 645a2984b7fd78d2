"""`ftax run --receipt` on a program, from its first run to the receipt of its model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ftax.ladders.receipt import Receipt
from ftax.records.store import read_records

PROGRAM = """
import sys
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(20))

    def forward(self, x, scale=1.0):
        for layer in self.layers:
            x = layer(x).relu()
        return x * scale

def serve(model, requests):
    with torch.inference_mode():
        for _ in range(requests):
            model(torch.ones(5, 16), scale=2.0)

def train(model, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(5, 16)).sum().backward()
        optimizer.step()

if __name__ == "__main__":
    torch.set_num_threads(1)
    what = {"serve": serve, "train": train}[sys.argv[1]]
    what(Net().eval() if what is serve else Net(), int(sys.argv[2]))
    print("done")
    sys.exit(3)
"""


# Two runs of a program that imports torch take seconds.
@pytest.mark.parametrize(
    ("what", "count", "ladder", "grad_mode"),
    [
        ("serve", "3000", "eager", "inference"),
        # Torch imports its compiler for an optimizer, in both runs.
        pytest.param("train", "600", "autograd", "grad", marks=pytest.mark.slow),
    ],
)
def test_a_program(tmp_path: Path, what: str, count: str, ladder: str, grad_mode: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    words = ["--receipt", "--duration", "0.5", "-o", "run.jsonl", "program.py", what, count]
    done = subprocess.run(
        [sys.executable, "-m", "ftax_run", *words], cwd=tmp_path, capture_output=True, text=True,
        timeout=180, check=False, env={**os.environ, "FTAX_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "done\n"), done.stderr
    (receipt,) = read_records(tmp_path / "run.receipt.jsonl").records
    assert isinstance(receipt, Receipt)
    top = receipt.rungs[0]
    assert (top.cell.model, top.cell.batch, top.cell.grad_mode) == ("Net", 5, grad_mode)
    assert (receipt.ladder_name, top.label[:11]) == (ladder, "program.py:")
    assert [item.place.runtime for item in receipt.others] == ["capture"]
    assert "ftax.capture" in done.stderr
