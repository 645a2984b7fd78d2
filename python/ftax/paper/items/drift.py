"""What is measured again and again between all else: how far the machine drifts over a study.

The surprising choice: these are the cells of Table 1, with a CUDA graph and a model of images
beside them. What says how much two of its numbers may differ by chance also says what they are, by
turns and in many processes, as no single look at each of them can.
"""

from __future__ import annotations

from collections.abc import Iterable

from ftax.paper.setting import TEXT_LENGTH, Setting, Want
from ftax.paper.tables import read_scaling

_OTHERS = (("bert-768", "cuda-graph/python", TEXT_LENGTH), ("resnet-50", "eager/python", None))


def want_drift(setting: Setting) -> Iterable[Want]:
    """Host-bound cells, and one that is not, in one dtype."""
    if not setting.repetitions:
        return
    places = [
        *((row.model, "eager/python", row.batch, row.sequence) for row in read_scaling()),
        *((model, runtime, 1, sequence) for model, runtime, sequence in _OTHERS),
    ]
    for model, runtime, batch, sequence in places:
        yield Want(
            model=model,
            runtime=runtime,
            dtype=setting.main_dtype,
            batches=(batch,),
            sequences=(sequence,),
            repetitions=setting.repetitions,
        )
