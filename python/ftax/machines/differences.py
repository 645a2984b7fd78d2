"""In what measuring environments differ, in words: one list of facts for whoever compares numbers.

A fact that one side does not know is no difference. Records of several versions of ftax, and of
machines with and without a GPU, would otherwise differ in everything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from ftax.machines.environment import Environment

# What decides on a latency beside the code: numbers that differ in it are not to be compared.
DECIDING = ("the machine", "the CPU", "usable CPUs", "the GPU", "torch", "threads")
# What a machine of the same hardware may have another one of.
SOFTWARE = (
    "ftax", "torch", "CUDA", "cuDNN", "the driver", "Python", "transformers", "onnx", "onnxruntime",
    "numpy", "the kernel", "threads", "MIG",
)  # fmt: skip

# By which results of one kind of device are told apart, of all that a user may change.
TELLING_APART = ("usable CPUs", *(fact for fact in SOFTWARE if fact not in ("ftax", "the kernel")))

_MANY = ("usable CPUs", "threads")


def find_differences(
    sides: Mapping[str, Sequence[Environment]], facts: Collection[str] = ()
) -> dict[str, dict[str, str]]:
    """By fact, what each side has of it, where they do not all have the same. Of a side with
    several it is "2.11.0 or 2.13.0". All facts, or those that are given.
    """
    found: dict[str, dict[str, str]] = {}
    for name, read in _FACTS.items():
        if facts and name not in facts:
            continue
        values = {side: list(dict.fromkeys(map(read, items))) for side, items in sides.items()}
        if len({value for each in values.values() for value in each} - {""}) > 1:
            found[name] = {
                side: " or ".join(filter(None, each)) or "not known"
                for side, each in values.items()
            }
    return found


def read_facts(environment: Environment, facts: Collection[str]) -> dict[str, str]:
    """What an environment says of facts; "" of one that it does not know, or lacks."""
    return {name: _FACTS[name](environment) for name in facts}


def describe_difference(fact: str, values: Mapping[str, str]) -> str:
    """ "torch is 2.11.0 for A and B and 2.13.0 for C", of what `find_differences` found."""
    sides: dict[str, list[str]] = {}
    for side, value in values.items():
        sides.setdefault(value, []).append(side)
    told = [f"{value} for {', '.join(names)}" for value, names in sides.items()]
    between = " and " if len(told) == 2 else ", "
    return f"{fact} {'are' if fact in _MANY else 'is'} {between.join(told)}"


def describe_source(environment: Environment) -> str:
    """The ftax that measured: "0.4.0 at 1234567890 with changes"."""
    source = environment.source
    commit = f" at {source.commit[:10]}" if source.commit else ""
    return f"{source.ftax}{commit}{' with changes' if source.dirty else ''}"


def _read_mig(environment: Environment) -> str:
    mig = None if environment.gpu is None else environment.gpu.mig
    return "" if mig is None else "on" if mig else "off"


_FACTS: Mapping[str, Callable[[Environment], str]] = {
    "the machine": lambda found: found.machine,
    "the CPU": lambda found: found.host.cpu_model or "",
    "usable CPUs": lambda found: str(found.host.usable_cpus),
    "the GPU": lambda found: "" if found.gpu is None else found.gpu.name,
    "ftax": describe_source,
    "torch": lambda found: found.software.torch,
    "CUDA": lambda found: found.software.torch_cuda or "",
    "cuDNN": lambda found: str(found.software.cudnn or ""),
    "the driver": lambda found: "" if found.gpu is None else found.gpu.driver,
    "Python": lambda found: found.software.python,
    "transformers": lambda found: found.software.transformers or "",
    "onnx": lambda found: found.software.onnx or "",
    "onnxruntime": lambda found: found.software.onnxruntime_gpu or found.software.onnxruntime or "",
    "numpy": lambda found: found.software.numpy or "",
    "the kernel": lambda found: found.host.kernel,
    "threads": lambda found: str(found.settings.num_threads),
    "MIG": _read_mig,
}
