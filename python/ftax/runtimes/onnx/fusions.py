"""ONNX Runtime's fusions for transformers: a Python package in its wheel rewrites a file.

The surprising choice: what was fused is counted in the result, as the operators of Microsoft's
domain, and not taken from the optimizer's own statistics, which count what it found fused already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from ftax.errors import UnsupportedError, describe
from ftax.runtimes.onnx.export import EMBEDDED_LIMIT_BYTES, capture_output
from ftax.steps.loaded import LoadedModel

_DOMAIN = "com.microsoft"


def fuse_transformer(loaded: LoadedModel, source: Path, target: Path) -> Mapping[str, object]:
    """Write ``source`` with its fusions to ``target``; facts of what was done.

    Raises UnsupportedError for a model that is no transformer, or in which nothing is fused.
    """
    heads, width, model_type = _describe(loaded)
    messages: list[str] = []
    try:
        with capture_output(messages):
            from onnxruntime.transformers import optimizer

            family = model_type if model_type in optimizer.MODEL_TYPES else "bert"
            # Level 0 leaves ONNX Runtime's own fusions to the session, which does them when it
            # loads; done here first, they hide the patterns that are looked for.
            fused = optimizer.optimize_model(
                str(source), model_type=family, num_heads=heads, hidden_size=width, opt_level=0
            )
            apart = sum(p.nbytes for p in loaded.module.parameters()) > EMBEDDED_LIMIT_BYTES
            fused.save_model_to_file(str(target), use_external_data_format=apart)
    except Exception as error:
        raise UnsupportedError(
            f"onnxruntime.transformers.optimizer failed on {loaded.name}: {describe(error)}"
        ) from error
    nodes = fused.model.graph.node
    fusions = Counter(node.op_type for node in nodes if node.domain == _DOMAIN)
    if not fusions:
        raise UnsupportedError(
            f"no transformer fusions apply to {loaded.name} (looked for those of {family}); the "
            "row onnxruntime has what the session itself fuses"
        )
    return {
        "fusions": dict(fusions),
        "fusion_family": family,
        "nodes_in_file": len(nodes),
        "fusion_messages": len(messages),
    }


def _describe(loaded: LoadedModel) -> tuple[int, int, str]:
    """Heads, width and type of a transformers model."""
    config = getattr(loaded.module, "config", None)
    found = [getattr(config, name, None) for name in ("num_attention_heads", "hidden_size")]
    if not all(isinstance(value, int) for value in found):
        raise UnsupportedError(
            f"no transformer fusions apply to {loaded.name}: it has no `config` with "
            "num_attention_heads and hidden_size, as models of the transformers package have"
        )
    heads, width = found
    return int(heads), int(width), str(getattr(config, "model_type", ""))  # type: ignore[arg-type]
