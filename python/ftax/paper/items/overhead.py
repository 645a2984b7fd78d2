"""Figures 1 to 3: that multiply-accumulates do not foretell latency, and what does.

The surprising choice: Figure 2 is a sketch in the paper and has no numbers; here the same picture
is drawn of a measurement.
"""

from __future__ import annotations

from ftax.paper.figures.plots import Line, Plot
from ftax.paper.figures.printed import Printed
from ftax.paper.setting import TEXT_LENGTH

FIGURE1_MODELS = {  # zoo name: the paper's
    "bert-base": "bert",
    "distilbert": "distilbert",
    "funnel": "funnel_transformer",
    "albert": "albert",
    "mobilebert": "mobile_bert",
    "squeezebert": "squeeze_bert",
}


def make_fig1() -> tuple[Plot, ...]:
    """Latency against multiply-accumulates; the paper's were taken in fp32 on a 2080Ti."""
    return tuple(
        Plot(
            title=dtype,
            dtype=dtype,
            over="gmacs",
            lines=tuple(
                Line(label=name, style=name, model=name, sequence=TEXT_LENGTH)
                for name in FIGURE1_MODELS
            ),
            printed=tuple(
                Printed(
                    label=name,
                    style=name,
                    where={"figure": "Figure 1", "model": paper_name},
                    source="2080Ti",
                )
                for name, paper_name in FIGURE1_MODELS.items()
                if dtype == "fp32"
            ),
            scale="linear",
        )
        for dtype in ("fp32", "fp16")
    )


def make_fig2() -> tuple[Plot, ...]:
    """Latency over the batch, split into what the device does and what it waits for."""
    return tuple(
        Plot(
            title=f"BERT, eager, {dtype}",
            dtype=dtype,
            lines=(_bert_eager(),),
            shows="split",
        )
        for dtype in ("fp16", "fp32")
    )


def make_fig3() -> tuple[Plot, ...]:
    """Latency and the device's busy time, and the share that is left; the paper: fp16."""
    printed = (Printed(label="eager", style="eager", where={"figure": "Figure 3"}),)
    return tuple(
        Plot(
            title=f"BERT, {dtype}: {'overhead share' if shows == 'share' else 'latency'}",
            dtype=dtype,
            lines=(_bert_eager(),),
            printed=printed if dtype == "fp16" else (),
            shows=shows,
        )
        for dtype in ("fp16", "fp32")
        for shows in ("split", "share")
    )


def _bert_eager() -> Line:
    return Line(label="eager", style="eager", model="bert-base", sequence=TEXT_LENGTH)
