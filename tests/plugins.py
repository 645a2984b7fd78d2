"""Shared libraries that tests compile: the good one of the examples, and bad ones made from it.

The surprising choice: a bad library is the good one with a line or two changed, so that what a
check finds can only be that.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import ftax

SOURCE = Path(__file__).parents[1] / "examples" / "mlp_c" / "mlp.c"

# What is wrong with it: pieces of the good source, each followed by what takes its place.
FAULTS: dict[str, tuple[str, ...]] = {
    "wrong-version": (
        ".abi_version = FTAX_RUNNER_ABI_VERSION,",
        ".abi_version = FTAX_RUNNER_ABI_VERSION + 1,",
    ),
    "short-table": (".struct_size = sizeof(ftax_runner_api),", ".struct_size = 8,"),
    "null-function": (".synchronize = synchronize,", ".synchronize = NULL,"),
    "no-device": (".capabilities = FTAX_RUNS_ON_CPU,", ".capabilities = 0,"),
    "crashes-in-enqueue": (
        "  (void)stream; /* null on the CPU */",
        "  *(volatile int*)stream = 1;",
    ),
    "crashes-in-create": (
        "  *runner = calloc(1, sizeof **runner);",
        "  abort(); *runner = calloc(1, sizeof **runner);",
    ),
    "exits": ("  (void)stream; /* null on the CPU */", "  (void)stream; exit(7);"),
    "hangs": ("  (void)stream; /* null on the CPU */", "  while (stream == NULL) {}"),
    "writes-nothing": (
        "  linear(runner->hidden, rows, &s[SECOND_WEIGHT], s[SECOND_BIAS].data, 0, "
        "s[OUTPUT].data);",
        "",
    ),
    "inexact": (
        "  linear(runner->hidden, rows, &s[SECOND_WEIGHT], s[SECOND_BIAS].data, 0, "
        "s[OUTPUT].data);",
        "  linear(runner->hidden, rows, &s[SECOND_WEIGHT], s[SECOND_BIAS].data, 0, "
        "s[OUTPUT].data); s[OUTPUT].data[0] *= 1.1f;",
    ),
    "ignores-config": ("  if (*config != '\\0') {", "  if (config == NULL) {"),
    "ignores-names": (
        'return fail(runner, "no such tensor in a perceptron of two layers", name);',
        "return FTAX_OK;",
    ),
    "ignores-dtype": ("if (tensor->dtype != FTAX_FLOAT32)", "if (0)"),
    "ignores-shape": ("if (bound->data != NULL && !same_shape(bound, tensor))", "if (0)"),
    "runs-unbound": ("    if (s[slot].data == NULL) return", "    if (slot < 0) return"),
    "no-reason": ("  return runner != NULL ? runner->error : create_error;", "  return NULL;"),
    "keeps-old-memory": (
        "    bound->data = tensor->data;",
        "    if (bound->data == NULL) bound->data = tensor->data;",
    ),
    "shares-runners": (
        "  *runner = calloc(1, sizeof **runner);",
        "  static ftax_runner only; *runner = &only;",
        "  free(runner->hidden);\n  free(runner);",
        "",
    ),
    "one-thread": (
        "  (void)stream; /* null on the CPU */",
        "  extern int gettid(void), getpid(void); (void)stream; "
        'if (gettid() != getpid()) return fail(runner, "not my thread", "x");',
    ),
    "leaks": ("  free(runner->hidden);\n  free(runner);", "  free(runner);"),
    "allocates": (
        "  (void)stream; /* null on the CPU */",
        "  (void)stream; volatile char* memory = malloc(64); memory[0] = 1; free((void*)memory);",
    ),
}  # fmt: skip


def compile_c(folder: Path, fault: str | None = None) -> str:
    """Compile the example into `folder`, with one fault or none; the library's path."""
    text = SOURCE.read_text()
    if fault is not None:
        edits = iter(FAULTS[fault])
        for old, new in zip(edits, edits, strict=True):
            assert text.count(old) == 1, f"the example has changed: {old!r} is there no more"
            text = text.replace(old, new)
    source = folder / f"{fault or 'good'}.c"
    source.write_text(text)
    return _compile(["cc", "-std=c11", "-w"], source)


def compile_cpp(folder: Path, text: str) -> str:
    """Compile C++ that stands for a whole library."""
    source = folder / "library.cpp"
    source.write_text(text)
    return _compile(["c++", "-std=c++17", "-w"], source)


def _compile(command: list[str], source: Path) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]}")
    library = source.with_suffix(".so")
    include = f"-I{ftax.get_include()}"
    subprocess.run(
        [*command, "-O1", "-shared", "-fPIC", include, str(source), "-o", str(library)], check=True
    )
    return str(library)
