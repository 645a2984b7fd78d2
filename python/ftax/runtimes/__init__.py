"""Ways to execute a model, each prepared for the timed loop and checked against eager.

Importing this package imports no runtime: onnxruntime and transformers stay out until they are
used.
"""

from ftax.runtimes.catalogue import RuntimeSpec, check_host, find_runtime, list_runtimes
from ftax.runtimes.prepared import Host, Prepared
from ftax.runtimes.workspace import Workspace

__all__ = [
    "Host",
    "Prepared",
    "RuntimeSpec",
    "Workspace",
    "check_host",
    "find_runtime",
    "list_runtimes",
]
