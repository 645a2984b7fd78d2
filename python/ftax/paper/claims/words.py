"""Words of conditions and verdicts: each is a sentence that is true by itself.

The surprising choice: a verdict's sentence is made of its conditions' alone. What holds is said as
it is, what does not is said as what does not hold, and of a condition of which only the direction
is left, the direction is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from ftax.paper.claims.record import Outcome, TestVerdict

_MOST = 4  # conditions of one outcome that a sentence names

# The codes of claims.json, in words.
_CODES: Mapping[str, str] = MappingProxyType(
    {
        "r": "ResNet-50", "b": "BERT", "e": "eager", "t": "TorchScript", "o": "ONNX Runtime",
        "ts": "TorchScript", "ort": "ONNX Runtime", "16": "fp16", "32": "fp32",
        "resnet50": "ResNet-50", "bert": "BERT", "mobile": "MobileBERT", "squeeze": "SqueezeBERT",
    }
)  # fmt: skip
_VISION: Mapping[str, str] = MappingProxyType(
    {
        "squeeze": "SqueezeNet", "shuffle": "ShuffleNet", "mnas": "MnasNet",
        "efflite": "EfficientNet-Lite",
    }
)  # fmt: skip
_CODE = re.compile(
    r"\b(ts|ort|[rbeto]|resnet50|bert|mobile|squeeze|shuffle|mnas|efflite)(?: ?(16|32))?"
    r"(?:_(128)|_([eto]))?\b(?!=)"
)
_DEVICE = re.compile(r"^RTX-8000 |^2080Ti (?=eager)")  # where any GPU is meant

# What conditions of a claim say that name nothing but what they look at.
_SAYINGS: Mapping[str, str] = MappingProxyType(
    {
        "S1-macs-vs-latency": "over six models of BERT's family: {}",
        "S3.2-fewer-flops-no-faster": "eager BERT: {}",
        "S4-fp16-knee-later": "fp16 leaves the plateau no earlier than fp32: {}",
        "S4-flat-seq": "BERT over short lengths: {}",
        "S4-fp16-no-gain-b1": "BERT and ResNet-50: {}",
        "S4-knee-differs": "BERT and ResNet-50 have different knees: {}",
        "S4-time-per-mac": "time per MAC of BERT and ResNet-50: {}",
        "S4.1-torchscript-other-gpus": "TorchScript beats eager for BERT at b=1: {}",
        "S4.1-avg-torchscript": "TorchScript's average gain is 34.16 %: {}",
        "S4.1-cudagraphs-small": "CUDA graphs cut {}",
        "S4.1-cudagraphs-large": "CUDA graphs: {} (over half of the latency)",
        "S4.1-nested-large": "nested tensors cut {}, of dense and of padded eager",
        "S4.2.1-depth-both-regimes": "latency of ResNets: {}",
        "S4.2.1-width-resnet": "the wide ResNet-50 against ResNet-50 at b=1: {}",
        "S4.2.1-wide-earlier-knee": "the wide ResNet-50 leaves the plateau earlier: {}",
        "S4.2.1-wide-steeper": "the wide ResNet-50 takes longer for each further image: {}",
        "S4.2.2-funnel-small": "Funnel is slower than BERT at b=1: {}",
        "S4.2.2-funnel-large": "Funnel against BERT: {}",
        "S4.2.2-funnel-large-other-gpus": "Funnel is slower than BERT at large batch: {}",
        "S4.2.3-efficient-slower-small": "MobileBERT and SqueezeBERT are slower than BERT: {}",
        "S4.2.3-efficient-faster-large": "faster than BERT at b=128: {}",
        "S4.2.3-worse-flop-rate": "MobileBERT and SqueezeBERT do fewer MACs a second: {}",
        "S4.3-bound-on-all-gpus": "flat up to batch 2: {}",
        "S5-nested-80.56": "nested tensors cut 80.56 % at b=128 within 0.05 point: {}",
        "S5-over16-converge-models": "over the models: {}",
        "S5-over16-converge-frameworks": "slowest framework over fastest: {}",
        "S5-inverted-residual-per-flop": "inverted residuals take {}",
        "S5-flops-poor-small": "MACs predict the latency at b=1 poorly (rank correlation under "
        "0.5): {}",
        "S5-flops-poor-large": "at b=128: {}",
        "S6-bert-less-bound": "BERT leaves the plateau before ResNet-50: {}",
        "B-latency-order": "for BERT at b=1: {}",
        "B-utilisation-rises": "active SMs and occupancy for BERT at b=1: {}",
        "B-suboptimal": "active SMs and occupancy are {}",
        "C-gpt2-bound": "GPT-2 generating: {}",
        "C-gpt2-torchscript": "TorchScript for GPT-2: {}",
        "D-depth-vision": "latency of ResNets: {}",
        "D-low-flop-more-bound": "leaves the plateau after ResNet-50: {}",
        "E-wavlm-bound": "WavLM: {}",
        "E-wavlm-earlier": "WavLM leaves the plateau before BERT: {}",
        "E-wavlm-input": "samples are {}",
        "S4-knee-slower-framework": "no faster framework leaves the plateau later: {}",
        "S4.1-gain-shrinks": "the gain is larger at b=1 than at b=128: {}",
    }
)
_KEPT = frozenset({"S4.3-bound-on-all-gpus", "S4.1-torchscript-other-gpus"})  # names of GPUs


def word_condition(claim: str, about: str) -> str:
    """What a condition of a claim says, given the file's short words for it."""
    codes = {**_CODES, **_VISION} if claim.startswith("D-") else _CODES
    words = _CODE.sub(lambda found: _expand(found, codes), _DEVICE.sub("", about))
    words = about if claim in _KEPT else words
    return _SAYINGS.get(claim, "{}").format(words)


