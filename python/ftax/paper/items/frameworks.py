"""Figures 4 and 5: the same model in several runtimes.

The surprising choice: the panel over the length is drawn at the largest batch that was measured,
128 as in the paper, although the paper does not state it (its end point says so).
"""

from __future__ import annotations

from ftax.paper.figures.plots import Line, Plot
from ftax.paper.figures.printed import PAPER_RUNTIMES, Printed
from ftax.paper.setting import TEXT_LENGTH

_FRAMEWORKS = ("eager", "torchscript", "onnxruntime")
_MODELS = {  # zoo name: the paper's, and its title
    "bert-base": ("bert", "BERT", TEXT_LENGTH),
    "resnet-50": ("resnet50", "ResNet-50", None),
}


def make_fig4() -> tuple[Plot, ...]:
    """BERT and ResNet-50 in three frameworks, over the batch and over the length."""
    over_batch = tuple(
        Plot(
            title=f"{title}, {dtype}",
            dtype=dtype,
            lines=tuple(
                Line(label=name, style=name, model=model, runtime=f"{name}/python", sequence=length)
                for name in _FRAMEWORKS
            ),
            printed=tuple(
                Printed(
                    label=name,
                    style=name,
                    where={
                        "figure": "Figure 4",
                        "note_has": "batch panel",
                        "model": paper_name,
                        "dtype": dtype,
                        "framework": PAPER_RUNTIMES[f"{name}/python"],
                    },
                )
                for name in _FRAMEWORKS
            ),
        )
        for model, (paper_name, title, length) in _MODELS.items()
        for dtype in ("fp16", "fp32")
    )
    return (*over_batch, *_make_length_panels())


def _make_length_panels() -> tuple[Plot, ...]:
    return tuple(
        Plot(
            title=f"BERT, {dtype}, largest batch",
            dtype=dtype,
            over="sequence",
            lines=tuple(
                Line(label=name, style=name, model="bert-base", runtime=f"{name}/python")
                for name in _FRAMEWORKS
            ),
            printed=tuple(
                Printed(
                    label=name,
                    style=name,
                    where={
                        "figure": "Figure 4",
                        "note_has": "sequence-length panel",
                        "framework": PAPER_RUNTIMES[f"{name}/python"],
                    },
                )
                for name in _FRAMEWORKS
                if dtype == "fp16"
            ),
        )
        for dtype in ("fp16", "fp32")
    )


_OPTIMISATIONS = {  # runtime: label, and the paper's framework and input
    "eager": ("eager", "pytorch-eager", "128"),
    "cuda-graph": ("CUDA graph", "cuda-graphs", "128"),
    "padded": ("eager, padded", None, None),
    "nested": ("nested tensors, padded", "bettertransformer", "128-padded"),
}


def make_fig5() -> tuple[Plot, ...]:
    """BERT with CUDA graphs on dense texts, and with nested tensors on texts of natural lengths.

    The paper sets both beside eager on dense texts; ours adds eager on the padded ones, which is
    what nested tensors save on. The paper's draft of the figure has that line too.
    """
    printed = tuple(
        Printed(
            label=label,
            style=name,
            where={"figure": "Figure 5", "framework": framework, "input": text},
        )
        for name, (label, framework, text) in _OPTIMISATIONS.items()
        if framework is not None
    )
    draft = Printed(
        label=_OPTIMISATIONS["padded"][0],
        style="padded",
        where={"figure": "Figure 5 draft", "framework": "pytorch-eager"},
    )
    return tuple(
        Plot(
            title=f"BERT, {dtype}",
            dtype=dtype,
            lines=tuple(
                Line(
                    label=label,
                    style=name,
                    model="bert-base",
                    runtime=f"{name}/python",
                    sequence=TEXT_LENGTH,
                )
                for name, (label, _, _) in _OPTIMISATIONS.items()
            ),
            printed=(*printed, draft) if dtype == "fp16" else (),
        )
        for dtype in ("fp16", "fp32")
    )
