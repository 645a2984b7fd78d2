"""`ftax.capture` on a GPU: one CUDA graph behind the same guards, whose memory stays its own."""

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import ftax
from ftax.captures.captured import Captured
from ftax.steps.prompt import name_cache

pytestmark = [pytest.mark.needs_cuda, pytest.mark.usefixtures("alone", "record_at_once")]


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).eval().cuda()


def draw(rows: int = 4) -> torch.Tensor:
    return torch.randn(rows, 32, device="cuda")


def count(captured: Captured, how: str) -> int:
    return captured.explain().calls.get(how, 0)


def test_a_graph_gives_the_bits_of_the_original(no_grad: None):
    model = make_model()
    captured = ftax.capture(model, draw())
    assert captured.explain().programs[0].kind == "graph"
    for _ in range(3):
        x = draw()
        assert torch.equal(captured(x), model(x))
    assert captured.explain().calls == {"recorded": 1, "replayed": 3}
    assert captured.memory_bytes >= 0


def test_a_tape_is_to_be_had_too(no_grad: None):
    model = make_model()
    captured = ftax.capture(model, draw(), kind="tape")
    assert captured.explain().programs[0].kind == "tape"
    x = draw()
    assert torch.equal(captured(x), model(x))


def test_results_are_copies_unless_they_are_borrowed(no_grad: None):
    model = make_model()
    given = draw()
    before = given.clone()
    own = ftax.capture(model, given)
    first = own(draw())
    kept = first.clone()
    own(draw())
    assert torch.equal(first, kept) and not first.is_inference()
    assert torch.equal(given, before)  # the graph reads from memory of its own
    lent = ftax.capture(model, given, borrow=True)
    first = lent(draw())
    assert lent(draw()).data_ptr() == first.data_ptr()
    (there,), _ = lent.inputs  # where the graph reads
    assert there.data_ptr() != given.data_ptr()
    assert torch.equal(lent(there.copy_(given)), model(given))


def test_numbers_that_are_returned_are_read_behind_the_graph(no_grad: None):
    model, host = make_model(), torch.ones(2)

    def run(x: torch.Tensor) -> object:
        y = model(x)
        return {"y": y, "n": y.norm().item(), "f": float(y.amax()), "l": [x[0].tolist(), 3]}

    captured = ftax.capture(run, draw())
    assert captured.explain().programs[0].kind == "graph"
    for _ in range(4):
        x = draw()
        found, expected = captured(x), run(x)
        assert repr(found) == repr(expected)
    assert count(captured, "replayed") == 4
    with pytest.raises(ftax.UnsupportedError, match="cannot capture"):
        ftax.capture(lambda x: (model(x), host.sum().item(), x.cpu().sum().item()), draw())


