"""A window of decoded tokens: the bare loop is what the library generates, call for call and token
for token, and each run starts where the prompt ended.

Weights are scaled and heads are untied where tokens are compared. A model of random weights else
repeats one token, on which any two loops agree.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

from ftax.errors import InvalidArgumentError, RunnerError, UnsupportedError
from ftax.steps.decode import CacheKind, decode
from ftax.steps.load import load_model
from ftax.steps.loaded import LoadedModel
from ftax.steps.prompt import name_cache
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
        ("bert-base", r"has no generate\(\): give a language model of transformers"),
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
    with pytest.raises(InvalidArgumentError, match="MambaForCausalLM keeps no keys and values"):
        decode(mamba)


# --- an encoder with a decoder -------------------------------------------------------------------

VOCABULARY = 200
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}
LAYERS = {
    **{f"{part}_layers": 2 for part in ("encoder", "decoder")},
    **{f"{part}_attention_heads": 4 for part in ("encoder", "decoder")},
    **{f"{part}_ffn_dim": 64 for part in ("encoder", "decoder")},
}
# T5 says nothing of the token at which its decoder starts: it is the padding.
ENCODERS: dict[str, dict[str, Any]] = {
    "T5": {"d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4},
    "Bart": {**LAYERS, **TOKENS, "max_position_embeddings": 40},
    "Whisper": {
        **{**LAYERS, **TOKENS, "num_mel_bins": 8},
        **{"max_source_positions": 10, "max_target_positions": 40},
    },
}

encoders = pytest.mark.parametrize("name", ENCODERS)


def build_encoder(name: str, **config: Any) -> Any:
    """An encoder with a decoder that seldom chooses a token again."""
    torch.manual_seed(0)
    with quiet_transformers() as transformers:
        architecture = getattr(transformers, f"{name}ForConditionalGeneration")
        chosen = {"d_model": 32, "vocab_size": VOCABULARY, **ENCODERS.get(name, {}), **config}
        module = architecture(architecture.config_class(**chosen)).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim > 1:
                parameter.mul_(20 if name == "Whisper" else 3)
    head = module.get_output_embeddings()
    head.weight = nn.Parameter(normal(*head.weight.shape))
    return module


def make_prompt(name: str) -> torch.Tensor:
    return normal(3, 8, 20) if name == "Whisper" else torch.arange(24).view(3, 8) * 7 + 5


def generate_all(module: Any, prompt: torch.Tensor, tokens: int) -> torch.Tensor:
    """What the library makes of the prompt, greedily, without what a checkpoint asks for."""
    with quiet_transformers() as transformers:
        settings = transformers.GenerationConfig(
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            decoder_start_token_id=getattr(module.config, "decoder_start_token_id", 0),
        )
        module.generation_config = transformers.GenerationConfig()
        generate = transformers.GenerationMixin.generate
        with torch.inference_mode():
            arguments = {module.main_input_name: prompt}
            return generate(module, **arguments, generation_config=settings)


@both_caches
@encoders
def test_a_decoder_behind_an_encoder_makes_the_tokens_of_the_library(
    name: str, cache: CacheKind
) -> None:
    module, prompt = build_encoder(name), make_prompt(name)
    step = decode(module, prompt, tokens=16, cache=cache)
    ours = run(step)
    assert (ours.shape, ours.dtype) == ((3, 16), torch.int64)
    assert torch.equal(ours, run(step, step.through_library))
    assert torch.equal(ours, run(step))
    assert len(ours.unique()) > 8
    assert len(ours.unique(dim=0)) == 3  # each row by its own prompt
    assert step.sequence == (10 if name == "Whisper" else 8)
    whole = generate_all(module, prompt, 17)
    assert torch.equal(whole[:, 1:2], step.inputs[0])
    assert torch.equal(whole[:, 2:], ours)


@both_caches
@encoders
def test_the_encoder_runs_once(name: str, cache: CacheKind) -> None:
    module = build_encoder(name)
    encoded: list[None] = []
    projected: list[None] = []
    module.get_encoder().register_forward_hook(lambda *_: encoded.append(None))
    for path, part in module.named_modules():
        if path.endswith(("encoder_attn.k_proj", "EncDecAttention.k")):
            part.register_forward_hook(lambda *_: projected.append(None))
    step = decode(module, make_prompt(name), tokens=4, cache=cache)
    assert (len(encoded), len(projected)) == (1, 2)  # of two layers
    for call in (None, step.through_library, None):
        run(step, call)
    assert (len(encoded), len(projected)) == (1, 2)


@both_caches
def test_draws_behind_an_encoder_are_those_of_the_library(cache: CacheKind) -> None:
    step = decode(build_encoder("Bart"), tokens=16, cache=cache, sample=True, batch=2, context=8)
    ours = run(step)
    assert torch.equal(ours, run(step, step.through_library))
    assert not torch.equal(ours, run(step, seed=1))


@both_caches
@encoders
def test_a_check_of_another_first_token_reaches_the_library(name: str, cache: CacheKind) -> None:
    step = decode(build_encoder(name), make_prompt(name), tokens=8, cache=cache)
    before = run(step)
    other = run(step, lambda: step(*step.check_inputs))
    assert not torch.equal(before, other)
    step.inputs[0].copy_(step.check_inputs[0])
    assert torch.equal(run(step, step.through_library), other)


@both_caches
def test_a_decoder_may_have_other_layers_than_its_encoder(cache: CacheKind) -> None:
    step = decode(build_encoder("T5", num_decoder_layers=3), context=8, tokens=4, cache=cache)
    assert torch.equal(run(step), run(step, step.through_library))


def test_a_prompt_of_an_encoder_is_drawn_of_its_vocabulary() -> None:
    module = build_encoder("Bart")
    drawn = decode(module, context=8, batch=2, seed=3)
    assert drawn.sequence == 8
    assert drawn.inputs[0].shape == (2, 1)
    assert not torch.equal(run(drawn), run(decode(module, context=8, batch=2)))


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("Whisper", {}, "reads input_features, which ftax cannot make: give prompt="),
        ("Whisper", {"prompt": [1.0]}, "prompt is a list: give the input_features of Whisper"),
        ("Whisper", {"prompt": normal(8)}, r"prompt is of shape \(8,\): give the input_features"),
        ("Whisper", {"prompt": normal(2, 8, 20), "context": 20}, "context is 20, but Whisper"),
        ("Whisper", {"prompt": normal(2, 8, 20), "batch": 3}, "batch is 3, but the prompt has 2"),
        ("Whisper", {"prompt": normal(2, 8, 20), "tokens": 40}, "1 and 40 tokens are 41 positions"),
        ("Bart", {"context": 41}, "a context of 41 is more than the 40 positions of the encoder"),
        ("Bart", {"context": 8, "tokens": 40}, "1 and 40 tokens are 41 positions"),
        ("T5", {"prompt": IDS + 200}, "ids from 200 to 200: give ids from 0 to 199"),
        ("T5", {"prompt": IDS.float()}, "give token ids, an int64"),
    ],
)
def test_what_an_encoder_cannot_read_is_refused(
    name: str, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        decode(build_encoder(name), **arguments)


def test_what_an_encoder_raises_is_told() -> None:
    with pytest.raises(RunnerError, match="the model raised ValueError: Whisper expects"):
        decode(build_encoder("Whisper"), normal(2, 8, 30))


def test_a_decoder_that_says_no_token_to_start_at_is_refused() -> None:
    module = build_encoder("T5")
    module.config.pad_token_id = module.generation_config.pad_token_id = None
    with pytest.raises(InvalidArgumentError, match="does not say at which token its decoder"):
        decode(module)


def test_a_decoder_that_takes_no_static_cache_says_so() -> None:
    sizes = {f"num_{part}_attention_heads": 4 for part in ("encoder", "decoder")}
    layers = {f"num_{part}_layers": 2 for part in ("encoder", "decoder")}
    module = build_encoder("ProphetNet", hidden_size=32, **sizes, **layers, **TOKENS)
    step = decode(module, context=8, tokens=4)
    assert torch.equal(run(step), run(step, step.through_library))
    with pytest.raises(UnsupportedError, match=r"into a static cache .*give cache='dynamic'"):
        decode(module, context=8, tokens=4, cache="static")
