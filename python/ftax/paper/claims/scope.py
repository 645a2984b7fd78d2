"""What the file of claims does not say: what cannot be tested, and formulas where it has none.

The surprising choice: where the paper's repository has no numbers the formulas are ours, and their
conditions have no outcome on the paper's side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple


class RequiredCell(NamedTuple):
    """A cell by the names of today: the zoo's model, "runtime/host", and sizes.

    The sequence is None for models of images.
    """

    model: str
    framework: str
    dtype: str
    batch: int
    sequence: int | None

    def label(self) -> str:
        """A short form for people, such as "bert-base eager/python fp16 b1 s128"."""
        length = "" if self.sequence is None else f" s{self.sequence}"
        return f"{self.model} {self.framework} {self.dtype} b{self.batch}{length}"


class Condition(NamedTuple):
    """A condition and what it says; ``relation`` is what is left of it without its size, ``left``
    what that says. "" where nothing is."""

    expression: str
    about: str
    relation: str = ""
    left: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedFormulas:
    """Formulas for a claim of which the paper's repository has no data; ours, over today's cells.

    ``columns`` are those of operands that are no latency.
    """

    operands: Mapping[str, RequiredCell | tuple[RequiredCell, ...]]
    compute: Mapping[str, str]
    tests: tuple[Condition, ...]
    columns: Mapping[str, str] = field(default_factory=dict)


CONSISTENCY = "consistency-check"
OWN_NUMBERS = "it compares numbers of the paper with each other; there is nothing to measure"
_PEAKS = "it compares peak rates of two GPUs from Table 2; no latency tells a peak rate"

UNTESTABLE: Mapping[str, str] = MappingProxyType(
    {
        "S1-flops-growth": _PEAKS,
        "S5-peak-2.75x": _PEAKS,
        "S4.2.2-funnel-training": "it is about training and quoted from other work; ftax measures "
        "inference",
    }
)

# Each condition looks at one GPU, and yet it means that one and no other.
NAMES_ITS_GPUS = frozenset({"S4.3-1080ti-bert-not-bound"})

_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
_EAGER = "eager/python"


# As in Table 3.
FRAMEWORKS = (
    "eager/python",
    "torchscript/python",
    "cuda-graph/python",
    "onnxruntime/python",
    "onnxruntime-cuda-graph/python",
)


def make_series(model: str, framework: str = _EAGER) -> tuple[RequiredCell, ...]:
    """A model of texts over the paper's batches, in fp16."""
    return tuple(RequiredCell(model, framework, "fp16", batch, 128) for batch in _BATCHES)


ADDED: Mapping[str, AddedFormulas] = MappingProxyType(
    {
        "S5-fnet": AddedFormulas(
            operands={
                f"{name}{dtype[2:]}": RequiredCell(model, framework, dtype, 1, 128)
                for name, model, framework in (
                    ("f", "fnet", _EAGER),
                    ("o", "bert-base", "onnxruntime/python"),
                )
                for dtype in ("fp16", "fp32")
            },
            compute={"cut_fp16": "cut(o16,f16)", "cut_fp32": "cut(o32,f32)"},
            tests=(
                Condition(
                    "within(cut_fp16,10.31,1)",
                    "in fp16 FNet in eager is 10.31 % faster than BERT in ONNX Runtime, within 1 "
                    "point",
                    "cut_fp16>0",
                    "in fp16 FNet in eager is faster than BERT in ONNX Runtime",
                ),
                Condition(
                    "within(cut_fp32,10.31,1)",
                    "in fp32 FNet in eager is 10.31 % faster than BERT in ONNX Runtime, within 1 "
                    "point",
                    "cut_fp32>0",
                    "in fp32 FNet in eager is faster than BERT in ONNX Runtime",
                ),
            ),
        ),
        "S5-fft-unsupported": AddedFormulas(
            operands={
                "runs": tuple(
                    RequiredCell("fnet", framework, "fp32", 1, 128) for framework in FRAMEWORKS
                ),
            },
            columns={"runs": "runs"},
            compute={"runs_by_framework": "[x for x in runs]"},
            tests=(
                Condition("runs[1]==0", "TorchScript does not run FNet"),
                Condition("runs[3]==0", "ONNX Runtime does not run FNet"),
            ),
        ),
        "S2-compilation-fewer-launches": AddedFormulas(
            operands={
                "kernels": tuple(
                    RequiredCell("bert-base", framework, "fp16", 1, 128) for framework in FRAMEWORKS
                ),
                "memory": tuple(
                    RequiredCell("bert-base", framework, "fp16", 1, 128) for framework in FRAMEWORKS
                ),
            },
            columns={"kernels": "kernels", "memory": "device_mb"},
            compute={
                "kernels_by_framework": "[x for x in kernels]",
                "device_mb_by_framework": "[x for x in memory]",
            },
            tests=(
                Condition("kernels[1]<kernels[0]", "TorchScript has fewer kernels than eager"),
                Condition("kernels[3]<kernels[0]", "ONNX Runtime has fewer kernels than eager"),
                Condition("memory[1]<memory[0]", "TorchScript takes less memory than eager"),
                Condition("memory[3]<memory[0]", "ONNX Runtime takes less memory than eager"),
            ),
        ),
        "S4.1-resnet50-93.35": AddedFormulas(
            operands={
                f"r{dtype[2:]}": tuple(
                    RequiredCell("resnet-50", framework, dtype, 1, None) for framework in FRAMEWORKS
                )
                for dtype in ("fp16", "fp32")
            },
            compute={
                f"cuts_{bits}": f"[cut(r{bits}[0],x) for x in r{bits}[1:]]" for bits in ("16", "32")
            },
            tests=(
                Condition(
                    "any(within(x,93.35,1) for x in cuts_16+cuts_32)",
                    "a framework cuts ResNet-50's latency by 93.35 % at batch 1, within 1 point",
                    "max(cuts_16+cuts_32)>0",
                    "a framework is faster than eager for ResNet-50 at batch 1",
                ),
            ),
        ),
        "S4.2.1-fig6-bert-variants": AddedFormulas(
            operands={
                "base": make_series("bert-base"),
                "narrow": make_series("bert-12x384"),
                "wide": make_series("bert-1536"),
                "shallow": make_series("bert-6x768"),
                "deep": make_series("bert-24x768"),
            },
            compute={
                "plateau_spread_across_width": "spread(plateau(narrow),plateau(base),"
                "plateau(wide))",
                "knees_by_width": "[knee(narrow),knee(base),knee(wide)]",
                "plateaus_ms_by_depth": "[plateau(shallow),plateau(base),plateau(deep)]",
            },
            tests=(
                Condition(
                    "plateau_spread_across_width<1.3",
                    "the plateaus of BERT 384, 768 and 1536 wide are the same within 1.3 times",
                ),
                Condition(
                    "knees_by_width[0]>=knees_by_width[1]>=knees_by_width[2] "
                    "and knees_by_width[0]>knees_by_width[2]",
                    "wider BERT leaves the plateau earlier",
                ),
                Condition(
                    "plateaus_ms_by_depth[0]<plateaus_ms_by_depth[1]<plateaus_ms_by_depth[2]",
                    "deeper BERT has a higher plateau",
                ),
            ),
        ),
    }
)
