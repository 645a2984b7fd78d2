"""Odd captures, by what is odd about them; importing this enters all of them into the table."""

from hostile.captures import (
    arguments,
    gradients,
    hidden_names,
    names,
    objects,
    operators,
    python_state,
    questions,
    random_numbers,
    results,
    returned_reads,
    switches,
    training,
    values,
    weights,
)

__all__ = [
    "arguments",
    "gradients",
    "hidden_names",
    "names",
    "objects",
    "operators",
    "python_state",
    "questions",
    "random_numbers",
    "results",
    "returned_reads",
    "switches",
    "training",
    "values",
    "weights",
]
