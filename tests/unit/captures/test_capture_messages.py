"""What a capture says names a tensor by its place, type and shape, and prints none."""

import pytest
import torch

import ftax


def test_the_state_of_a_parameter_is_named_without_its_values():
    table = torch.nn.Embedding(3, 2, sparse=True)
    optimizer = torch.optim.SparseAdam(table.parameters(), 0.1)

    def step(index):
        optimizer.zero_grad()
        loss = table(index).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    with pytest.raises(ftax.UnsupportedError, match=r"state\[Parameter \(3, 2\)\]") as said:
        ftax.capture(step, (torch.tensor([1, 2]),))
    assert "tensor(" not in str(said.value)


def test_arguments_are_named_without_values_and_long_texts():
    key = torch.nn.Parameter(torch.ones(30, 30))
    fast = ftax.capture(
        lambda given, mode: given[key] * 2, ({key: torch.ones(3)}, "m" * 5000), on_miss="raise"
    )
    assert "tensor(" not in str(fast.explain()) and len(str(fast.explain())) < 1000
    with pytest.raises(ftax.InvalidArgumentError, match=r"Parameter \(30, 30\)=Float\[4\]") as said:
        fast({key: torch.ones(4)}, "m" * 5000)
    assert "tensor(" not in str(said.value) and len(str(said.value)) < 500
