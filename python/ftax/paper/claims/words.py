"""Words of conditions and verdicts: each is a sentence that is true by itself.

The surprising choice: a verdict's sentence is made of its conditions' alone. What holds is said as
it is, what does not is said as what does not hold, and of a condition of which only the direction
is left, the direction is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from ftax.paper.claims.helpers import list_some
from ftax.paper.claims.record import Outcome, TestVerdict
from ftax.paper.claims.scope import find_amendment

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
_GPUS = "g1080|g2080|g3090|TitanX|rtx8000|[aA]6000|[aA]100|[vV]100"
_GPU = re.compile(rf"_(?:{_GPUS})\b|\b(?:{_GPUS})(?:_|$)")
_DEVICE = re.compile(r"^RTX-8000 |^2080Ti (?=eager)")  # where any GPU is meant


def word_condition(claim: str, about: str) -> str:
    """What a condition of a claim says, given the file's short words for it."""
    codes = {**_CODES, **_VISION} if claim.startswith("D-") else _CODES
    words = _CODE.sub(lambda found: _expand(found, codes), _DEVICE.sub("", about))
    amended = find_amendment(claim)
    return amended.saying.format(about if amended.keeps_names else words)


def leave_gpu(about: str) -> str:
    """What a condition says of a GPU of the paper, without its name: of whichever was measured."""
    lead, colon, last = about.rpartition(": ")
    rest = _GPU.sub("", last)
    if rest == last:
        return about
    words = _CODE.sub(lambda found: _expand(found, _CODES), rest)
    return f"{lead}{colon}{words}" if words else lead


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
    told = [
        kind + list_some(dict.fromkeys(words), _MOST, more="; and {} more")
        for kind, words in groups
        if words
    ]
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
