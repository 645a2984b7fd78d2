"""Shared libraries that tests compile: the good one of the examples, other good ones, and bad ones.

All are the one of the examples with a line or two changed, so that what a check finds can only be
that.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import ftax

SOURCE = Path(__file__).parents[2] / "examples" / "mlp_c" / "mlp.c"

_END = "const ftax_runner_api* ftax_get_runner_api(void) {"
_SIZE = ".struct_size = sizeof(ftax_runner_api),"
_ENQUEUE = "  (void)stream; /* null on the CPU */"
_LAST = "      .last_error = last_error,"


def _with_prepare(body: str, check: str = "") -> tuple[str, ...]:
    """Edits that add a prepare of that body, and `check` to enqueue."""
    return (
        _END,
        "static int32_t prepare_state(ftax_runner* runner, void* stream) {\n"
        f"  (void)runner; (void)stream;\n  {body}\n}}\n\n{_END}",
        _LAST,
        f"{_LAST}\n      .prepare = prepare_state,",
        _ENQUEUE,
        f"{_ENQUEUE}\n  {check}",
    )


# Other forms of it that are right, as edits: pieces of its source, each followed by what takes its
# place.
FORMS: dict[str, tuple[str, ...]] = {
    # Of a library older than the optional functions: what lies behind its table is not to be read.
    "short-table": (
        _END,
        "#include <stddef.h>\n"
        "static int32_t past_the_end(ftax_runner* runner, void* stream) { abort(); }\n\n" + _END,
        _SIZE,
        ".struct_size = offsetof(ftax_runner_api, synchronize),\n"
        "      .synchronize = past_the_end, .prepare = past_the_end,",
    ),
    # Of a library newer than this ftax, with functions that it does not know.
    "long-table": (
        "  static const ftax_runner_api api = {",
        "  static const struct { ftax_runner_api known; void (*later[3])(void); } api = {{",
        _SIZE,
        ".struct_size = sizeof api,",
        "  };\n  return &api;",
        "  }, {abort, abort, abort}};\n  return &api.known;",
    ),
    # An inference moves on, and the next has to find it where it was.
    "has-state": (
        "  int ready;",
        "  int position;\n  int ready;",
        *_with_prepare(
            "runner->position = 0; return FTAX_OK;",
            'if (runner->position++ != 0) return fail(runner, "is past its end", "position");',
        ),
    ),
    "slow-to-create": (
        "struct ftax_runner {",
        "#include <unistd.h>\nstruct ftax_runner {",
        "  *runner = calloc(1, sizeof **runner);",
        "  usleep(2000000); *runner = calloc(1, sizeof **runner);",
    ),
    # Writes down each call; prepare takes 20 ms and synchronize 2.
    "journal": (
        "struct ftax_runner {",
        "#include <unistd.h>\n"
        "static char calls[1 << 16]; static int count;\n"
        "static void note(char call) { if (count < (1 << 16) - 1) calls[count++] = call; }\n"
        "const char* read_calls(void) { return calls; }\n"
        "struct ftax_runner {",
        *_with_prepare("note('p'); usleep(20000); return FTAX_OK;", "note('e');"),
        "      .enqueue = enqueue,",
        "      .enqueue = enqueue, .synchronize = wait_for_it,",
        "static void destroy(",
        "static int32_t wait_for_it(ftax_runner* runner, void* stream) {\n"
        "  note('s'); usleep(2000); return FTAX_OK;\n}\n\nstatic void destroy(",
    ),
}

# What is wrong with it, as edits.
FAULTS: dict[str, tuple[str, ...]] = {
    "new-version": (
        ".abi_version = FTAX_RUNNER_ABI_VERSION,",
        ".abi_version = FTAX_RUNNER_ABI_VERSION + 1,",
    ),
    "too-short-table": (".struct_size = sizeof(ftax_runner_api),", ".struct_size = 56,"),
    "half-a-function": (".struct_size = sizeof(ftax_runner_api),", ".struct_size = 68,"),
    "null-function": (".bind = bind,", ".bind = NULL,"),
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
    "stops": (
        "  (void)stream; /* null on the CPU */",
        "  static int calls; (void)stream; if (calls++ > 9) return FTAX_OK;",
    ),
    "inexact": (
        "  linear(runner->hidden, rows, &s[SECOND_WEIGHT], s[SECOND_BIAS].data, 0, "
        "s[OUTPUT].data);",
        "  linear(runner->hidden, rows, &s[SECOND_WEIGHT], s[SECOND_BIAS].data, 0, "
        "s[OUTPUT].data); s[OUTPUT].data[0] *= 1.1f;",
    ),
    "ignores-config": ("  if (*config != '\\0') {", "  if (config == NULL) {"),
    "no-reason": ("  return runner != NULL ? runner->error : create_error;", "  return NULL;"),
    "prepare-fails": _with_prepare('return fail(runner, "cannot go back", "position");'),
    "prepare-computes": _with_prepare("return enqueue(runner, stream);"),
    "keeps-inputs": (
        "struct ftax_runner {",
        "static float kept[4 * 32];\nstruct ftax_runner {",
        *_with_prepare(
            "memcpy(kept, runner->slots[INPUT].data, sizeof kept); return FTAX_OK;",
            "memcpy(runner->slots[INPUT].data, kept, sizeof kept);",
        ),
    ),
    "synchronize-fails": (
        _END,
        "static int32_t wait_for_it(ftax_runner* runner, void* stream) {\n"
        '  return fail(runner, "no end in sight", "stream");\n}\n\n' + _END,
        _LAST,
        _LAST + "\n      .synchronize = wait_for_it,",
    ),
}  # fmt: skip


def compile_c(folder: Path, change: str | None = None) -> str:
    """Compile the example into `folder`, with one of `FORMS` or `FAULTS` or as it is; the library's
    path."""
    text = SOURCE.read_text()
    if change is not None:
        edits = iter((FORMS | FAULTS)[change])
        for old, new in zip(edits, edits, strict=True):
            assert text.count(old) == 1, f"the example has changed: {old!r} is there no more"
            text = text.replace(old, new)
    source = folder / f"{change or 'good'}.c"
    source.write_text(text)
    return _compile(["cc", "-std=gnu11", "-w"], source)


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


# A library built for version 1: its table as that version had it, whose functions nobody may call.
VERSION_1 = """
#include <stdint.h>
#include <stdlib.h>
typedef struct {
  uint32_t abi_version, struct_size;
  uint64_t capabilities;
  const char* name;
  void (*functions[6])(void); /* create, bind, enqueue, synchronize, destroy, last_error */
} api_1;
const api_1* ftax_get_runner_api(void) {
  static const api_1 api = {1, sizeof(api_1), 1, "old", {abort, abort, abort, abort, abort, abort}};
  return &api;
}
"""


def compile_text(folder: Path, text: str) -> str:
    """Compile C that stands for a whole library."""
    source = folder / "library.c"
    source.write_text(text)
    return _compile(["cc", "-std=gnu11", "-w"], source)


# Throws where its config says: "create" or "prepare".
THROWING = """
#include <cstring>
#include <stdexcept>
#include "ftax/runner.h"
struct ftax_runner {};
namespace {
int32_t create(const char* config, const ftax_context*, ftax_runner** runner) {
  if (std::strcmp(config, "prepare") != 0) throw std::runtime_error("no such config");
  *runner = new ftax_runner;
  return FTAX_OK;
}
int32_t bind(ftax_runner*, int32_t, const char*, const ftax_tensor*) { return FTAX_OK; }
int32_t enqueue(ftax_runner*, void*) { return FTAX_OK; }
int32_t prepare(ftax_runner*, void*) { throw std::runtime_error("no way back"); }
void destroy(ftax_runner* runner) { delete runner; }
const char* last_error(const ftax_runner*) { return "no"; }
}
extern "C" const ftax_runner_api* ftax_get_runner_api(void) {
  static const ftax_runner_api api = {FTAX_RUNNER_ABI_VERSION, sizeof(ftax_runner_api),
                                      FTAX_RUNS_ON_CPU, "throws", create, bind, enqueue,
                                      destroy, last_error, nullptr, prepare};
  return &api;
}
"""