def test_a_training_step_returns_its_loss_as_a_number():
    def train(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> float:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    models = [make_model().train() for _ in range(2)]
    pairs = [(m, torch.optim.AdamW(m.parameters(), fused=True)) for m in models]
    batches = [draw() for _ in range(8)]
    captured = ftax.capture(lambda x: train(*pairs[0], x), batches[0])
    found = [captured(x) for x in batches]
    assert found == [train(*pairs[1], x) for x in batches]
    assert count(captured, "replayed") >= 6


def test_aliases_are_those_of_eager(no_grad: None):
    weight = torch.ones(3, device="cuda")

    def run(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = x * 2 * weight
        x[0].fill_(7.0)
        return x[1:], made, made[1], weight

    captured = ftax.capture(run, torch.randn(3, device="cuda"))
    x = torch.randn(3, device="cuda")
    view, made, part, same = captured(x)
    assert x[0].item() == 7.0 and view.data_ptr() == x[1:].data_ptr()
    made.zero_()
    assert part.item() == 0.0 and same is weight


def test_a_number_that_is_copied_from_the_host_each_time_is_kept_on_the_gpu(no_grad: None):
    def run(x: torch.Tensor) -> torch.Tensor:
        x[0] = 7.0
        return x * 2

    captured = ftax.capture(run, torch.randn(3, device="cuda"))
    x = torch.randn(3, device="cuda")
    doubled = captured(x)
    assert x[0].item() == 7.0
    assert torch.equal(doubled, x * 2)


def test_graphs_of_one_capture_share_memory(no_grad: None):
    """What one gave back another uses, so they are replayed one after the other on any streams."""
    model = nn.Sequential(nn.Linear(64, 4096), nn.ReLU(), nn.Linear(4096, 8)).cuda()
    given = [torch.randn(size, 64, device="cuda") for size in (4096, 4095, 4094)]
    captured = ftax.capture(model, given[0])
    captured.warm(given[1:])
    sizes = [program.replay.memory_bytes for program in captured._recordings.programs]
    assert max(sizes) > 50e6 and sum(sizes) < 1.5 * max(sizes)
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    for turn in range(30):
        x = given[turn % 3]
        with torch.cuda.stream(streams[turn % 2]):
            answer = captured(x)
        torch.cuda.synchronize() if turn % 5 == 0 else None
        with torch.cuda.stream(streams[turn % 2]):
            assert torch.equal(answer, model(x))
    assert count(captured, "replayed") >= 30


def test_inputs_may_be_written_at_once_and_streams_may_differ(no_grad: None):
    model = make_model()
    captured = ftax.capture(model, draw())
    x, side = draw(), torch.cuda.Stream()
    expected = model(x)
    first = captured(x)
    x.zero_()
    zero = model(x)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        second = captured(x)
    torch.cuda.current_stream().wait_stream(side)
    assert torch.equal(first, expected) and torch.equal(second, zero)


def test_random_numbers_go_on_as_those_of_eager(no_grad: None):
    def run(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5)

    x = torch.ones(64, device="cuda")
    captured = ftax.capture(run, x)
    torch.cuda.manual_seed(3)
    expected = [run(x) for _ in range(3)]
    torch.cuda.manual_seed(3)
    assert all(torch.equal(captured(x), item) for item in expected)


def test_training_is_that_of_eager_with_a_schedule():
    def make():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 1))
        model.cuda()
        rate = torch.tensor(1e-3, device="cuda")
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, fused=True, capturable=True)

        def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), target)
            loss.backward()
            optimizer.step()
            return loss

        return model, rate, step

    batches = [(draw(), torch.randn(4, 1, device="cuda")) for _ in range(100)]
    model, rate, step = make()
    twin, twins_rate, twins_step = make()
    captured = ftax.capture(step, batches[0])
    losses, expected = [], []
    for place, batch in enumerate(batches):
        if place == 50:
            rate.mul_(0.1)
            twins_rate.mul_(0.1)
        losses.append(captured(*batch).item())
        expected.append(twins_step(*batch).item())
    assert losses == expected
    for mine, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(mine, other) and torch.equal(mine.grad, other.grad)
    assert count(captured, "replayed") >= 98 and count(captured, "recorded") == 2


@pytest.mark.parametrize(
    "backend",
    [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION],
    ids=["cudnn", "flash", "efficient"],
)
def test_a_training_step_with_attention_is_that_of_eager(backend: SDPBackend):
    """Each kind returns numbers beside its tensors: lengths, or a seed."""

    def make():
        torch.manual_seed(0)
        model = nn.TransformerEncoderLayer(128, 2, 64, dropout=0.0, batch_first=True)
        model.to("cuda", torch.bfloat16)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).float().square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return model, step

    (model, step), (twin, twins_step) = make(), make()
    batches = [torch.randn(2, 16, 128, device="cuda", dtype=torch.bfloat16) for _ in range(10)]
    with sdpa_kernel(backend):
        captured = ftax.capture(step, batches[0])
        losses = [captured(batch).item() for batch in batches]
        assert losses == [twins_step(batch).item() for batch in batches]
    for mine, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(mine, other)
    assert count(captured, "replayed") >= 8  # a first call or two may be recorded


def test_an_audit_finds_nothing_to_say(no_grad: None):
    captured = ftax.capture(make_model(), draw())
    captured.audit(3)
    for _ in range(3):
        captured(draw())
    assert captured.stats().checked == 3


def test_decoding_from_a_static_cache_gives_the_tokens_of_the_loop():
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=128,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval().cuda()
    prompt = torch.randint(0, 64, (1, 8), device="cuda")
    found = []
    with torch.inference_mode():
        for captures in (False, True):
            cache = StaticCache(config=config, max_cache_len=128)

            def step(token: torch.Tensor, cache: StaticCache = cache) -> torch.Tensor:
                logits = model(token, use_cache=True, **{name_cache(model): cache}).logits
                return logits[:, -1:].argmax(-1)

            token = step(prompt)
            run = ftax.capture(step, token) if captures else step
            tokens = [token]
            for _ in range(64):
                tokens.append(run(tokens[-1]))
            found.append([int(item) for item in tokens])
    assert found[0] == found[1]


