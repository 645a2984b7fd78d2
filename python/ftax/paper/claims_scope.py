"""What the file of claims does not say: what cannot be tested, and relations without their size.

The surprising choice: thresholds such as "over 40 %" are kept as they are, and a second, weaker
condition stands here beside them. So a test that fails can still say that the direction is the
paper's and only the size is another one.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedFormulas:
    """Formulas for a claim of which the paper's repository has no data; ours, over today's cells.

    ``tests`` are (condition, what it is about, the condition with its size left open). ``columns``
    are those of operands that are no latency.
    """

    operands: Mapping[str, RequiredCell | tuple[RequiredCell, ...]]
    compute: Mapping[str, str]
    tests: tuple[tuple[str, str, str], ...]
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

# Claim -> number of the condition -> (formula of today, what it is about). The paper's averages
# over image models hold one that nothing here stands for, and count on the places of the others.
SUBSTITUTES: Mapping[str, Mapping[int, tuple[str, str]]] = MappingProxyType(
    {
        "S4.1-avg-ort": {
            0: (
                "any(within(x,71.38,0.1) for x in "
                "[bert_resnet50_fp16,bert_resnet50_both_precisions])",
                "an average over the two models of Figure 4 within 0.1 point",
            )
        }
    }
)

# Claim -> number of the condition -> the same with the size left open.
RELATIONS: Mapping[str, Mapping[int, str]] = MappingProxyType(
    {
        "S1-macs-vs-latency": {1: "mac[4]<mac[0] and lat[4]>lat[0]"},
        "S3.2-share-falls": {1: "share_pct[0]>share_pct[-1]"},
        "S4-flat-eager-batch": {
            index: f"knee_{name}>=2" for index, name in enumerate(("r32", "r16", "b32", "b16"))
        },
        "S4-fp16-gain-large": {
            0: "min("
            + ",".join(f"fp32_over_fp16_b128_{m}_{f}" for m in "rb" for f in "eto")
            + ")>1"
        },
        "S4.1-avg-torchscript": {0: "language_6_without_longformer>0", 1: "bert_resnet50>0"},
        "S4.1-avg-ort": {0: "bert_resnet50_fp16>0 and bert_resnet50_both_precisions>0"},
        "S4.1-cudagraphs-small": {0: "min(cut_b1,cut_b2,cut_b4,cut_b8)>0"},
        "S4.1-cudagraphs-large": {
            0: "graph_over_eager[0]<1",
            1: "graph_over_eager[0]<min(graph_over_eager[4:])",
        },
        "S4.1-nested-large": {
            0: "cut_vs_eager_dense_b128>0 and cut_vs_eager_padded_b128>0",
            1: "n[7]<g[7]",
        },
        "S4.2.1-depth-distilbert": {
            index: f"ratio_{name}<1" for index, name in enumerate(("e_16", "e_32", "t_16", "t_32"))
        },
        "S4.2.2-funnel-macs": {0: "fewer_pct>0"},
        "S4.2.3-efficient-deeper": {
            0: "module_calls_mobile_over_bert>1",
            1: "module_calls_squeeze_over_bert>1",
        },
        "S4.3-gpu-speed-matters-only-large": {
            index: f"rho_b64_{name}<0" for index, name in enumerate(("r32", "r16", "b32", "b16"))
        },
        "S4.3-prominence-trend": {
            index: f"rho_tflops_knee_{name}>0"
            for index, name in enumerate(("r32", "r16", "b32", "b16"))
        },
        "S5-depth-proxy": {0: "rho_calls_all>0", 1: "rho_calls_language>0"},
        "S5-inverted-residual-per-flop": {0: "min_factor_fp16>1 and min_factor_fp32>1"},
        "S5-nested-80.56": {0: "cut_vs_cuda_graphs>0", 1: "cut_vs_padded_eager>0"},
        "C-gpt2-bound": {
            0: "knee_eager>=2",
            1: "knee_torchscript>=2",
            2: "e[7]>e[0] and t[7]>t[0]",
        },
    }
)

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


def _series(model: str) -> tuple[RequiredCell, ...]:
    return tuple(RequiredCell(model, _EAGER, "fp16", batch, 128) for batch in _BATCHES)


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
                ("within(cut_fp16,10.31,1)", "fp16: 10.31 % within 1 point", "cut_fp16>0"),
                ("within(cut_fp32,10.31,1)", "fp32: 10.31 % within 1 point", "cut_fp32>0"),
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
                ("runs[1]==0", "TorchScript does not run it", ""),
                ("runs[3]==0", "ONNX Runtime does not run it", ""),
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
                ("kernels[1]<kernels[0]", "TorchScript launches fewer kernels than eager", ""),
                ("kernels[3]<kernels[0]", "ONNX Runtime launches fewer kernels than eager", ""),
                ("memory[1]<memory[0]", "TorchScript takes less memory than eager", ""),
                ("memory[3]<memory[0]", "ONNX Runtime takes less memory than eager", ""),
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
                (
                    "any(within(x,93.35,1) for x in cuts_16+cuts_32)",
                    "some framework cuts 93.35 % within 1 point",
                    "max(cuts_16+cuts_32)>90",
                ),
            ),
        ),
        "S4.2.1-fig6-bert-variants": AddedFormulas(
            operands={
                "base": _series("bert-base"),
                "narrow": _series("bert-12x384"),
                "wide": _series("bert-1536"),
                "shallow": _series("bert-6x768"),
                "deep": _series("bert-24x768"),
            },
            compute={
                "plateau_spread_across_width": "spread(narrow[0],base[0],wide[0])",
                "knees_by_width": "[knee(narrow),knee(base),knee(wide)]",
                "plateaus_ms_by_depth": "[shallow[0],base[0],deep[0]]",
            },
            tests=(
                ("plateau_spread_across_width<1.3", "one plateau across widths", ""),
                (
                    "knees_by_width[0]>=knees_by_width[1]>=knees_by_width[2] "
                    "and knees_by_width[0]>knees_by_width[2]",
                    "wider ones leave it earlier",
                    "",
                ),
                (
                    "plateaus_ms_by_depth[0]<plateaus_ms_by_depth[1]<plateaus_ms_by_depth[2]",
                    "a higher plateau with depth",
                    "",
                ),
            ),
        ),
    }
)
