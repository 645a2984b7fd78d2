"""Claims about how something goes with the speed of GPUs, over whichever GPUs were measured.

The surprising choice: nothing of them is written down a second time. Each of their formulas is a
rank correlation over a list in which the paper's GPUs stand one after the other; the same item for
each GPU that was measured is the same formula over those.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ftax.paper.claims.gpu import Gpu
from ftax.paper.claims.paper import Formulas
from ftax.paper.claims.today import DRIFT, ClaimPlan, PlannedOperand, Wanted
from ftax.paper.reference import find_hardware, read_table

FEWEST = 3  # GPUs of which two are not already in order
_SPEEDS = "tf"
_FORMULA = re.compile(rf"spearman\({_SPEEDS},\[(.+)\]\)")
_OPERAND = re.compile(r"([a-z]\d+)_(\w+)")  # what was measured, and on which GPU


def is_trend(plan: ClaimPlan) -> bool:
    """Whether all that a claim computes is such a correlation."""
    return bool(plan.compute) and all(map(_FORMULA.fullmatch, plan.compute.values()))


def find_speed(gpu: Gpu) -> float | None:
    """Peak rate in fp16 without Tensor Cores, TFLOP/s: of the paper's Table 2 for its GPUs, else
    the vendor's; None where neither is known here."""
    for row in read_table("table2_hardware.csv"):
        if gpu.is_a(row["gpu"]):
            return float(row["fp16_tflops"])
    stated = find_hardware(gpu.name)
    return float(stated["fp16_tflops"]) if stated else None


def find_fast(gpus: Sequence[Gpu]) -> dict[str, Gpu]:
    """By label, one of each GPU whose speed is known."""
    found: dict[str, Gpu] = {}
    for gpu in gpus:
        if gpu.kind == "cuda" and find_speed(gpu) is not None:
            found.setdefault(gpu.name, gpu)
    return {gpu.label: gpu for gpu in found.values()}


def make_trend(plan: ClaimPlan, gpus: Mapping[str, Gpu]) -> ClaimPlan:
    """A claim for which `is_trend` holds over these GPUs, whose cells are asked for by label."""
    names = {f"gpu{place}": label for place, label in enumerate(gpus)}
    compute = {name: _rewrite(text, names) for name, text in plan.compute.items()}
    first = {_OPERAND.search(text).group() for text in plan.compute.values()}  # type: ignore[union-attr]  # see is_trend
    operands = {
        f"{base.partition('_')[0]}_{name}": replace(
            plan.operands[base],
            items=tuple(replace(item, device=label) for item in plan.operands[base].items),
        )
        for base in sorted(first)
        for name, label in names.items()
    }
    speeds = tuple(Wanted(column="fp16_tflops", constant=find_speed(gpu)) for gpu in gpus.values())
    operands[_SPEEDS] = PlannedOperand(items=speeds, many=True)
    relations = [test.relation for test in plan.tests if test.relation]
    return replace(
        plan,
        operands=operands,
        compute=compute,
        formulas=Formulas.compile(
            [*operands, DRIFT], compute, [test.expression for test in plan.tests] + relations
        ),
    )


def _rewrite(text: str, names: Mapping[str, str]) -> str:
    """The formula with the item of the paper's first GPU once for each of ``names``."""
    listed = _FORMULA.fullmatch(text)
    item = listed[1].partition(",")[0] if listed else ""
    items = (_OPERAND.sub(rf"\1_{name}", item) for name in names)
    return f"spearman({_SPEEDS},[{','.join(items)}])"
