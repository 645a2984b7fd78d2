"""A thread that samples itself: what it does for microseconds is met, and whose code it runs."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import ftax_run
import numpy as np
import pytest
from ftax_run.frames import Places
from ftax_run.sampler import News, Sampler

PYTHON, LIBRARY = 1, 2


def spin(nanoseconds: int) -> None:
    end = time.perf_counter_ns() + nanoseconds
    while time.perf_counter_ns() < end:
        pass


def first() -> None:
    spin(20_000)


def second() -> None:
    spin(10_000)


def hash_much(content: bytes = bytes(200_000)) -> None:
    hashlib.sha256(content).digest()


def list_regions() -> Iterator[tuple[int, int, int]]:
    executable = os.readlink("/proc/self/exe")
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, access, _, _, _, *name = line.split(maxsplit=5)
        if "x" in access and name:
            number = LIBRARY * ("libcrypto" in name[0]) or PYTHON * (
                name[0] == executable or "libpython" in name[0]
            )
            begin, end = addresses.split("-")
            yield from [(int(begin, 16), int(end, 16), number)] if number else []


def sample(work: Callable[[], object], seconds: float = 0.5) -> News:
    work()
    with Sampler(4000) as sampler:
        sampler.add_own_thread(list_regions())
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            work()
        return sampler.drain()


@pytest.mark.timing
def test_functions_of_microseconds_have_their_shares() -> None:
    def work() -> None:
        first()
        second()

    news, places = sample(work), Places()
    places.learn(news.stacks, news.codes)
    found = [[name for _, _, name in places.list_frames(int(s))] for s in news.samples["stack"]]
    names = Counter(name for frames in found for name in frames if name in ("first", "second"))
    assert len(news.samples) > 300 and news.torn < 0.05 * len(news.samples)
    assert names["first"] / names.total() == pytest.approx(2 / 3, rel=0.15)
    assert np.mean(news.samples["region"] == PYTHON) > 0.9


def test_a_sample_tells_whose_machine_code_runs() -> None:
    news = sample(hash_much)
    assert np.mean(news.samples["region"] == LIBRARY) > 0.8


def test_a_program_that_handles_the_signal_is_left_alone() -> None:
    signal.signal(signal.SIGPROF, lambda *_: None)
    try:
        with pytest.raises(OSError, match="another profiler handles SIGPROF"):
            sample(first, 0.0)
    finally:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)


def test_one_thread_is_sampled_at_a_time() -> None:
    first()
    with Sampler(1000) as sampler, Sampler(1000) as other:
        sampler.add_own_thread([])
        with pytest.raises(OSError, match="another profiler handles SIGPROF"):
            other.add_own_thread([])
        signal.raise_signal(signal.SIGPROF)  # of somebody else's: it is no harm
    assert signal.getsignal(signal.SIGPROF) is signal.SIG_DFL


def test_the_signal_means_afterwards_what_it_meant_before() -> None:
    for _ in range(2):
        sample(first, 0.02)
    assert signal.getsignal(signal.SIGPROF) is signal.SIG_DFL
    source = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_own_thread import first, sample\n"
        "import os, signal\n"
        "sample(first, 0.02)\n"
        "os.kill(os.getpid(), signal.SIGPROF)\n"
    )
    done = subprocess.run([sys.executable, "-c", source, str(Path(__file__).parent)], timeout=60)
    assert done.returncode == -signal.SIGPROF


def test_a_thread_that_blocks_the_signal_is_not_met_and_goes_on() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPROF])
    try:
        assert len(sample(first, 0.05).samples) == 0
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)  # what was asked arrives now
    assert len(sample(first, 0.2).samples) > 5


PROGRAM = """
import ctypes, json, os, struct, sys, threading, time
from collections import Counter
sys.path.insert(0, sys.argv[1])
from ftax_run.python_process import find_python

def spin(end):
    while time.perf_counter_ns() < end: pass

def make():
    for number in range(2):
        spin(time.perf_counter_ns() + 20_000)
        yield number

def use():
    for number in make(): spin(time.perf_counter_ns() + 20_000)

class News(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in
                ("samples", "count", "stacks", "words", "codes", "bytes", "torn", "lost",
                 "forgotten_stacks", "forgotten_codes")]

process = find_python(os.getpid())
library = ctypes.CDLL(sys.argv[2])
library.ftax_sampler_start.restype = ctypes.c_void_p
handle = ctypes.c_void_p(library.ftax_sampler_start(ctypes.c_int64(250_000)))
layout = (ctypes.c_int32 * len(process.layout))(*process.layout)
assert library.ftax_sampler_add_own(
    handle, threading.get_native_id(), layout, ctypes.c_uint64(process.runtime),
    ctypes.c_uint64(process.code_type), None, ctypes.c_uint64(0)) == 0
end = time.monotonic() + 0.5
while time.monotonic() < end: use()
news = News()
library.ftax_sampler_drain(handle, ctypes.byref(news))
names = {}
for line in ctypes.string_at(news.codes, news.bytes).decode().splitlines():
    number, _, _, name, _ = line.split(" ")
    names[int(number)] = bytes.fromhex(name.partition(":")[2]).decode()
words = struct.unpack(f"<{news.words}I", ctypes.string_at(news.stacks, 4 * news.words))
stacks, place = {}, 0
while place < len(words):
    number, count = words[place : place + 2]
    place += 2
    stacks[number] = " ".join(names[code] for code in words[place : place + 2 * count : 2])
    place += 2 * count
samples = ctypes.string_at(news.samples, 32 * news.count)
found = Counter(stacks[sample[3]] for sample in struct.iter_unpack("<qiiIHBBQ", samples))
library.ftax_sampler_stop(handle)
print(json.dumps([found, news.torn]))
"""


@pytest.mark.timing
def test_each_python_is_read_from_within(python: str, ask: Callable[..., str]) -> None:
    package = Path(ftax_run.__file__).parent
    answer = ask(python, PROGRAM, str(package.parent), str(package / "libftax_sampler.so"))
    found, torn = json.loads(answer)
    total = sum(found.values())
    assert total > 200 and torn < 0.05 * total
    for stack in ("spin use <module>", "spin make use <module>"):
        assert 0.35 < found[stack] / total < 0.6, found
