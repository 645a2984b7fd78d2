"""What the claims want measured, as wants like those of the figures.

The surprising choice: a claim's cell that this run leaves out (another dtype, a batch between the
sizes of a quick run) is not wanted here; the claim says itself what it lacks.
"""

from __future__ import annotations

from collections.abc import Iterable

from ftax.paper.claims.today import required_cells
from ftax.paper.setting import Setting, Want


def want_claims(setting: Setting) -> Iterable[Want]:
    """The cells that claims look at, of the setting's dtypes and batches, batches joined; none of
    tiny models, on which no claim is tested."""
    if setting.tiny:
        return
    batches: dict[tuple[str, str, str, int | None], set[int]] = {}
    for cell in required_cells():
        if cell.dtype in setting.dtypes and cell.batch in setting.batches:
            place = (cell.model, cell.framework, cell.dtype, cell.sequence)
            batches.setdefault(place, set()).add(cell.batch)
    for place in sorted(batches, key=str):
        model, runtime, dtype, sequence = place
        yield Want(
            model=model,
            runtime=runtime,
            dtype=dtype,
            batches=tuple(sorted(batches[place])),
            sequences=(sequence,),
        )
