"""The lines of code that put a runtime in a module's place; all but a capture without ftax.

They begin with what a program has (``model``, or ``step``, the `ftax.Step` that was measured;
``inputs``, the tuple of what it is called with; ``requests``, such tuples) and leave ``outputs`` of
each. They are text that is run. Where a request is more than a call of the model, the row of the
runtime from Python times these very lines (`make_request`); the tests run all of it, compare its
outputs with the module's and its time with the row's. What has no lines here (a tape, a launch
replay) cannot be adopted without ftax.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from textwrap import indent
from typing import Any

_EVAL = "model.eval()  # as it was measured"
_ENTER = "with torch.inference_mode():"
_CALL = "outputs = model(*inputs)"

_FILL = """\
for to, x in zip(memory, inputs):
    to.copy_(x)
"""

_RUN_ON_CUDA = """\
session.run_with_iobinding(binding, run)
outputs = written  # until the next request"""

# What is done for each request, where it is more than a call of the model.
_REQUESTS = {
    "cuda-graph": f"""\
{_FILL}graph.replay()
outputs = written  # until the next request""",
    "onnxruntime": """\
for name, x in zip(names, inputs):
    binding.bind_cpu_input(name, x.numpy())
session.run_with_iobinding(binding)
outputs = binding.copy_outputs_to_cpu()""",
    "onnxruntime-cuda-graph": _FILL + _RUN_ON_CUDA,
    "onnxruntime-run": """\
feed = {name: x.numpy() for name, x in zip(names, inputs)}
outputs = session.run(None, feed)""",
}

_CAPTURE = """\
memory = [x.clone() for x in inputs]  # requests have these shapes
graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
with torch.inference_mode():
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # warm up
        for _ in range(3):
            model(*memory)
    with torch.cuda.graph(graph):
        written = model(*memory)"""

_COMPILE = "model = torch.compile(model, dynamic=False)  # once per shape"

_TRACE = """\
with torch.no_grad():
    model = torch.jit.trace(model, inputs, strict=False)  # for these shapes"""

# What was traced takes longer to call than what was loaded.
_LOAD = """\
torch.jit.save(model, "model.pt")
model = torch.jit.load("model.pt")"""

_PACKAGE = """\
with torch.no_grad():
    program = torch.export.export(model, inputs)  # for these shapes
aoti = torch._inductor
path = aoti.aoti_compile_and_package(program, package_path="model.pt2")
model = aoti.aoti_load_package(path)"""

_FTAX_CAPTURE = """\
with torch.inference_mode():
    model = ftax.capture(model, inputs)  # records other shapes too"""

_SESSION = """\
import onnxruntime
# for these shapes
torch.onnx.export(model, inputs, "model.onnx", dynamo={dynamo})
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = torch.get_num_threads()
options.add_session_config_entry("session.intra_op.allow_spinning", "0")
{levels}provider = "CPUExecutionProvider"
session = onnxruntime.InferenceSession(
    "model.onnx", options, providers=[provider]
)
names = [item.name for item in session.get_inputs()]"""

_LEVEL = """\
levels = onnxruntime.GraphOptimizationLevel
options.graph_optimization_level = levels.{}
"""

# It runs on torch's stream, which must not be the default one, and returns before it is done.
_ON_CUDA = (
    _SESSION.replace("import onnx", "import onnx, onnx", 1).replace(
        'provider = "CPUExecutionProvider"',
        """\
stream = torch.cuda.Stream()
stream.wait_stream(torch.cuda.current_stream())
torch.cuda.set_stream(stream)  # of the session, and of all that follows
provider = "CUDAExecutionProvider", {{
{settings}    "device_id": str(stream.device_index),
    "user_compute_stream": str(stream.cuda_stream),
}}""",
    )
    + """
graph = onnx.load("model.onnx", load_external_data=False).graph
kinds, made = (
    [x.type.tensor_type.elem_type for x in items]
    for items in (graph.input, graph.output)
)
with torch.inference_mode():
    given = torch.utils._pytree.tree_leaves(model(*inputs))
written = [
    torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in given
]
place, binding = ("cuda", stream.device_index), session.io_binding()
for item, kind, x in zip(session.get_outputs(), made, written):
    binding.bind_output(item.name, *place, kind, x.shape, x.data_ptr())
run = onnxruntime.RunOptions()
run.add_run_config_entry("disable_synchronize_execution_providers", "1")
run.add_run_config_entry("gpu_graph_id", "-1")  # none; or it is looked for""",
    """\
inputs = [x.contiguous() for x in inputs]
for name, kind, x in zip(names, kinds, inputs):
    binding.bind_input(name, *place, kind, x.shape, x.data_ptr())
"""
    + _RUN_ON_CUDA,
)


