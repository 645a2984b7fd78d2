"""A window of decoded tokens: the bare loop is what the library generates, call for call and token
for token, and each run starts where the prompt ended.

The surprising choice: weights are scaled and heads are untied where tokens are compared. A model of
random weights else repeats one token, on which any two loops agree.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

from ftax.errors import InvalidArgumentError
from ftax.steps.decode import CacheKind, decode
from ftax.steps.kept_cache import name_cache
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.steps.step import Step
from ftax.steps.zoo.huggingface import quiet_transformers
from support.small_models import normal

MODELS = ("llama", "gpt2", "llama-1b")
CACHES: tuple[CacheKind, ...] = ("dynamic", "static")

both_caches = pytest.mark.parametrize("cache", CACHES)


def run(step: Step, call: Callable[[], Any] | None = None, *, seed: int = 0) -> torch.Tensor:
    """One run as measuring makes it, of the bare loop if no other ``call`` is given."""
    assert step.reset is not None
    with torch.inference_mode(), torch.random.fork_rng(devices=[]):
        step.reset()
        torch.manual_seed(seed)
        tokens: torch.Tensor = step(*step.inputs) if call is None else call()
    return tokens


@functools.cache
def make_restless(name: str) -> LoadedModel:
    """A tiny model of the zoo that seldom chooses a token again."""
    loaded = load_model(name, tiny=True)
    module: Any = loaded.module
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim > 1:
                parameter.mul_(2)
    module.lm_head.weight = nn.Parameter(normal(*module.lm_head.weight.shape))
    return loaded


def build(name: str, **config: Any) -> Any:
    """A module of transformers with the library's weights, in training mode as it comes."""
    with quiet_transformers() as transformers:
        architecture = getattr(transformers, f"{name}ForCausalLM")
        return architecture(architecture.config_class(**{**SMALL, **config}))


SMALL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 200,
}


@contextmanager
def log_calls(module: nn.Module) -> Iterator[list[tuple[int, int]]]:
    """Of each call: how many tokens it is fed, and how many the cache holds by then."""
    calls = []

    def note(module: nn.Module, _args: Any, kwargs: dict[str, Any]) -> None:
        cached = int(kwargs[name_cache(module)].get_seq_length())
        calls.append((kwargs["input_ids"].shape[1], cached))

    handle = module.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield calls
    finally:
        handle.remove()


@pytest.mark.parametrize("tokens", [8, 64])
@both_caches
@pytest.mark.parametrize("name", MODELS)
def test_the_bare_loop_makes_the_tokens_of_the_library(
    name: str, cache: CacheKind, tokens: int
) -> None:
    step = decode(make_restless(name), context=16, tokens=tokens, cache=cache, batch=3)
    ours = run(step)
    assert (ours.shape, ours.dtype) == ((3, tokens), torch.int64)
    assert torch.equal(ours, run(step, step.through_library))
    assert torch.equal(ours, run(step))
    assert len(ours.unique()) > tokens / 2


@both_caches
@pytest.mark.parametrize("name", MODELS)
def test_draws_are_those_of_the_library(name: str, cache: CacheKind) -> None:
    step = decode(name, tiny=True, context=16, tokens=32, cache=cache, sample=True, batch=2)
    ours = run(step)
    assert torch.equal(ours, run(step, step.through_library))
    assert not torch.equal(ours, run(step, seed=1))
    assert not torch.equal(ours, run(decode(name, tiny=True, context=16, tokens=32, batch=2)))


def test_in_half_precision_too() -> None:
    step = decode("gpt2", tiny=True, dtype="bf16", context=16, tokens=16)
    assert torch.equal(run(step), run(step, step.through_library))


def test_both_caches_make_the_same_tokens() -> None:
    model = make_restless("llama")
    first, second = (decode(model, cache=cache, tokens=16) for cache in CACHES)
    assert torch.equal(run(first), run(second))


@both_caches
def test_the_prompt_is_read_once(cache: CacheKind) -> None:
    loaded = load_model("llama", tiny=True)
    with log_calls(loaded.module) as calls:
        step = decode(loaded, context=16, tokens=5, cache=cache)
    assert calls == [(16, 0)]
    for call in (None, step.through_library, None, step.through_library):
        with log_calls(loaded.module) as calls:
            run(step, call)
        assert calls == [(1, cached) for cached in range(16, 21)]


def test_without_reset_the_next_run_goes_on() -> None:
    loaded = load_model("llama", tiny=True)
    step = decode(loaded, context=16, tokens=4)
    first = run(step)
    with torch.inference_mode(), log_calls(loaded.module) as calls:
        step(first[:, -1:])
    assert calls == [(1, cached) for cached in range(20, 24)]
    assert torch.equal(first, run(step))


def test_without_reset_a_static_cache_is_full() -> None:
    step = decode("llama", tiny=True, context=16, tokens=4, cache="static")
    run(step)
    with torch.inference_mode(), pytest.raises(IndexError):
        step(*step.inputs)


@both_caches
def test_reset_makes_no_tensors(cache: CacheKind) -> None:
    loaded = load_model("llama", tiny=True)
    caches = []
    handle = loaded.module.register_forward_pre_hook(
        lambda module, _args, kwargs: caches.append(kwargs[name_cache(module)]), with_kwargs=True
    )
    step = decode(loaded, context=16, tokens=4, cache=cache)
    handle.remove()
    assert step.reset is not None

    def find_tensors() -> list[int]:
        return [
            id(value)
            for layer in caches[0].layers
            for value in vars(layer).values()
            if isinstance(value, torch.Tensor)
        ]

    found = find_tensors()
    run(step)
    step.reset()
    assert len(found) >= 24
    assert find_tensors() == found


