"""The lines of code that put a runtime in a module's place; all but a capture without ftax.

They begin with what a program has (``model``, in eval mode, or ``step``, the `ftax.Step` that was
measured; ``inputs``, the tuple of what it is called with) and end with ``outputs``. The surprising
choice: they are text, and the tests run it and compare its outputs with the module's, so that
advice cannot name a call that does not exist. What has no lines here (a tape, a launch replay)
cannot be adopted without ftax.
"""

from __future__ import annotations

_CALL = """\
with torch.inference_mode():  # each request
    outputs = model(*inputs)"""

_CAPTURE = """\
graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
with torch.inference_mode():
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # warm up
        for _ in range(3):
            model(*inputs)
    with torch.cuda.graph(graph):
        outputs = model(*inputs)
graph.replay()  # each request: copy_ into `inputs`, replay, read `outputs`"""

_COMPILE = "model = torch.compile(model, dynamic=False)"

_TRACE = """\
with torch.no_grad():
    model = torch.jit.trace(model, inputs, strict=False)"""

_FREEZE = f"{_TRACE}\nmodel = torch.jit.freeze(model)"

_PACKAGE = """\
with torch.no_grad():
    program = torch.export.export(model, inputs)
aoti = torch._inductor
path = aoti.aoti_compile_and_package(program, package_path="model.pt2")
model = aoti.aoti_load_package(path)"""

# For threads it asks CUDA whether an earlier call has ended, which no capture survives.
_PACKAGE_TO_CAPTURE = _PACKAGE.replace("(path)", "(path, run_single_threaded=True)")

_SESSION = """\
device = inputs[0].device.type
torch.onnx.export(model, inputs, "model.onnx", dynamo=True)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = torch.get_num_threads()
options.add_session_config_entry("session.intra_op.allow_spinning", "0")
session = onnxruntime.InferenceSession(
    "model.onnx", options, providers=[f"{device.upper()}ExecutionProvider"]
)
binding = session.io_binding()
for item, x in zip(session.get_inputs(), inputs):
    dtype = torch.empty(0, dtype=x.dtype).numpy().dtype
    binding.bind_input(item.name, device, 0, dtype, x.shape, x.data_ptr())
for item in session.get_outputs():
    binding.bind_output(item.name, device)
if device == "cuda":  # each request: fill `inputs`, wait, run
    torch.cuda.current_stream().synchronize()  # it runs on another
session.run_with_iobinding(binding)
outputs = binding.copy_outputs_to_cpu()  # or get_outputs(), where they are"""


def _make_compile(mode: str) -> str:
    return f'mode = "{mode}"\n{_COMPILE[:-1]}, mode=mode)'


_LINES = {
    "aoti": f"{_PACKAGE}\n{_CALL}",
    "aoti-cuda-graph": f"{_PACKAGE_TO_CAPTURE}\n{_CAPTURE}",
    "capture": f"""\
import ftax
with torch.inference_mode():
    model = ftax.capture(model, inputs)
{_CALL}""",
    "compile": f"{_COMPILE}\n{_CALL}",
    "compile-capture": f"""\
import ftax
{_COMPILE}
with torch.inference_mode():
    model = ftax.capture(model, inputs)
{_CALL}""",
    "compile-max-autotune": f"{_make_compile('max-autotune-no-cudagraphs')}\n{_CALL}",
    "compile-reduce-overhead": f"{_make_compile('reduce-overhead')}\n{_CALL}",
    "cuda-graph": _CAPTURE,
    "eager-channels-last": f"""\
last = torch.channels_last
model = model.to(memory_format=last)  # inputs of every request, too
inputs = tuple(x.contiguous(memory_format=last) for x in inputs)
{_CALL}""",
    "eager-one-thread": f"torch.set_num_threads(1)  # once, before the first request\n{_CALL}",
    "onnxruntime": f"import onnxruntime\n{_SESSION}",
    "torchscript": f"{_TRACE}\n{_CALL}",
    "torchscript-cuda-graph": f"{_FREEZE}\n{_CAPTURE}",
    "torchscript-frozen": f"{_FREEZE}\n{_CALL}",
    "torchscript-optimized": f"{_FREEZE}\nmodel = torch.jit.optimize_for_inference(model)\n{_CALL}",
}


# In the caller's grad mode, and of no more runtimes: a step changes what it trains.
_LINES_OF_STEPS = {
    "capture": """\
import ftax
step = ftax.capture(step)
outputs = step(*inputs)  # each time""",
    "eager-one-thread": """\
torch.set_num_threads(1)  # once, before the first call
outputs = step(*inputs)  # each time""",
}


def find_lines(runtime: str, *, step: bool = False, exporter: str = "dynamo") -> str:
    """What puts that runtime in the place of ``model``, or of ``step``, in Python, with the
    exporter to ONNX that was used; "" if nothing does."""
    lines = (_LINES_OF_STEPS if step else _LINES).get(runtime, "")
    return lines if exporter == "dynamo" else lines.replace("dynamo=True", "dynamo=False")
