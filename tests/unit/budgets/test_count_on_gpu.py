"""What a GPU did, counted in traces made by hand."""

from ftax.budgets.count_on_gpu import place, tally_trace
from ftax.budgets.places import Place
from support.traces import make_call, make_kernel, make_trace, make_window

WINDOWS = (make_window(1000, 2000, 1800), make_window(3000, 4000, 3800))
# Of each iteration, its times from the begin. The runtime's launch is made of a driver's.
CALLS = (  # start, end and what they launch, by name, domain and thread
    (100, 150, 1, "cudaLaunchKernel", "runtime", 42),
    (110, 140, 1, "cuLaunchKernel", "driver", 42),
    (200, 250, 2, "cudaGraphLaunch", "runtime", 42),
    (300, 700, 3, "cudaStreamSynchronize", "runtime", 42),
    (710, 790, 4, "cudaEventSynchronize", "runtime", 7),
    (810, 990, 5, "cudaStreamSynchronize", "runtime", 42),
)


def make_whole_trace(*more_kernels):
    begins = [window.begin_ns for window in WINDOWS]
    calls = [
        make_call(
            begin + start, begin + end, begin + launch, name=name, domain=domain, thread_id=thread
        )
        for begin in begins
        for start, end, launch, name, domain, thread in CALLS
    ]
    kernels = [
        make_kernel(begin + start, begin + start + 50, name, correlation_id=begin + launch)
        for begin in begins
        for start, name, launch in ((200, "copy", 1), (300, "gemm", 2), (400, "gemm", 2))
    ]
    return make_trace(iterations=WINDOWS, kernels=(*kernels, *more_kernels), api_calls=tuple(calls))


def test_kernels_launches_and_waits_of_the_step_alone():
    found = tally_trace(make_whole_trace())
    assert {
        kind: {fact.key: fact.count for fact in tally.facts} for kind, tally in found.items()
    } == {
        "kernels": {"copy": 1, "gemm": 2},
        "launches": {"cudaLaunchKernel": 1},
        "graph_launches": {"cudaGraphLaunch": 1},
        "synchronisations": {
            "cudaStreamSynchronize": 1,  # the last one is the iteration's own
            "cudaEventSynchronize in another thread": 1,
        },
    }


def test_iterations_that_differ_are_no_count():
    one_more = make_kernel(3500, 3550, "copy", correlation_id=3001)
    assert tally_trace(make_whole_trace(one_more))["kernels"].problem


class Lines:
    """A line for each of CUPTI's times; of another thread only a backward pass's."""

    def find(self, time_ns, *, in_other_thread=False):
        return Place() if in_other_thread else Place(f"at a.py in f: line {time_ns}", "a.py:1")


def test_what_is_seen_is_at_the_line_that_ran():
    found = tally_trace(make_whole_trace(), Lines())
    facts = {kind: [fact.key for fact in tally.facts] for kind, tally in found.items()}
    assert facts == {
        "kernels": ["copy at a.py in f: line 1100", "gemm at a.py in f: line 1200"],
        "launches": ["cudaLaunchKernel at a.py in f: line 1100"],
        "graph_launches": ["cudaGraphLaunch at a.py in f: line 1200"],
        "synchronisations": [
            "cudaEventSynchronize in another thread",
            "cudaStreamSynchronize at a.py in f: line 1300",
        ],
    }


def test_places_are_given_where_both_traces_have_the_same():
    one_more = (make_kernel(1500, 1550, "copy", correlation_id=1001),
                make_kernel(3500, 3550, "copy", correlation_id=3001))  # fmt: skip
    counted = tally_trace(make_whole_trace())
    found = place(counted, tally_trace(make_whole_trace(*one_more), Lines()))
    assert {kind: tally.total for kind, tally in found.items()} == {
        kind: tally.total for kind, tally in counted.items()
    }
    assert [fact.where for fact in found["kernels"].facts] == ["", ""]
    assert found["launches"].facts[0].where == "at a.py in f: line 1100"