@both_caches
@pytest.mark.parametrize("context", [8, 24])
@pytest.mark.parametrize("name", ["Gemma3", "Qwen3Next"])
def test_windows_that_slide_and_states_of_scans_are_put_back(
    name: str, context: int, cache: CacheKind
) -> None:
    torch.manual_seed(0)
    sliding = {"sliding_window": 16, "sliding_window_pattern": 2}
    scan = {
        **{f"linear_num_{part}_heads": 2 for part in ("key", "value")},
        **{f"linear_{part}_head_dim": 8 for part in ("key", "value")},
        **{"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
        "shared_expert_intermediate_size": 16,
    }
    module = build(name, head_dim=8, **(sliding if name == "Gemma3" else scan)).eval()
    step = decode(module, context=context, tokens=16, cache=cache)
    ours = run(step)
    assert torch.equal(ours, run(step))
    assert torch.equal(ours, run(step, step.through_library))
    assert torch.equal(ours, run(step))


def test_what_a_checkpoint_asks_of_generate_does_not_count_and_stays() -> None:
    module: Any = load_model("llama", tiny=True).module
    plain = run(decode(module, context=16, tokens=32))
    settings = module.generation_config
    settings.eos_token_id = int(plain[0, 3])
    settings.repetition_penalty = 3.0
    settings.do_sample = True
    step = decode(module, context=16, tokens=32)
    assert torch.equal(run(step, step.through_library), plain)
    assert module.generation_config is settings


def test_a_module_and_random_numbers_are_left_as_found() -> None:
    module = build("Llama", attention_dropout=0.5)
    module.lm_head.eval()
    modes = [part.training for part in module.modules()]
    state = torch.get_rng_state()
    step = decode(module, context=16)
    assert torch.equal(torch.get_rng_state(), state)
    assert [part.training for part in module.modules()] == modes
    assert all(parameter.requires_grad for parameter in module.parameters())
    first = decode(module.eval(), context=16)
    assert torch.equal(step.inputs[0], first.inputs[0])


def test_what_the_step_says() -> None:
    step = decode("llama-160m", tiny=True, context=16, tokens=4, batch=2)
    assert (step.name, step.kind, step.grad_mode) == ("llama-160m", "decode", "inference")
    assert step.units == 4
    (token,), (other,) = step.inputs, step.check_inputs
    assert (token.shape, token.dtype) == ((2, 1), torch.int64)
    assert bool((token != other).all())
    assert not token.is_inference()
    assert decode("gpt2", tiny=True, cache="static", sample=True).name == "gpt2 static sampled"
    assert decode(build("Llama")).name == "LlamaForCausalLM"
    assert decode(build("Llama"), name="mine").name == "mine"


def test_another_first_token_makes_other_tokens() -> None:
    step = decode("llama", tiny=True, context=16)
    assert not torch.equal(run(step), run(step, lambda: step(*step.check_inputs)))


def test_a_prompt_counts_and_is_drawn_of_the_seed() -> None:
    loaded = load_model("llama", tiny=True, sequence=16, batch=2, seed=3)
    drawn = decode(loaded, context=16, batch=2, seed=3, tokens=16)
    given = decode(loaded, loaded.args[0], tokens=16)
    assert torch.equal(run(drawn), run(given))
    assert not torch.equal(run(drawn), run(decode(loaded, context=16, batch=2, tokens=16)))


IDS = torch.zeros((2, 4), dtype=torch.int64)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"tokens": 0}, "tokens is 0; give a whole number"),
        ({"tokens": True}, "tokens is True"),
        ({"context": 0}, "context is 0; give a whole number"),
        ({"cache": "offloaded"}, "cache is 'offloaded': give 'dynamic' or 'static'"),
        ({"sample": 1}, "sample is 1: give True or False"),
        ({"context": 2040, "tokens": 9}, "are 2049 positions, but LlamaForCausalLM has 2048"),
        ({"prompt": [[1]]}, "prompt is a list: give token ids"),
        ({"prompt": IDS.float()}, r"torch.float32 of shape \(2, 4\): give token ids, an int64"),
        ({"prompt": IDS[0]}, r"of shape \(4,\)"),
        ({"prompt": IDS[:, :0]}, r"of shape \(2, 0\)"),
        ({"prompt": IDS.to("meta")}, r"on meta, but the model is on cpu: give prompt.to\('cpu'\)"),
        ({"prompt": IDS + 200}, "ids from 200 to 200: give ids from 0 to 199"),
        ({"prompt": IDS, "context": 5}, "context is 5, but the prompt has 4: leave context out"),
        ({"prompt": IDS, "batch": 1}, "batch is 1, but the prompt has 2"),
        ({"dtype": "fp16"}, "dtype is 'fp16', but the model is already built"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        decode(build("Llama"), **arguments)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpt2-generate", r"gpt2-generate \(GreedyGenerator\) has no generate\(\)"),
        ("bert-base", r"has no generate\(\): give a causal language model"),
        ("lstm-lm", "has no generate"),
    ],
)
def test_a_model_that_does_not_generate_is_refused(name: str, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        decode(name, tiny=True)


def test_a_model_without_keys_and_values_is_refused() -> None:
    with quiet_transformers() as transformers:
        small = {"hidden_size": 32, "vocab_size": 100, "num_hidden_layers": 2}
        mamba = transformers.MambaForCausalLM(transformers.MambaConfig(**small))
        t5 = transformers.T5ForConditionalGeneration(
            transformers.T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=1, vocab_size=100)
        )
    with pytest.raises(InvalidArgumentError, match="MambaForCausalLM keeps no keys and values"):
        decode(mamba)
    with pytest.raises(InvalidArgumentError, match="is an encoder with a decoder"):
        decode(t5)