def _make_compile(mode: str) -> str:
    return f'mode = "{mode}"\n{_COMPILE.replace(")", ", mode=mode)", 1)}'


# What is done once.
_LINES = {
    "aoti": _PACKAGE,
    "capture": f"import ftax\n{_FTAX_CAPTURE}",
    "compile": _COMPILE,
    "compile-capture": f"import ftax\n{_COMPILE}\n{_FTAX_CAPTURE}",
    "compile-max-autotune": _make_compile("max-autotune-no-cudagraphs"),
    "compile-reduce-overhead": _make_compile("reduce-overhead"),
    "cuda-graph": _CAPTURE,
    "eager-channels-last": "model = model.to(memory_format=torch.channels_last)",
    "eager-one-thread": "torch.set_num_threads(1)",
    "onnxruntime": f"""\
{_SESSION}
binding = session.io_binding()
for item in session.get_outputs():
    binding.bind_output(item.name)""",
    "onnxruntime-run": _SESSION,
    "torchscript": f"{_TRACE}\n{_LOAD}",
    "torchscript-frozen": f"{_TRACE}\nmodel = torch.jit.freeze(model)",
}

# In the caller's grad mode, and of no more runtimes: a step changes what it trains.
_LINES_OF_STEPS = {
    "capture": """\
import ftax
step = ftax.capture(step)  # of a function: ftax.capture(step, inputs)
outputs = step(*inputs)  # each time""",
    "eager-one-thread": """\
torch.set_num_threads(1)  # once, before the first call
outputs = step(*inputs)  # each time""",
}


def find_lines(
    runtime: str,
    *,
    step: bool = False,
    grad_mode: str = "inference",
    details: Mapping[str, Any] | None = None,
    brief: bool = False,
) -> str:
    """What puts that runtime in the place of ``model``, or of ``step``, in Python; "" if nothing
    does. ``grad_mode`` and ``details`` are those of the measurement and of its preparation.
    ``brief``: for one request, in place of ``requests``."""
    if step:
        return _LINES_OF_STEPS.get(runtime, "")
    if runtime not in _LINES:
        return ""
    session = (details or {}).get("session", {})
    settings = session.get("provider_options", {})
    once, request = _find(runtime, on_cuda=bool(settings))
    if runtime.startswith("onnxruntime"):
        level = session.get("optimization", "all")
        once = once.format(
            dynamo=(details or {}).get("exporter", "dynamo") == "dynamo",
            levels="" if level == "all" else _LEVEL.format(name_level(level)),
            settings="".join(f'    "{name}": "{value}",\n' for name, value in settings.items()),
        )
    if [line for line in once.splitlines() if line[0] != " "][-1] != _ENTER:
        once += f"\n{_ENTER}"
    requests = indent(request, " " * 4)
    if not brief:
        head = "    for inputs in requests:  # a request as it was timed"
        requests = f"{head}\n{indent(requests, ' ' * 4)}"
    imports = once.partition("\n")[0] if once.startswith("import ") else ""
    once = "\n".join(filter(None, [imports, _EVAL, once.removeprefix(imports).lstrip()]))
    lines = f"{once}\n{requests}"
    return lines if grad_mode == "inference" else lines.replace("inference_mode()", "no_grad()")


def name_level(optimization: str) -> str:
    """What onnxruntime.GraphOptimizationLevel calls a level of ours."""
    return "ORT_DISABLE_ALL" if optimization == "disable" else f"ORT_ENABLE_{optimization.upper()}"


def make_request(runtime: str, *, on_cuda: bool = False, **names: Any) -> Callable[[], Any]:
    """The lines of one request as a function without arguments, which gives its ``outputs``; what
    they are about, ``inputs`` too, is in ``names``."""
    defaults = ", ".join(f"{name}={name}" for name in names)
    _, request = _find(runtime, on_cuda)
    source = f"def request({defaults}):\n{indent(request, '    ')}\n    return outputs\n"
    exec(compile(source, f"<request of {runtime}>", "exec"), names)
    function: Callable[[], Any] = names.pop("request")
    return function


def _find(runtime: str, on_cuda: bool) -> tuple[str, str]:
    """What is done once, and for each request."""
    if runtime == "onnxruntime" and on_cuda:
        return _ON_CUDA
    return _LINES.get(runtime, ""), _REQUESTS.get(runtime, _CALL)