def _expand(found: re.Match[str], codes: Mapping[str, str]) -> str:
    name, bits, batch, framework = found.groups()
    parts = [codes.get(name, name), codes.get(bits or "", ""), codes.get(framework or "", "")]
    return " ".join(part for part in (*parts, f"b={batch}" if batch else "") if part)


def describe_verdict(
    outcome: Outcome, reason: str, tests: Sequence[TestVerdict], machine: str
) -> str:
    """One sentence on what a claim is worth, of which every part is true."""
    if outcome == "cannot be tested here":
        return f"Not tested: {reason}."
    lead = _find_lead([_say(test) for test in tests])

    def list_words(*outcomes: str) -> list[str]:
        return [_say(test).removeprefix(lead) for test in tests if test.today in outcomes]

    open_words = list_words("not resolved")
    groups = (
        ("", list_words("holds")),
        ("not so: ", list_words("does not hold", "another size")),
        ("in another size: ", [test.left or test.relation for test in tests
                               if test.today == "another size"]),
        ("open: ", open_words),
        ("not tested: ", list_words("not tested")),
    )  # fmt: skip
    told = [kind + _join(dict.fromkeys(words)) for kind, words in groups if words]
    together = ""
    if outcome == "not resolved" and not open_words:
        together = f". Open is whether all of that is so at once ({reason})"
    where = f"On {machine or 'this machine'}, {lead}" if lead else f"On {machine}: "
    return f"{where}{'. '.join(_begin(told))}{together}."


def _say(test: TestVerdict) -> str:
    return test.about or test.expression


def _find_lead(words: Sequence[str]) -> str:
    """What conditions have in common before a colon, with it; "" if there is nothing."""
    leads = {text.partition(": ")[0] if ": " in text else "" for text in words}
    return f"{leads.pop()}: " if len(words) > 1 and len(leads) == 1 and "" not in leads else ""


def _begin(told: Iterable[str]) -> list[str]:
    parts = list(told)
    return [parts[0], *(part[0].upper() + part[1:] for part in parts[1:])]


def _join(words: Iterable[str]) -> str:
    listed = list(words)
    more = f"; and {len(listed) - _MOST} more" if len(listed) > _MOST else ""
    return "; ".join(listed[:_MOST]) + more
