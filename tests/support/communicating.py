"""Calls that communicate, captured by two ranks that each decide alone."""

import json
from pathlib import Path
from typing import Any

from support.ranks import run_ranks

Results = list[dict[str, Any]]

# Both ranks run all of it, one part after the other: to start two processes takes seconds.
COMMUNICATING = """
import json, warnings

results = {}
functional = torch.ops._c10d_functional

def draw(seed, *shape):
    own = torch.Generator().manual_seed(100 * rank + seed)
    return torch.randn(*(shape or (4, 8)), generator=own).to(device)

def compare(name, original, fast, calls=20):
    same = all(torch.equal(original(draw(seed)), fast(draw(seed))) for seed in range(calls))
    note(name, fast, same)

def note(name, fast, same, **more):
    stats = fast.stats()
    results[name] = dict(
        same=same, replayed=stats.replayed, original=stats.original, checked=stats.checked,
        kinds=sorted({program.kind for program in fast.explain().programs}), **more
    )

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 8)
        self.scale = 1.0

# --- collectives --------------------------------------------------------------------------------
net = Net().to(device)

def tensor_parallel(x):
    y = net.second(torch.relu(net.first(x)))
    dist.all_reduce(y)
    return y * net.scale

def every_kind(x):
    gathered, part = x.new_empty(8, 8), x.new_empty(2, 8)
    dist.all_gather_into_tensor(gathered, x)
    dist.reduce_scatter_tensor(part, x * 2)
    root = x.clone()
    dist.broadcast(root, 1)
    dist.reduce(root, 0)
    swapped = torch.empty_like(x)
    dist.all_to_all_single(swapped, x)
    dist.barrier()
    return gathered, part, root if rank == 0 else x, swapped

def functional_sum(x):
    y = functional.wait_tensor(functional.all_reduce(x, "sum", dist.group.WORLD.group_name))
    return y + 1

def overlapping(x):
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    z = torch.relu(x) + 1
    work.wait()
    return y + z

def flat(call):
    return lambda x: torch.cat([item.flatten() for item in call(x)])

with torch.no_grad():
    for call in (tensor_parallel, overlapping, functional_sum):
        compare(call.__name__, call, ftax.capture(call, (draw(0),)))
    if device.type == "cpu" or backend == "nccl":  # gloo has few for GPUs
        fast = ftax.capture(every_kind, (draw(0),))
        same = all(torch.equal(flat(every_kind)(draw(i)), flat(fast)(draw(i))) for i in range(9))
        note("every_kind", fast, same)

    group = dist.new_group([0, 1])

    def in_a_group(x):
        y = x + 1
        dist.all_reduce(y, group=group)
        return y

    compare("in_a_group", in_a_group, ftax.capture(in_a_group, (draw(0),)))

# --- ranks that go different ways ---------------------------------------------------------------
def one_is_refused(x):
    if rank == 1:
        x = x + x.sum().item() * 0  # a number of the inputs
    y = x * 2
    dist.all_reduce(y)
    return y

with torch.no_grad(), warnings.catch_warnings(record=True):
    fast = ftax.capture(one_is_refused, (draw(0),), on_refusal="eager")
    compare("one_is_refused", one_is_refused, fast)

    fast = ftax.capture(tensor_parallel, (draw(0),))
    same = True
    for seed in range(12):
        net.scale = 2.0 if rank == 1 and seed in (3, 4, 8) else 1.0
        same &= torch.equal(tensor_parallel(draw(seed)), fast(draw(seed)))
    note("one_misses_a_guard", fast, same)

    fast = ftax.capture(tensor_parallel, (draw(0),))
    fast.audit(5 if rank == 0 else 2)
    compare("one_checks_more", tensor_parallel, fast)

    net.scale = 1.0
    fast = ftax.capture(tensor_parallel, (draw(0),), ignore=("scale",))
    same = [torch.equal(tensor_parallel(draw(i)), fast(draw(i))) for i in range(4)]
    net.scale = 2.0 if rank == 1 else 1.0  # which nothing compares but a check
    same += [torch.equal(tensor_parallel(draw(i)), fast(draw(i))) for i in range(20)]
    note("one_check_finds_a_difference", fast, same[:4] == [True] * 4 and same[8:] == [True] * 16)

# --- training -----------------------------------------------------------------------------------
def make(normalises, **options):
    torch.manual_seed(3)
    middle = nn.BatchNorm1d(16) if normalises else nn.Identity()
    model = nn.Sequential(nn.Linear(8, 16), middle, nn.ReLU(), nn.Linear(16, 4)).to(device)
    wrapped = nn.parallel.DistributedDataParallel(model, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)

    def step(x):
        optimizer.zero_grad()
        loss = wrapped(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    def accumulate(x):
        optimizer.zero_grad()
        with wrapped.no_sync():
            wrapped(x).square().mean().backward()
        loss = wrapped(x + 1).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, wrapped, step, accumulate

def train(name, normalises=False, accumulates=False, **options):
    (one, _, *steps), (other, _, *others) = (make(normalises, **options) for _ in range(2))
    step = steps[accumulates]
    fast = ftax.capture(others[accumulates], (draw(0),))
    same = True
    for seed in range(30):
        same &= torch.equal(step(draw(seed)), fast(draw(seed)))
        pairs = [*zip(one.parameters(), other.parameters()), *zip(one.buffers(), other.buffers())]
        same &= all(torch.equal(a, b) for a, b in pairs)
        same &= all(torch.equal(a.grad, b.grad) for a, b in pairs if a.grad is not None)
    note(name, fast, same)

train("ddp")
train("ddp_with_views", gradient_as_bucket_view=True)
train("ddp_with_buffers", normalises=True)
train("ddp_that_accumulates", accumulates=True)
train("ddp_of_small_buckets", bucket_cap_mb=0.0005)

def train_inside():
    (one, wrapped, *_), (other, captured, *_) = (make(False) for _ in range(2))
    fast = ftax.capture_(other[0], (draw(0),))
    same = True
    for seed in range(20):
        for model in (wrapped, captured):
            model.zero_grad()
            model(draw(seed)).square().sum().backward()
        pairs = zip(one.parameters(), other.parameters())
        same &= all(torch.equal(a.grad, b.grad) for a, b in pairs)
    note("a_module_inside_of_ddp", fast, same)

train_inside()
print("RESULTS", json.dumps(results))
"""


def run_communicating(folder: Path, device: str = "cpu", backend: str = "gloo") -> Results:
    """What each rank noted."""
    ended = run_ranks(folder, COMMUNICATING, device=device, backend=backend)
    assert [rank.code for rank in ended] == [0, 0], [rank.output[-2000:] for rank in ended]
    lines = [rank.output.rpartition("RESULTS ")[2].splitlines()[0] for rank in ended]
    return [json.loads(line) for line in lines]
