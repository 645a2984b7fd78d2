"""What stands around the call and around its backward pass. See `table.py`."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from typing import Any

import torch
from hostile.followed.table import (
    Take,
    drop_grads,
    make_net,
    name_error,
    program,
    read_grads,
    rows,
)
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def _autocast(**options: Any) -> Any:
    return torch.autocast("cpu", torch.bfloat16, **options)


@program(replayed=3)
def autocast_around_the_forward_pass(take: Take) -> Any:
    call = take(make_net(), rows(0))
    found = []
    for seed in range(8):
        with _autocast(cache_enabled=seed % 4 != 3, enabled=seed % 4 != 0):
            y = call(rows(seed))
        y.float().square().sum().backward()
        found.append(y)
    return found


@program(replayed=1)
def autocast_around_both(take: Take) -> Any:
    net = make_net()
    call = take(net, rows(0))
    found = []
    for seed in range(8):
        drop_grads(net)
        with _autocast():
            call(rows(seed)).float().square().sum().backward()
            found.append(read_grads(net))
    return found


@program(replayed=1)
def autocast_around_the_backward_pass(take: Take) -> Any:
    net = make_net()
    call = take(net, rows(0))
    found = []
    for seed in range(8):
        drop_grads(net)
        y = call(rows(seed))
        with _autocast() if seed % 2 else contextlib.nullcontext():
            y.square().sum().backward()
        found.append(read_grads(net))
    return found


@program()
def an_island_of_single_precision(take: Take) -> Any:
    class Island(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x)
            with torch.autocast("cpu", enabled=False):
                return self.b(h.float())

    net = Island()
    found = []
    with _autocast():
        call = take(net, rows(0))
    for seed in range(8):
        drop_grads(net)
        with _autocast():
            y = call(rows(seed))
            if seed % 3 == 0:
                y.square().sum().backward()
        if seed % 3:
            y.square().sum().backward()
        found.append((y, read_grads(net)))
    return found


@program(replayed=2, rounded=True)
def two_calls_within_one_autocast(take: Take) -> Any:
    net = nn.Linear(8, 4)
    with _autocast():
        call = take(net, rows(0))
    found = []
    for seed in range(6):
        drop_grads(net)
        with _autocast():
            loss = call(rows(seed)).square().sum() + call(rows(seed + 9)).square().sum()
        loss.backward()
        found.append(read_grads(net))
    return found


@program(replayed=3, warns="hooks of saved tensors")
def hooks_of_saved_tensors(take: Take) -> Any:
    call = take(make_net(), rows(0))
    found: list[Any] = []

    def pack(item: Tensor) -> Tensor:
        found.append(item.shape)
        return item * 1.25

    for seed in range(8):
        with contextlib.ExitStack() as stack:
            if seed % 2:
                stack.enter_context(torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x))
            if seed == 4:
                stack.enter_context(torch.autograd.graph.save_on_cpu())
            y = call(rows(seed))
        y.square().sum().backward()
    return found


@program(replayed=3)
def anomaly_mode(take: Take) -> Any:
    call = take(make_net(), rows(0))
    found = []
    for seed in range(6):
        with warnings.catch_warnings(), torch.autograd.set_detect_anomaly(seed % 3 == 1):
            warnings.simplefilter("ignore")
            loss = (call(rows(seed)) * (float("nan") if seed == 4 else 1)).sum()
            found.append(name_error(loss.backward))
    return found


@program(replayed=0, warns="hooks of saved tensors")
def checkpoints_around_it(take: Take) -> Any:
    call = take(make_net(), rows(0).requires_grad_())
    found = []
    for seed in range(6):
        x = rows(seed).requires_grad_()
        checkpoint(call, x, use_reentrant=seed % 2 == 0).square().sum().backward()
        found.append(x.grad)
    return found


@program(replayed=3)
def transforms_of_torch(take: Take) -> Any:
    call = take(nn.Sequential(nn.Linear(8, 8), nn.Tanh()), rows(0))
    found: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(5):
            x = rows(seed)
            call(x).sum().backward()
            found += [
                torch.func.vmap(call)(x[None])[0].detach(),
                torch.func.grad(lambda x: call(x).sum())(x),
                torch.func.jvp(call, (x,), (x,))[1].detach(),
            ]
    return found


@program(replayed=3)
def tangents(take: Take) -> Any:
    forward_ad = torch.autograd.forward_ad
    call = take(nn.Sequential(nn.Linear(8, 8), nn.Tanh()), rows(0))
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(5):
            call(rows(seed)).sum().backward()
            with forward_ad.dual_level():
                y = call(forward_ad.make_dual(rows(seed), torch.ones(4, 8)))
                found.append(forward_ad.unpack_dual(y).tangent.detach())
    return found


@program(replayed=2)
def switches(take: Take) -> Any:
    call = take(make_net(), rows(0))
    try:
        for seed in range(6):
            torch.use_deterministic_algorithms(seed % 3 == 1)
            torch.set_default_dtype(torch.float64 if seed == 2 else torch.float32)
            call(rows(seed).float()).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_default_dtype(torch.float32)
    return None


@program(replayed=2)
def grad_mode_set_inside(take: Take) -> Any:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 4)

        @torch.set_grad_enabled(False)
        def encode(self, x: Tensor) -> Tensor:
            return self.a(x)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.encode(x))

    net = Half()
    call = take(net, rows(0).requires_grad_())
    found = []
    for seed in range(4):
        x = rows(seed).requires_grad_()
        call(x).sum().backward()
        found.append((x.grad, read_grads(net)))
    return found


@program(replayed=2)
def backward_in_another_thread(take: Take) -> Any:
    net = make_net()
    call = take(net, rows(0))
    for seed in range(6):
        loss = call(rows(seed)).square().sum()
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
    return None


def _go_backward_at_once(take: Take, *, is_hooked: bool) -> Any:
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
    call = take(net, rows(0).requires_grad_())
    if is_hooked:  # which a check would have to take away meanwhile
        net[0].weight.register_hook(lambda grad: grad * 2)
    found: dict[int, Any] = {}

    def work(seed: int) -> None:
        grads = []
        for at in range(25):
            x = rows(seed + at).requires_grad_()
            loss = (call(x) + x[:, :4]).square().sum()
            grads.append(torch.autograd.grad(loss, [x, *net.parameters()]))
        found[seed] = grads

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (0, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[seed] for seed in (0, 100)]


@program(replayed=20, threads=True)
def threads_that_go_backward_at_once(take: Take) -> Any:
    return _go_backward_at_once(take, is_hooked=False)


@program(replayed=20, threads=True)
def threads_that_call_hooks_at_once(take: Take) -> Any:
    return _go_backward_at_once(take, is_hooked=True)


@program(replayed=2)
def a_child_process(take: Take) -> Any:
    net = make_net()
    call = take(net, rows(0))
    call(rows(1)).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        try:
            loss = call(rows(2)).sum()
            os._exit(0 if loss.requires_grad else 1)
        finally:
            os._exit(2)
    status = os.waitpid(child, 0)[1]
    call(rows(3)).sum().backward()
    return status


@program(replayed=2)
def called_by_compiled_code(take: Take) -> Any:
    net = make_net()
    call = take(net, rows(0))

    def step(x: Tensor) -> Tensor:
        return (call(x * 2) + 1).square().sum()

    compiled = torch.compile(step, backend="eager") if take.taken else step
    for seed in range(4):
        compiled(rows(seed)).backward()
    return None


@program(replayed=1)
def interrupted(take: Take) -> Any:
    net = make_net()
    call = take(net, rows(0))
    found = []
    for seed in range(6):
        y = call(rows(seed))
        h = y * 2

        def stop(grad: Tensor, seed: int = seed) -> None:
            if seed % 2:
                raise KeyboardInterrupt

        h.register_hook(stop)
        try:
            h.sum().backward()
        except KeyboardInterrupt:
            found.append(seed)
        del y, h
    return found


@program(replayed=2)
def closed_before_the_backward_pass(take: Take) -> Any:
    net = make_net()
    call = take(net, rows(0))
    losses = [call(rows(seed)).t().square().sum() for seed in range(5)]
    if take.taken:
        take.taken[0].close()
    del call
    for loss in losses:
        loss.backward()
    return None
