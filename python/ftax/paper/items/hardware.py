"""Figure 9: one model on many GPUs, this machine among the paper's seven."""

from __future__ import annotations

from ftax.paper.figures.plots import Line, Plot
from ftax.paper.figures.printed import Printed
from ftax.paper.setting import TEXT_LENGTH

# From the oldest architecture to the newest, as in Table 2.
PAPER_GPUS = ("1080Ti", "V100", "2080Ti", "RTX-8000", "3090", "A6000", "A100")


def make_fig9() -> tuple[Plot, ...]:
    """BERT and ResNet-50 in eager over the batch."""
    return tuple(
        Plot(
            title=f"{title}, eager, {dtype}",
            dtype=dtype,
            lines=(Line(label="this machine", style="here", model=model, sequence=length),),
            printed=tuple(
                Printed(
                    label=gpu,
                    style=gpu,
                    where={
                        "figure": "Figure 9",
                        "model": paper_name,
                        "dtype": dtype,
                        "device": gpu,
                    },
                    source=gpu,
                )
                for gpu in PAPER_GPUS
            ),
        )
        for model, paper_name, title, length in (
            ("bert-base", "bert", "BERT", TEXT_LENGTH),
            ("resnet-50", "resnet50", "ResNet-50", None),
        )
        for dtype in ("fp16", "fp32")
    )
