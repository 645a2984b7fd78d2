"""Offsets in the memory of Python against what a compiler makes of its headers, and bytecodes
against those that it names."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ftax_run.errors import UnknownPythonError
from ftax_run.frames import make_table
from ftax_run.layouts import DESCRIBED_BYTES, FIELDS, find_layout
from ftax_run.python_process import find_python

Launch = Callable[..., subprocess.Popen[str]]
Ask = Callable[..., str]

SLEEP = "import time\nprint('ready', flush=True)\ntime.sleep(60)\n"
OFFSETS = r"""
#define Py_BUILD_CORE 1
#include <Python.h>
#include <stddef.h>
#include <stdio.h>
#include "internal/pycore_frame.h"
#include "internal/pycore_runtime.h"
#include "internal/pycore_interp.h"

#define SAY(name, value) printf("%s %ld\n", #name, (long)(value))
#define FRAME(member) offsetof(struct _PyInterpreterFrame, member)

int main(void) {
  SAY(runtime_interpreter, offsetof(_PyRuntimeState, interpreters.main));
  SAY(interpreter_threads, offsetof(PyInterpreterState, threads.head));
  SAY(thread_next, offsetof(PyThreadState, next));
  SAY(thread_native_id, offsetof(PyThreadState, native_thread_id));
  SAY(thread_chunk, offsetof(PyThreadState, datastack_chunk));
  SAY(frame_previous, FRAME(previous));
  SAY(frame_owner, FRAME(owner));
  SAY(frame_size, FRAME(localsplus));
#if PY_VERSION_HEX >= 0x030d0000
  SAY(thread_frame, offsetof(PyThreadState, current_frame));
  SAY(cframe_frame, -1);
  SAY(frame_code, FRAME(f_executable));
  SAY(frame_instruction, FRAME(instr_ptr));
#else
  SAY(thread_frame, offsetof(PyThreadState, cframe));
  SAY(cframe_frame, offsetof(_PyCFrame, current_frame));
  SAY(frame_code, FRAME(f_code));
  SAY(frame_instruction, FRAME(prev_instr));
#endif
#if PY_VERSION_HEX >= 0x030e0000
  SAY(owned_by_c, FRAME_OWNED_BY_INTERPRETER);
#elif PY_VERSION_HEX >= 0x030c0000
  SAY(owned_by_c, FRAME_OWNED_BY_CSTACK);
#else
  SAY(owned_by_c, -1);
#endif
  SAY(object_type, offsetof(PyObject, ob_type));
  SAY(code_filename, offsetof(PyCodeObject, co_filename));
  SAY(code_qualname, offsetof(PyCodeObject, co_qualname));
  SAY(code_first_line, offsetof(PyCodeObject, co_firstlineno));
  SAY(code_line_table, offsetof(PyCodeObject, co_linetable));
  SAY(code_bytes, offsetof(PyCodeObject, co_code_adaptive));
  SAY(text_length, offsetof(PyASCIIObject, length));
  SAY(text_state, offsetof(PyASCIIObject, state));
  SAY(text_ascii, sizeof(PyASCIIObject));
  SAY(text_compact, sizeof(PyCompactUnicodeObject));
  SAY(bytes_size, offsetof(PyVarObject, ob_size));
  SAY(bytes_data, offsetof(PyBytesObject, ob_sval));
  return 0;
}
"""
CHUNKS = r"""
#include <Python.h>
#include <stddef.h>
#include <stdio.h>
int main(void) {
  printf("%zu %zu %zu", offsetof(_PyStackChunk, previous), offsetof(_PyStackChunk, size),
         offsetof(_PyStackChunk, top));
  return 0;
}
"""


def compile_and_run(source: str, python: str, ask: Ask, folder: Path) -> str:
    compiler = shutil.which("gcc")
    include = Path(ask(python, "import sysconfig; print(sysconfig.get_path('include'))").strip())
    if compiler is None or not (include / "internal").is_dir():
        pytest.skip("there is no gcc, or there are no headers of this Python")
    (folder / "say.c").write_text(source)
    subprocess.run(
        [
            compiler, "-w", f"-I{include}", f"-I{include / 'internal'}", str(folder / "say.c"),
            "-o", str(folder / "say"),
        ],
        check=True, timeout=60,
    )  # fmt: skip
    return subprocess.run(
        [folder / "say"], stdout=subprocess.PIPE, text=True, check=True, timeout=60
    ).stdout


def test_offsets_are_those_of_the_headers(
    python: str, launch: Launch, ask: Ask, tmp_path: Path
) -> None:
    said = compile_and_run(OFFSETS, python, ask, tmp_path)
    wanted = {name: int(value) for name, value in map(str.split, said.splitlines())}
    found = find_python(launch(python, SLEEP).pid)
    assert found is not None
    assert dict(zip(FIELDS, found.layout, strict=True)) == wanted


def test_heads_of_blocks_of_frames(python: str, ask: Ask, tmp_path: Path) -> None:
    assert compile_and_run(CHUNKS, python, ask, tmp_path).split() == ["0", "8", "16"]


@pytest.mark.parametrize("version", [(3, 9), (3, 10), (3, 15), (2, 7), (4, 0)])
def test_versions_that_are_not_known(version: tuple[int, int]) -> None:
    with pytest.raises(UnknownPythonError, match=f"{version[0]}.{version[1]}"):
        find_layout(version, lambda count: b"xdebugpy" + bytes(count - 8))


@pytest.mark.parametrize("version", [(3, 11), (3, 12)])
def test_what_is_in_the_table_is_not_read(version: tuple[int, int]) -> None:
    def read(count: int) -> bytes:
        raise AssertionError(count)

    layout = find_layout(version, read)
    assert len(layout) == len(FIELDS)


# What 3.14.10 says of itself after the cookie, and where its headers have these fields.
DESCRIPTION_314 = (
    51251952, 0, 316616, 784, 808, 225864, 7280, 7272, 7344, 7360, 7408, 7688, 7672, 7680, 16, 7784,
    0, 7800, 7792, 7992, 0, 832, 0, 8, 16, 72, 152, 160, 232, 32, 88, 8, 0, 56, 80, 74, 64, 0, 216,
    112, 120, 128, 136, 68, 52, 96, 104, 208, 0, 16, 8, 416, 24, 88, 168, 40, 32, 16, 40, 24, 16,
    200, 24, 40, 32, 48, 32, 40, 24, 16, 32, 16, 24, 40, 16, 32, 64, 32, 16, 40,
)  # fmt: skip
LAYOUT_314 = {
    "runtime_interpreter": 816, "interpreter_threads": 7344, "thread_next": 8, "thread_frame": 72,
    "cframe_frame": -1, "thread_native_id": 160, "thread_chunk": 232, "frame_previous": 8,
    "frame_code": 0, "frame_instruction": 56, "frame_owner": 74, "frame_size": 80, "owned_by_c": 3,
    "object_type": 8, "code_filename": 112, "code_qualname": 128, "code_first_line": 68,
    "code_line_table": 136, "code_bytes": 208, "text_length": 16, "text_state": 32,
    "text_ascii": 40, "text_compact": 56, "bytes_size": 16, "bytes_data": 32,
}  # fmt: skip


def test_what_a_python_says_of_itself() -> None:
    content = b"xdebugpy" + struct.pack(f"<{len(DESCRIPTION_314)}Q", *DESCRIPTION_314)
    layout = find_layout((3, 14), lambda count: content[:count])
    assert dict(zip(FIELDS, layout, strict=True)) == LAYOUT_314


@pytest.mark.parametrize("version", [(3, 13), (3, 14)])
def test_a_python_that_does_not_describe_itself(version: tuple[int, int]) -> None:
    with pytest.raises(UnknownPythonError, match=r"3\.1[34]"):
        find_layout(version, bytes)


@pytest.mark.parametrize("version", [(3, 13), (3, 14)])
def test_a_free_threaded_python(version: tuple[int, int]) -> None:
    def read(count: int) -> bytes:
        assert count == DESCRIBED_BYTES
        return b"xdebugpy" + bytes(8) + (1).to_bytes(8, "little") + bytes(count - 24)

    with pytest.raises(UnknownPythonError, match="free-threaded"):
        find_layout(version, read)


# Calls, and operators of objects, whose code may be C's. A version has some of them.
CALLS = {
    "CALL", "CALL_FUNCTION_EX", "CALL_KW", "CALL_BUILTIN_CLASS", "CALL_BUILTIN_FAST",
    "CALL_BUILTIN_FAST_WITH_KEYWORDS", "CALL_BUILTIN_O", "CALL_METHOD_DESCRIPTOR_FAST",
    "CALL_METHOD_DESCRIPTOR_FAST_WITH_KEYWORDS", "CALL_METHOD_DESCRIPTOR_NOARGS",
    "CALL_METHOD_DESCRIPTOR_O", "CALL_NON_PY_GENERAL", "CALL_KW_NON_PY", "WITH_EXCEPT_START",
    "INSTRUMENTED_CALL", "INSTRUMENTED_CALL_KW", "INSTRUMENTED_CALL_FUNCTION_EX", "IMPORT_NAME",
}  # fmt: skip
OPERATORS = {
    "BINARY_OP", "BINARY_SLICE", "BINARY_SUBSCR", "COMPARE_OP", "CONTAINS_OP", "DELETE_SUBSCR",
    "DICT_MERGE", "FOR_ITER", "GET_ITER", "LIST_EXTEND", "LOAD_ATTR", "SEND", "STORE_ATTR",
    "STORE_SLICE", "STORE_SUBSCR", "TO_BOOL", "UNARY_INVERT", "UNARY_NEGATIVE", "UNARY_NOT",
    "UNPACK_SEQUENCE", "BEFORE_WITH", "BEFORE_ASYNC_WITH", "FORMAT_VALUE", "FORMAT_SIMPLE",
    "FORMAT_WITH_SPEC",
}  # fmt: skip
LIST_OPCODES = """
import dis, json, opcode, sys
known = getattr(dis, "_all_opmap", None) or {**opcode.opmap, **opcode._specialized_opmap}
print(json.dumps([sys.version_info[:2], known]))
"""


def get_opcodes(python: str, ask: Ask) -> tuple[tuple[int, int], dict[str, int]]:
    """The version, and the numbers of all bytecodes, specialised ones included."""
    version, opcodes = json.loads(ask(python, LIST_OPCODES))
    return (version[0], version[1]), opcodes


def test_bytecodes_from_which_c_may_run(python: str, ask: Ask) -> None:
    version, opcodes = get_opcodes(python, ask)
    found = {
        name for name, number in opcodes.items() if number < 256 and make_table(version)[number]
    }
    # As they were called in 3.11 and 3.12.
    others = {name for name in found if re.match("PRECALL|CALL_NO_KW|.*_ADAPTIVE$", name)}
    assert found - others <= CALLS | OPERATORS
    assert {name for name in opcodes if name in CALLS | OPERATORS} - found == set()
    for name in ("CALL", "CALL_FUNCTION_EX", "BINARY_OP", "STORE_SUBSCR"):
        assert name in found


INTO_C = {
    "once": "time.sleep(60)",
    "often": "for seconds in [0.0] * 5000 + [60.0]:\n    time.sleep(seconds)",
    "spread": "time.sleep(*[60])",
    "product": (
        "from decimal import Decimal, getcontext\n"
        "getcontext().prec = 400_000\n"
        "huge = Decimal(3) ** 100_000\n"
        "while True:\n    huge * huge"
    ),
}


@pytest.mark.parametrize("work", INTO_C)
def test_samples_in_c_stand_at_such_a_bytecode(
    python: str, launch: Launch, look: Callable[..., Any], ask: Ask, work: str
) -> None:
    version, _ = get_opcodes(python, ask)
    program = launch(python, f"import time\nprint('ready', flush=True)\n{INTO_C[work]}\n")
    seen = look([program.pid], seconds=0.3)
    late = seen.samples[len(seen.samples) // 2 :]
    assert np.mean(make_table(version)[late["opcode"] & 255]) > 0.95
