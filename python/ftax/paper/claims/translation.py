"""What stands today for a measurement of the paper: the zoo's model, the runtime, the sizes.

The surprising choice: models are found through `ModelSpec.paper_name` and through nothing else, so
that a model which joins the zoo is in the claims with it.
"""

from __future__ import annotations

import functools

from ftax.errors import InvalidArgumentError
from ftax.paper.claims.scope import RequiredCell
from ftax.paper.reference import FRAMEWORKS, PaperRow

_PADDED_FRAMEWORKS = {"pytorch-eager": "padded/python", "bettertransformer": "nested/python"}

UNKNOWN = "unknown"
# Where the paper states no dtype (Tables 1 and 3). Wherever one could be inferred it was this one.
UNSTATED_DTYPE = "fp16"


def translate_row(row: PaperRow) -> RequiredCell:
    """The cell of today that a measurement of the paper corresponds to.

    Raises InvalidArgumentError if the zoo or the runtimes have nothing like it.
    """
    model = find_model(row.model)
    frameworks = _PADDED_FRAMEWORKS if row.is_padded else FRAMEWORKS
    if row.framework not in frameworks:
        raise InvalidArgumentError(f"no runtime stands for {row.framework!r} on {row.input!r}")
    default = _list_models()[row.model][1]
    return RequiredCell(
        model=model,
        framework=frameworks[row.framework],
        dtype=UNSTATED_DTYPE if row.dtype == UNKNOWN else row.dtype,
        batch=row.batch,
        sequence=None if default is None else row.size or default,
    )


def find_model(paper_name: str) -> str:
    """The zoo's model for a name of the paper. Raises InvalidArgumentError if there is none."""
    if paper_name not in _list_models():
        raise InvalidArgumentError(f"no model here stands for the paper's {paper_name!r}")
    return _list_models()[paper_name][0]


@functools.cache
def _list_models() -> dict[str, tuple[str, int | None]]:
    """The paper's name -> the zoo's name and its default sequence."""
    from ftax.steps.zoo.registry import list_models

    found: dict[str, tuple[str, int | None]] = {}
    for spec in list_models():
        if spec.paper_name is not None:
            found.setdefault(spec.paper_name, (spec.name, spec.sequence))
    return found
