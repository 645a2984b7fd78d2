"""Random small programs are reproduced bit by bit, from the tape and as flat Python.

None of ftax's own checks runs here; log and comparison are the tests'.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from ftax.tape.flat import make_flat
from ftax.tape.recording import record
from support.small_models import log_operators, normal, run_seeded, same_bits

# Each takes the newest tensor x and an older one y of any shape (4, 4).
STEPS: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: x @ y,
    lambda x, y: torch.maximum(x, y),
    lambda x, y: torch.where(x > y, x, y),
    lambda x, y: torch.add(x, y, alpha=2),
    lambda x, y: 1 - x,
    lambda x, y: x * 0.5,
    lambda x, y: x / 3,
    lambda x, y: x.tanh(),
    lambda x, y: x.softmax(-1),
    lambda x, y: F.relu(x),
    lambda x, y: F.layer_norm(x, (4,)),
    lambda x, y: x.clamp(-1, 1),
    lambda x, y: x.t(),
    lambda x, y: x.flip(0),
    lambda x, y: x.reshape(2, 8).view(4, 4),
    lambda x, y: x[1:3].repeat(2, 1),
    lambda x, y: x[:, ::2].repeat_interleave(2, dim=1),
    lambda x, y: x.expand(2, 4, 4)[1],
    lambda x, y: torch.cat(x.chunk(2, 1)[::-1], 1),
    lambda x, y: torch.stack(y.unbind(1), 0),
    lambda x, y: x.clone().add_(y),
    lambda x, y: x.clone().fill_diagonal_(0.0),
    lambda x, y: x.new_ones(4, 4).mul_(x),
    lambda x, y: x + x.sum(),
    lambda x, y: x - x.mean(-1, keepdim=True),
    lambda x, y: x.double().float(),
]


@given(st.lists(st.tuples(st.sampled_from(range(len(STEPS))), st.integers(0, 5)), max_size=6))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_random_programs_are_reproduced_bit_by_bit(program: list[tuple[int, int]]) -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        values = [x, y]
        for step, older in program:
            values.append(STEPS[step](values[-1], values[older % len(values)]))
        return values[-1]

    inputs, others = [normal(4, 4), normal(4, 4, seed=1)], [normal(4, 4, seed=2), torch.ones(4, 4)]
    tape = record(lambda: run(*inputs), inputs=inputs, module=None, device="cpu")[0]
    flat = make_flat(tape, inputs)
    assert tape.visible_operators == log_operators(lambda: run(*inputs))
    assert tape.operators == log_operators(lambda: flat.function(*inputs))
    for values in (others, inputs):
        (expected,) = run_seeded(lambda values=values: run(*values))
        tape.bind_inputs(values)
        assert same_bits(run_seeded(tape.run)[0], expected)
        assert same_bits(run_seeded(lambda values=values: flat.function(*values))[0], expected)
