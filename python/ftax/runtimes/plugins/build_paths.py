"""Where the files lie that the build puts beside the compiled core.

They are looked for beside `_build_info.py`, not beside this file. In an editable install the
build's products are in site-packages and the Python files are not.
"""

from __future__ import annotations

from pathlib import Path

from ftax import _build_info
from ftax.errors import UnavailableError

_BUILT = Path(_build_info.__file__).parent


def get_include() -> str:
    """The folder to give to a compiler (``-I``), so that it finds ``ftax/runner.h``."""
    source = Path(__file__).parents[4] / "csrc" / "include"  # of a checkout that is not installed
    for folder in (_BUILT / "include", source):
        if (folder / "ftax" / "runner.h").is_file():
            return str(folder)
    raise UnavailableError(
        "ftax/runner.h is missing from this installation: "
        "`pip install --no-build-isolation --force-reinstall --no-deps ftax`"
    )
