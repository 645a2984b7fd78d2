"""Where the parts of Python's frames lie in the memory of a process, by its version.

From 3.13 on Python says so itself, at the start of `_PyRuntime`. For 3.11 and 3.12 there is a table
of the offsets that their headers give; a release of a minor version never changes them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from ftax_run.errors import UnknownPythonError

# In the order of `ftax::sampler::Layout` (csrc/sampler/layout.h).
FIELDS = (
    "runtime_interpreter", "interpreter_threads", "thread_next", "thread_frame", "cframe_frame",
    "thread_native_id", "thread_chunk", "frame_previous", "frame_code", "frame_instruction",
    "frame_owner", "frame_size", "owned_by_c", "object_type", "code_filename", "code_qualname",
    "code_first_line", "code_line_table", "code_bytes", "text_length", "text_state", "text_ascii",
    "text_compact", "bytes_size", "bytes_data",
)  # fmt: skip
_ALIKE = {
    "object_type": 8, "text_length": 16, "text_state": 32, "bytes_size": 16, "bytes_data": 32,
    "code_filename": 112, "code_qualname": 128, "code_line_table": 136,
    "frame_instruction": 56, "frame_size": 72, "thread_next": 8,
}  # fmt: skip
_TABLE: dict[tuple[int, int], dict[str, int]] = {
    (3, 11): {
        "runtime_interpreter": 48, "interpreter_threads": 16, "thread_frame": 56, "cframe_frame": 8,
        "thread_native_id": 160, "thread_chunk": 296, "frame_previous": 48, "frame_code": 32,
        "frame_owner": 69, "owned_by_c": -1, "code_first_line": 72, "code_bytes": 184,
        "text_ascii": 48, "text_compact": 72,
    },
    (3, 12): {
        "runtime_interpreter": 48, "interpreter_threads": 72, "thread_frame": 56, "cframe_frame": 0,
        "thread_native_id": 144, "thread_chunk": 232, "frame_previous": 8, "frame_code": 0,
        "frame_owner": 70, "owned_by_c": 3, "code_first_line": 68, "code_bytes": 192,
        "text_ascii": 40, "text_compact": 56,
    },
}  # fmt: skip
# Of `_Py_DebugOffsets`, each an unsigned number of 8 bytes, by its place after the cookie.
_PLACES: dict[tuple[int, int], dict[str, int]] = {
    (3, 13): {
        "free_threaded": 1, "interpreters_head": 4, "interpreter_threads": 8, "thread_next": 20,
        "thread_frame": 22, "thread_native_id": 24, "thread_chunk": 25, "frame_previous": 28,
        "frame_code": 29, "frame_instruction": 30, "frame_size": 31, "frame_owner": 32,
        "code_filename": 34, "code_qualname": 36, "code_line_table": 37, "code_first_line": 38,
        "code_bytes": 42, "object_type": 44, "bytes_size": 64, "bytes_data": 65, "text_state": 67,
        "text_length": 68, "text_ascii": 69,
    },
    (3, 14): {
        "free_threaded": 1, "interpreters_head": 4, "interpreter_threads": 8, "thread_next": 23,
        "thread_frame": 25, "thread_native_id": 27, "thread_chunk": 28, "frame_previous": 31,
        "frame_code": 32, "frame_instruction": 33, "frame_size": 34, "frame_owner": 35,
        "code_filename": 39, "code_qualname": 41, "code_line_table": 42, "code_first_line": 43,
        "code_bytes": 47, "object_type": 50, "bytes_size": 74, "bytes_data": 75, "text_state": 77,
        "text_length": 78, "text_ascii": 79,
    },
}  # fmt: skip
DESCRIBED_BYTES = 8 * 81


def find_layout(version: tuple[int, int], read: Callable[[int], bytes]) -> list[int]:
    """The offsets for a version, in the order of `FIELDS`; ``read`` gives so many bytes of
    `_PyRuntime`. Raises UnknownPythonError for one whose frames are not known."""
    name = ".".join(map(str, version))
    if version in _TABLE:
        layout = _ALIKE | _TABLE[version]
    elif version in _PLACES:
        layout = _read_description(name, read(DESCRIBED_BYTES), _PLACES[version])
    else:
        raise UnknownPythonError(f"frames of Python {name} are not known (3.11 to 3.14 are)")
    return [layout[field] for field in FIELDS]


def _read_description(name: str, content: bytes, places: Mapping[str, int]) -> dict[str, int]:
    if content[:8] != b"xdebugpy":
        raise UnknownPythonError(f"this Python {name} does not say where its frames lie")
    numbers = struct.unpack_from(f"<{len(content) // 8 - 1}Q", content, 8)
    found = {field: numbers[place] for field, place in places.items()}
    if found["free_threaded"]:
        raise UnknownPythonError(f"frames of a free-threaded Python {name} are not known")
    # The main interpreter stands behind the head of the list in the same struct.
    found |= {"runtime_interpreter": found["interpreters_head"] + 8, "cframe_frame": -1,
              "owned_by_c": 3, "text_compact": found["text_ascii"] + 16}  # fmt: skip
    return found