def test_what_waits_for_the_device_is_refused(no_grad: None):
    with pytest.raises(ftax.UnsupportedError, match=r"test_gpu_capture\.py"):
        ftax.capture(lambda x: x * x.sum().item(), draw())


def test_a_number_can_be_compared_after_each_replay(no_grad: None):
    def run(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if bool((x > 0).any()) else x - 1

    captured = ftax.capture(run, torch.ones(4, device="cuda"), on_host_read="check")
    for x in (torch.ones(4, device="cuda"), -torch.ones(4, device="cuda")):
        assert torch.equal(captured(x), run(x))
    assert (count(captured, "replayed"), count(captured, "eager")) == (1, 1)


class _FromTheHost(nn.Module):
    """Copies to the GPU, five ways, what is the same in each call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.zeros(x.shape[0], x.shape[1])  # on the host
        mask[:, ::2] = 1
        own = torch.zeros_like(x)
        own[0] = 2.0
        number = torch.tensor([3.0], device=x.device) * x.new_tensor([0.5])
        return x * mask.to(x.device) + x[:, [0] * x.shape[1]] + own * number


def test_copies_that_are_the_same_each_time_are_left_out(no_grad: None):
    model = _FromTheHost()
    captured = ftax.capture(model, draw())
    for _ in range(3):
        x = draw()
        assert torch.equal(captured(x), model(x))
    assert count(captured, "replayed") == 3


def test_a_copy_of_what_was_there_before_is_refused(no_grad: None):
    kept = torch.ones(32)
    with pytest.raises(ftax.UnsupportedError, match=r"host and device|synchronizing"):
        ftax.capture(lambda x: x * kept.to(x.device), draw())


@pytest.fixture
def compiled() -> Iterator[nn.Module]:
    torch._dynamo.reset()
    yield torch.compile(make_model(), dynamic=False)
    torch._dynamo.reset()


def test_a_compiled_module_gives_its_own_bits(no_grad: None, compiled: nn.Module):
    x = draw()
    before = compiled(x)
    captured = ftax.capture(compiled, x)
    (facts,) = captured.explain().programs
    assert facts.contents == "CUDA graphs of 1 compiled graph"
    for _ in range(3):
        y = draw()
        assert torch.equal(captured(y), compiled(y))
    assert torch.equal(captured(x), before)
    assert captured.explain().calls == {"recorded": 1, "replayed": 4}
    captured.close()
    assert torch.equal(compiled(x), before)


def test_a_compiled_module_launches_one_graph(no_grad: None, compiled: nn.Module):
    x = draw()
    captured = ftax.capture(compiled, x, audit=False)
    captured(x)
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, acc_events=True) as profile:
        captured(x)
        torch.cuda.synchronize()
    names = [event.name for event in profile.events()]
    assert sum("GraphLaunch" in name for name in names) == 1
    assert not any(name.startswith(("cudaLaunchKernel", "cuLaunchKernel")) for name in names)


def test_a_compiled_modules_own_guards_are_asked(no_grad: None, compiled: nn.Module):
    x = draw()
    captured = ftax.capture(compiled, x)
    wide = draw(9)
    assert torch.equal(captured(wide), compiled(wide))
    model = compiled._orig_mod
    model[0].weight = nn.Parameter(torch.ones_like(model[0].weight))
    assert torch.equal(captured(x), compiled(x))
    assert torch.equal(captured(x), compiled(x))
    assert count(captured, "recorded") == 3


def test_a_compiled_module_is_no_tape(no_grad: None, compiled: nn.Module):
    with pytest.raises(ftax.UnsupportedError, match="capture what was compiled"):
        ftax.capture(compiled, draw(), kind="tape")


@pytest.mark.parametrize("unscales", [False, True])
def test_a_step_with_a_grad_scaler_is_that_of_eager(unscales: bool):
    def begin():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2)).cuda()
        optimizer = torch.optim.AdamW(net.parameters(), 0.01, fused=True)
        scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=5)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.float16):
                loss = net(x).float().square().mean()
            scaler.scale(loss).backward()
            if unscales:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()

        return step, net, scaler

    (step, mine, scaler), (original, other, others) = begin(), begin()
    fast = ftax.capture(step, draw())
    for turn in range(50):
        x = draw() * (float("inf") if turn == 7 else 1.0)
        torch.testing.assert_close(fast(x), original(x), rtol=0, atol=0, equal_nan=True)
        assert scaler.state_dict() == others.state_dict()
        pairs = zip(mine.parameters(), other.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    assert fast.stats().replayed >= 48


def test_a_grad_scaler_of_another_optimizer_names_fused():
    net = nn.Linear(32, 2).cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cuda")

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        scaler.scale(net(x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    with pytest.raises(ftax.UnsupportedError, match="give the optimizer fused=True"):
        ftax.capture(step, draw())


def test_a_check_finds_what_is_frozen(no_grad: None):
    unseen = [2.0] * 200_000  # more than are followed

    fast = ftax.capture(lambda x: x * unseen[7], draw())
    fast(draw())
    unseen[7] = 3.0
    with pytest.warns(UserWarning, match="replay"):
        [fast(draw()) for _ in range(8)]
    x = draw()
    assert torch.equal(fast(x), x * 3.0)


def test_lent_results_are_checked_too(no_grad: None):
    model = make_model()
    fast = ftax.capture(model, draw(), borrow=True)
    for _ in range(20):
        x = draw()
        assert torch.equal(fast(x), model(x))
    assert fast.stats().checked >= 3 and fast.stats().replayed == 20


def test_threads_share_a_capture(no_grad: None):
    model = make_model()
    fast = ftax.capture(model, draw())
    fast.warm([draw(rows) for rows in range(1, 7)])
    wrong: list[int] = []

    def work(seed: int) -> None:
        generator = torch.Generator("cuda").manual_seed(seed)
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            for turn in range(30):
                x = torch.randn(1 + (seed + turn) % 6, 32, device="cuda", generator=generator)
                if not torch.equal(fast(x), model(x)):
                    wrong.append(turn)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    ("call", "remedy"),
    [
        (lambda: lambda x: torch.normal(x, x.abs()), "torch.randn_like"),
        (lambda: nn.LSTM(32, 32, num_layers=2, dropout=0.5).cuda(), "nn.Dropout between layers"),
    ],
    ids=["normal", "rnn"],
)
def test_a_refusal_names_what_to_change(no_grad: None, call, remedy: str):
    with pytest.raises(ftax.UnsupportedError, match=remedy):
        ftax.capture(call(), draw())


def test_checkpointing_that_draws_names_the_cause():
    from torch.utils.checkpoint import checkpoint

    block = nn.Sequential(nn.Linear(32, 32), nn.Dropout(0.5)).cuda()

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = checkpoint(block, x, use_reentrant=False).sum()
        loss.backward()
        return loss.detach()

    with pytest.raises(ftax.UnsupportedError, match="preserve_rng_state"):
        ftax.capture(step, draw())


def test_offsets_stay_offsets(no_grad: None):
    """Of others the GPU is lost to the process."""
    bag = nn.EmbeddingBag(10, 4).cuda()
    words = torch.tensor([1, 2, 4, 5, 4, 3, 2, 9], device="cuda")
    offsets = torch.tensor([0, 4, 6], device="cuda")
    for measure in (ftax.py_bench, ftax.cpp_bench):
        measure(bag, (words, offsets), plan=ftax.Plan(rounds=2, warmup=1, round_ms=1.0))
    assert torch.equal(ftax.capture(bag, (words, offsets))(words, offsets), bag(words, offsets))


def test_a_model_that_keeps_its_own_capture_frees_its_memory(no_grad: None):
    def make() -> weakref.ref[nn.Module]:
        model = nn.Linear(2048, 2048, device="cuda")
        x = torch.ones(1024, 2048, device="cuda")
        model.fast = ftax.capture(model.forward, x)  # type: ignore[assignment]
        model.fast(x)  # type: ignore[operator]
        return weakref.ref(model)

    make()
    gc.collect()
    before = torch.cuda.memory_allocated()
    found = make()
    gc.collect()
    assert found() is None
    assert torch.cuda.memory_allocated() <= before
