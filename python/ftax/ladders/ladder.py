"""Ladders: ways to run the same work, from the one that people use down to what none takes away.

Neighbouring rungs do the same work, so the difference between their latencies is the cost of what
the lower one does without. A ladder is a table of words. Names of lines, of what is left below
whichever rung is the last, of lines that are joined because the rung between them is missing: all
of it stands here, and neither the arithmetic (`lines.py`) nor an instrument knows a rung by name. A
new ladder is a new table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ftax.errors import InvalidArgumentError
from ftax.steps.loaded import LoadedModel
from ftax.timing.candidate import Host, Place, Placed

Words = tuple[str, str]  # what a line is called, and what it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung(Placed):
    """One rung.

    Attributes:
        runtime, host: what runs, and who drives it.
        removes: what the step down to it removes; None for the first rung.
        rest: what all of it is called where no rung below was measured.
        gaps: the same without the device's busy time, where a trace tells the two apart.
        devices: kinds of device that have it.
        optional: only some models have it; where it is missing, so is the line of the step to it.
    """

    runtime: str
    host: Host
    removes: Words | None = None
    rest: Words
    gaps: Words
    devices: tuple[str, ...] = ("cpu", "cuda")
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """Rungs from the top down.

    Attributes:
        name: by which a record knows it.
        top: what sentences call the first rung.
        joined: what lines of these names are called together, where the rungs between are missing;
            others are joined by a plus.
        kernels: what the device's busy time on the last rung is called.
        compared: where the first rung runs kernels of its own besides, the rung whose kernels
            those below have to run, and what sentences call it.
        beside: what is measured beside the rungs where nothing else is asked for; empty for the
            runtimes that are ready in seconds.
        stand_ins: what can take the model's place and runs its operators or kernels, and what a
            sentence calls it, the handiest first. The other rungs are instruments: nobody deploys
            them.
    """

    name: str
    top: str
    rungs: tuple[Rung, ...]
    joined: Mapping[tuple[str, ...], Words] = field(default_factory=dict)
    kernels: Words = ("kernels", "device busy: kernels, copies and fills, traced after the rounds")
    compared: tuple[Place, str] | None = None
    beside: tuple[Place, ...] = ()
    stand_ins: Mapping[Place, str] = field(default_factory=dict)

    @property
    def places(self) -> tuple[Place, ...]:
        """Of all rungs."""
        return tuple(rung.place for rung in self.rungs)

    @property
    def reference(self) -> tuple[Place, str]:
        """The rung whose kernels those below have to run, and what sentences call it."""
        return self.compared or (self.places[0], self.top)

    def is_compared(self, place: Place) -> bool:
        """Whether a rung has to run the kernels of that one."""
        return self.places.index(place) >= self.places.index(self.reference[0])

    @property
    def without_python(self) -> Place | None:
        """The first rung that C++ drives: what is above it is what Python costs."""
        return next((place for place in self.places if place.host == "cpp"), None)

    def list_places(self, device: str) -> list[Place]:
        """The rungs that a device can have."""
        kind = device.split(":")[0]
        return [rung.place for rung in self.rungs if kind in rung.devices]

    def find(self, place: Place) -> Rung:
        """The rung that is there. Raises InvalidArgumentError for what is none."""
        if place not in self.places:
            raise InvalidArgumentError(f"{place} is no rung of the ladder {self.name!r}")
        return self.rungs[self.places.index(place)]

    def name_step(self, upper: Place, lower: Place) -> Words:
        """What the step from one rung down to another removes."""
        first, last = self.places.index(upper), self.places.index(lower)
        steps = [
            rung.removes
            for rung in self.rungs[first + 1 : last + 1]
            if rung.removes and (not rung.optional or rung.place == lower)
        ]
        if len(steps) == 1:
            return steps[0]
        names = tuple(name for name, _ in steps)
        together = (" + ".join(names), "together, for lack of a rung between them")
        return self.joined.get(names, together)


_WHILE_IDLE = "what the host does while no kernel runs"
_OPERATORS = ("operators", "dispatcher, operators and their kernels, allocator")
_DISPATCH_AND_GAPS = ("dispatch, launch and gaps", _WHILE_IDLE)
_LAUNCH = ("launch", "one driver call a kernel, and the gaps that a stream leaves between launches")
_GRAPH_GAPS = (
    "graph",
    "gaps between the kernels of the graph, one graph launch, the return to the host",
)

EAGER = Ladder(
    name="eager",
    top="Python eager",
    rungs=(
        Rung(
            runtime="eager",
            host="python",
            rest=("everything", "no rung below could be measured"),
            gaps=("Python, dispatch and gaps", _WHILE_IDLE),
        ),
        Rung(
            runtime="flat",
            host="python",
            removes=("model glue", "module calls, hooks, the model's own Python"),
            rest=("operators and bindings", "everything below the model's own Python"),
            gaps=("bindings, dispatch and gaps", _WHILE_IDLE),
        ),
        Rung(
            runtime="eager",
            host="cpp",
            removes=(
                "interpreter and bindings",
                "bytecode, argument parsing, wrapping of tensors",
            ),
            rest=_OPERATORS,
            gaps=_DISPATCH_AND_GAPS,
        ),
        Rung(
            runtime="tape-without-host-reads",
            host="cpp",
            removes=(
                "host reads",
                "values that the model reads back, each of which waits for the device",
            ),
            rest=_OPERATORS,
            gaps=_DISPATCH_AND_GAPS,
            devices=("cuda",),
            optional=True,
        ),
        Rung(
            runtime="launch-replay",
            host="cpp",
            removes=("dispatch", "dispatcher, host code of operators and libraries, allocator"),
            rest=("launches and kernels", "driver calls, kernels and the gaps between them"),
            gaps=("launch and graph", "gaps between kernels, driver calls, the return"),
            devices=("cuda",),
        ),
        Rung(
            runtime="cuda-graph",
            host="cpp",
            removes=_LAUNCH,
            rest=("graph and kernels", "one graph launch, kernels and the gaps between them"),
            gaps=_GRAPH_GAPS,
            devices=("cuda",),
        ),
    ),
    joined={
        ("model glue", "interpreter and bindings"): (
            "Python",
            "model glue, interpreter and bindings together (no flat rung between)",
        )
    },
    stand_ins={
        Place("capture", "python"): "ftax.capture",
        Place("cuda-graph", "cpp"): "a CUDA graph",
        Place("cuda-graph", "python"): "a CUDA graph",
        Place("eager", "cpp"): "the tape, without Python,",
    },
)

_EAGER, _FLAT, _TAPE, *_BELOW = EAGER.rungs

# Autograd runs between Python and the dispatcher. A tape above it runs it, one below does not.
AUTOGRAD = Ladder(
    name="autograd",
    top="Python eager",
    rungs=(
        _EAGER,
        replace(
            _TAPE,
            runtime="tape-with-autograd",
            removes=(
                "Python and bindings",
                "the Python of model, loss and optimizer, argument parsing, wrapping of tensors",
            ),
            rest=("autograd and operators", "autograd, dispatcher, operators and their kernels"),
            gaps=("autograd, dispatch and gaps", _WHILE_IDLE),
        ),
        replace(
            _TAPE,
            removes=(
                "autograd",
                "recording of its graph, its engine, hooks on parameters, composite operators",
            ),
        ),
        *_BELOW,
    ),
    joined={
        ("Python and bindings", "autograd"): (
            "Python, bindings and autograd",
            "together, for lack of a tape with autograd",
        )
    },
    stand_ins=EAGER.stand_ins,
)

LIBRARY = Ladder(
    name="library",
    top="the library's own loop",
    rungs=(
        replace(_EAGER, runtime="library"),
        replace(
            _EAGER,
            removes=(
                "library loop",
                "what the library does beside calling the model: stopping tests, processors of "
                "logits, mask helpers, arguments prepared for each call, and their kernels",
            ),
            rest=("model and below", "the calls of the model and all that they cost"),
        ),
        _FLAT,
        _TAPE,
        *_BELOW,
    ),
    joined=EAGER.joined,
    compared=(Place("eager", "python"), "the bare loop"),
    stand_ins=EAGER.stand_ins,
)

_GENERATED = ("generated code", "the code that Inductor generated, its launches and its kernels")

# What torch.compile costs a call. All rungs are pieces of one compiled callable, or its kernels.
COMPILE = Ladder(
    name="compile",
    top="torch.compile",
    rungs=(
        Rung(
            runtime="compile",
            host="python",
            rest=("everything", "no rung below could be measured"),
            gaps=("Python, dispatch and gaps", _WHILE_IDLE),
        ),
        Rung(
            runtime="compile-without-guards",
            host="python",
            removes=("guards", "the test whether the compiled code still fits this call"),
            rest=("wrappers and code", "everything below the guards"),
            gaps=("Python, dispatch and gaps", _WHILE_IDLE),
        ),
        Rung(
            runtime="compile-graph",
            host="python",
            removes=(
                "frame evaluation",
                "torch.compile's wrapper, the hook into Python's frames, TorchDynamo's bytecode "
                "that collects weights and builds the result",
            ),
            rest=("graph", "AOTAutograd's function and everything below it"),
            gaps=("wrappers, dispatch and gaps", _WHILE_IDLE),
        ),
        Rung(
            runtime="inductor-graph",
            host="python",
            removes=("AOTAutograd's wrappers", "functions between TorchDynamo and Inductor"),
            rest=("graph", "Inductor's object and everything below it"),
            gaps=("wrappers, dispatch and gaps", _WHILE_IDLE),
        ),
        Rung(
            runtime="inductor-call",
            host="python",
            removes=("Inductor's wrapper", "its object around the code that it generated"),
            rest=_GENERATED,
            gaps=("generated Python, dispatch and gaps", _WHILE_IDLE),
        ),
        Rung(
            runtime="inductor-cpp-call",
            host="python",
            removes=(
                "generated Python",
                "Python that allocates, calls operators and launches kernels, less what the same "
                "costs from C++",
            ),
            rest=_GENERATED,
            gaps=_DISPATCH_AND_GAPS,
        ),
        Rung(
            runtime="inductor-launch-replay",
            host="cpp",
            removes=(
                "generated C++",
                "allocations, host code of operators and libraries, what is around a launch",
            ),
            rest=("launches and kernels", "driver calls, kernels and the gaps between them"),
            gaps=("launch and graph", "gaps between kernels, driver calls, the return"),
            devices=("cuda",),
        ),
        Rung(
            runtime="inductor-cuda-graph",
            host="cpp",
            removes=_LAUNCH,
            rest=("graph and kernels", "one graph launch, kernels and the gaps between them"),
            gaps=_GRAPH_GAPS,
            devices=("cuda",),
        ),
    ),
    beside=(
        Place("eager", "python"),
        Place("compile-reduce-overhead", "python"),
        Place("aoti", "cpp"),
    ),
    stand_ins={
        Place("compile-reduce-overhead", "python"): "mode='reduce-overhead'",
        Place("aoti", "cpp"): "AOTInductor, without Python,",
    },
)

FITTING = (EAGER, AUTOGRAD, LIBRARY)  # one of them fits a step
LADDERS = {ladder.name: ladder for ladder in (*FITTING, COMPILE)}


def name_ladder(loaded: LoadedModel) -> str:
    """The ladder that fits a step."""
    if loaded.through_library is not None:
        return LIBRARY.name
    return AUTOGRAD.name if loaded.has_autograd else EAGER.name


def find_ladder(name: str) -> Ladder:
    """The ladder of that name. Raises InvalidArgumentError, naming those that can be asked for."""
    if name in LADDERS:
        return LADDERS[name]
    asked = ", ".join(key for key, ladder in LADDERS.items() if ladder not in FITTING)
    raise InvalidArgumentError(
        f"there is no ladder {name!r}; there is {asked}, or the one that fits, if it is left out"
    )
