"""Kernel names for people: demangled by the C++ library that is loaded anyway, and shortened.

Template arguments are not cut but searched. Torch's kernels are generic and their names say nothing
("vectorized_elementwise_kernel"); what they compute is a functor or lambda inside the arguments, so
the innermost telling name is kept and types, sizes and policies are not.
"""

from __future__ import annotations

import ctypes
import re
import zlib
from collections import Counter
from collections.abc import Iterable
from functools import cache

# Names that fit every kernel: the argument alone says more.
_WRAPPERS = frozenset({"Kernel", "Kernel2", "device_kernel", "kernel"})
# Types, containers and memory policies: they do not say what is computed.
_UNTELLING = re.compile(
    "void|bool|char|short|int|long|float|double|unsigned|signed|size_t|u?int(8|16|32|64)_t|half"
    "|__half2?|__nv_bfloat16|Half|BFloat16|Float8_e4m3fn|Float8_e5m2|complex|true|false|[Aa]rray"
    "|tuple|(Trivial)?OffsetCalculator|(Load|Store)With(out)?Cast|integral_constant|std"
    "|(integer|index)_sequence|half_t|b?t?float(16|32)_t|float_e[45]m[23]_t"
)
_NAME = re.compile(r"[A-Za-z_]\w*")
_OPEN, _CLOSE = "<({[", ">)}]"


@cache
def demangle(name: str) -> str:
    """Return the C++ name behind a mangled one; any other name as it is."""
    library = _load_demangler()
    if library is None or not name.startswith("_Z"):
        return name
    status = ctypes.c_int()
    address = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if not address:
        return name
    try:
        return ctypes.string_at(address).decode()
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(address))


@cache
def shorten(name: str) -> str:
    """Return a kernel's name without namespaces, parameters and untelling template arguments.

    The name may be mangled. Different kernels can have equal short names; see `shorten_all`.
    """
    text = demangle(name).replace("(anonymous namespace)::", "")
    text = re.sub(r"\s*\[clone [^]]*\]$", "", text)
    return _shorten_function(text) or name


def shorten_all(names: Iterable[str]) -> dict[str, str]:
    """Return a short name for each name, told apart by a checksum where two would be equal."""
    short = {name: shorten(name) for name in names}
    uses = Counter(short.values())
    return {
        name: text if uses[text] == 1 else f"{text}~{zlib.crc32(name.encode()) & 0xFFFF:04x}"
        for name, text in short.items()
    }


def _shorten_function(text: str) -> str | None:
    head = _cut_at(text, "(")
    if head is None:
        return None
    base, arguments = _split_template(head)
    base = base.rsplit(" ", 1)[-1].rsplit("::", 1)[-1]
    telling = list(dict.fromkeys(filter(None, map(_find_telling, arguments))))
    if not telling or not base:
        return base or None
    if base in _WRAPPERS:
        return telling[0]
    return f"{base}<{', '.join(telling[:2])}>"


def _find_telling(argument: str) -> str | None:
    """Return the innermost name in a template argument that says what is computed."""
    if argument.lstrip().startswith("("):  # a cast, as in (bool)1
        return None
    head = _cut_at(argument, "(")  # of a lambda's path: the function that it is written in
    if head is None:
        return None
    base, arguments = _split_template(head.removesuffix("::operator"))
    words = [word for word in base.split() if word not in ("const", "volatile")]
    name = words[0].rsplit("::", 1)[-1].rstrip("*&") if words else ""
    if not _NAME.fullmatch(name) or _UNTELLING.fullmatch(name):
        return None
    for inner in arguments:
        found = _find_telling(inner)
        if found is not None:
            return found
    return name


def _cut_at(text: str, stop: str) -> str | None:
    """Return the text before the first `stop` outside of brackets; None if they do not match."""
    depth = 0
    for index, letter in enumerate(text):
        if depth == 0 and letter == stop:
            return text[:index]
        depth += (letter in _OPEN) - (letter in _CLOSE)
        if depth < 0:
            return None
    return text if depth == 0 else None


def _split_template(text: str) -> tuple[str, list[str]]:
    """Split `a::b<c, d<e>>` into `a::b` and its arguments, those of the last component."""
    start, depth = None, 0
    arguments: list[str] = []
    base = ""
    for index, letter in enumerate(text):
        if letter == "<":
            if depth == 0:
                start, arguments = index + 1, []
            depth += 1
        if depth == 0:
            base += letter
        if letter in "({[":
            depth += 1
        elif letter in ">)}]":
            depth -= 1
        if start is not None and ((letter == ">" and depth == 0) or (letter == "," and depth == 1)):
            arguments.append(text[start:index].strip())
            start = index + 1 if letter == "," else None
    return base.strip(), arguments


@cache
def _load_demangler() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        library.__cxa_demangle.restype = ctypes.c_void_p
    except (OSError, AttributeError):
        return None
    return library
