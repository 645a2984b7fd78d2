"""Decoding as a step: a window of tokens after a prompt, with its key-value cache put back.

The surprising choice: the loop that is measured is the shortest that there is, a call of the model
and the choice of a token, and not the library's `generate`. That one stands beside it as the step's
`through_library`, on the same cache, so that what it adds to each token can be told.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import nn

from ftax.errors import InvalidArgumentError, check_count, name_type
from ftax.steps.inputs import INPUT_STREAM, make_generator
from ftax.steps.kept_cache import KeptCache, name_cache
from ftax.steps.left_as_found import leave_as_found
from ftax.steps.load_code import is_code
from ftax.steps.load_forward import load_forward
from ftax.steps.loaded import LoadedModel
from ftax.steps.setting import DEFAULT_TOKENS, CacheKind, Setting, read_setting
from ftax.steps.spec import Attention, Dtype
from ftax.steps.step import Step
from ftax.steps.user_inputs import read_given
from ftax.steps.zoo.huggingface import quiet_transformers

_CONTEXT = 128
# Those of Llama 3's generation_config.json, beside generate's own default of k.
_TEMPERATURE, _TOP_K, _TOP_P = 0.6, 50, 0.9


def decode(
    model: str | os.PathLike[str] | nn.Module | LoadedModel,
    prompt: torch.Tensor | None = None,
    *,
    context: int | None = None,
    tokens: int = DEFAULT_TOKENS,
    cache: CacheKind = "dynamic",
    sample: bool = False,
    batch: int | None = None,
    seed: int = 0,
    dtype: Dtype | None = None,
    device: str | torch.device | None = None,
    attention: Attention | None = None,
    tiny: bool = False,
    name: str | None = None,
) -> Step:
    """A window of `tokens` decoded tokens after a prompt, as a step.

    The prompt is read once, here (the prefill); each run starts from its keys and values, which
    the step's `reset` brings back. The step's input is the token that is fed first, (batch, 1)
    int64: the most likely one after the prompt; it is checked on another one. It returns the
    `tokens` tokens that follow, (batch, tokens) int64. One unit of the step is a token of each row
    of the batch: with a batch of 8, the time of a unit is what 8 requests wait for a token each.

    The step's `through_library` makes the same tokens with `model.generate` from the same cache,
    without compiling and without a token at which it ends; of `model.generation_config` nothing
    counts.

    Args:
        model: a causal language model of transformers, or what `ftax.load_model` makes one of.
        prompt: token ids (batch, context) int64, on the model's device; None: random ones.
        context: how many tokens of prompt, where none is given; None: 128.
        tokens: how many tokens one run makes.
        cache: "dynamic" grows by concatenation, as `generate` does by default; "static" is
            memory for context + tokens positions. The two run other attention kernels.
        sample: draw each token as `generate` does (temperature 0.6, top-k 50, top-p 0.9, and
            torch.multinomial) instead of taking the most likely one. The first draw after
            ``torch.manual_seed`` is the same in both. On a GPU, torch.multinomial waits for the
            device.
        name: by which results know it; the model's name, if left out, and what is no default.
        batch, seed: of the prompt, where none is given.
        dtype, device, attention, tiny: of a model by name, as for `ftax.Setting`.

    A module is not changed: it is in eval mode for the prefill and then as it was. The step runs it
    in the mode that it has by then, so call `model.eval()` first, unless whoever measures does.
    Call the step's functions under ``torch.inference_mode()``: the cache was made in it.

    Raises InvalidArgumentError for values that are wrong, a model that does not generate with a
    cache, and more positions than the model has; and what `ftax.load_model` raises.
    """
    building = {"dtype": dtype, "device": device, "attention": attention, "tiny": tiny}
    setting = read_setting({**building, "batch": batch, "seed": seed})
    _check_options(tokens, cache, sample)
    module, own_name = _find_module(model, setting)
    _check_generates(module, own_name)
    ids = _make_prompt(module, setting, context) if prompt is None else prompt
    _check_prompt(module, ids, context, setting)
    _check_positions(module, own_name, ids.shape[1], tokens)
    window = _prefill(module, ids, tokens, cache, sample)
    return Step(
        function=window.make_loop(),
        inputs=(window.first,),
        check_inputs=((window.first + 1) % _text_config(module).vocab_size,),
        reset=window.kept.put_back,
        units=tokens,
        sequence=ids.shape[1],
        name=name or " ".join([own_name, *["static"] * (cache == "static"), *["sampled"] * sample]),
        kind="decode",
        grad_mode="inference",
        through_library=window.make_generate(),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Window:
    """A model after its prompt."""

    module: Any
    prompt: torch.Tensor
    first: torch.Tensor  # (batch, 1): the token to feed first
    cache: Any
    kept: KeptCache
    settings: Any  # of generate
    tokens: int
    sample: bool

    def make_loop(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """The bare loop, as a function of the first token."""
        model, tokens = self.module, self.tokens
        kept = {name_cache(model): self.cache}
        choose = _draw if self.sample else _take_most_likely

        def decode_tokens(token: torch.Tensor) -> torch.Tensor:
            chosen = []
            for _ in range(tokens):
                output = model(input_ids=token, use_cache=True, return_dict=True, **kept)
                token = choose(output.logits[:, -1])
                chosen.append(token)
            return torch.cat(chosen, dim=1)

        return decode_tokens

    def make_generate(self) -> Callable[[], torch.Tensor]:
        """The same tokens by the library."""
        model, settings = self.module, self.settings
        kept = {name_cache(model): self.cache}
        fed = torch.cat([self.prompt, self.first], dim=1)
        first, length = self.first, fed.shape[1]

        def generate() -> torch.Tensor:
            fed[:, -1:].copy_(first)  # which checks write into
            # What a checkpoint brings (ends, penalties) would fill all that `settings` leaves open.
            own = model.generation_config
            model.generation_config = settings
            try:
                with torch.inference_mode():
                    ids = model.generate(fed, generation_config=settings, **kept)
            finally:
                model.generation_config = own
            return ids[:, length:]  # type: ignore[no-any-return]  # the module is of any class

        return generate


def _take_most_likely(logits: torch.Tensor) -> torch.Tensor:
    """(batch, vocabulary) to (batch, 1)."""
    return logits.argmax(dim=-1, keepdim=True)


def _draw(logits: torch.Tensor) -> torch.Tensor:
    """(batch, vocabulary) to (batch, 1), by the operators of generate's processors in their order:
    so the same random numbers give the same tokens."""
    scores = logits.float() / _TEMPERATURE
    kth = torch.topk(scores, min(_TOP_K, scores.shape[-1]))[0][..., -1, None]
    scores = scores.masked_fill(scores < kth, -torch.inf)
    ascending, order = torch.sort(scores)
    beyond = ascending.softmax(dim=-1).cumsum(dim=-1) <= 1 - _TOP_P
    beyond[..., -1:] = False
    scores = scores.masked_fill(beyond.scatter(1, order, beyond), -torch.inf)
    return torch.multinomial(scores.softmax(dim=-1), num_samples=1)


def _prefill(
    module: nn.Module, prompt: torch.Tensor, tokens: int, kind: CacheKind, sample: bool
) -> _Window:
    """The model after it has read the prompt, itself as it was."""
    length = prompt.shape[1] + tokens
    with quiet_transformers() as transformers:
        if kind == "static":
            cache = transformers.StaticCache(config=module.config, max_cache_len=length)
        else:
            cache = transformers.DynamicCache(config=module.config)
        settings = _make_settings(transformers, tokens, sample)
        with leave_as_found(module), torch.inference_mode():
            module.eval()
            # The scores of a long prompt would fill more memory than the model.
            last = {"logits_to_keep": 1} if "logits_to_keep" in _list_arguments(module) else {}
            given: dict[str, Any] = {name_cache(module): cache, **last}
            logits = module(input_ids=prompt, use_cache=True, return_dict=True, **given).logits
            first = _take_most_likely(logits[:, -1])
            kept = KeptCache(cache, length=length)
    with torch.inference_mode(False):
        first = first.clone()  # a tensor that may be written in every mode
    return _Window(
        module=module,
        prompt=prompt,
        first=first,
        cache=cache,
        kept=kept,
        settings=settings,
        tokens=tokens,
        sample=sample,
    )


def _make_settings(transformers: Any, tokens: int, sample: bool) -> Any:
    """The generation config of the window; ends are unset, so that its length is."""
    sampling = {"temperature": _TEMPERATURE, "top_k": _TOP_K, "top_p": _TOP_P} if sample else {}
    return transformers.GenerationConfig(
        max_new_tokens=tokens,
        min_new_tokens=tokens,
        do_sample=sample,
        use_cache=True,
        disable_compile=True,
        **sampling,
    )


def _find_module(
    model: str | os.PathLike[str] | nn.Module | LoadedModel, setting: Setting
) -> tuple[nn.Module, str]:
    """The module and its name, loaded where it is not built yet."""
    if not isinstance(model, nn.Module | LoadedModel):
        # A module of the user's code need not come with inputs: they are made here.
        is_bare = isinstance(model, str) and is_code(model)
        inputs = torch.zeros((setting.batch or 1, 1), dtype=torch.int64) if is_bare else None
        model = load_forward(model, setting, read_given(inputs, None))
        return model.module, model.name
    chosen = setting.of_loading
    for option in ("dtype", "device", "attention", "tiny"):
        if chosen[option]:
            raise InvalidArgumentError(
                f"{option} is {chosen[option]!r}, but the model is already built: leave {option} "
                "out, or give the model's name"
            )
    if isinstance(model, LoadedModel):
        return model.module, model.name
    return model, type(model).__name__


def _make_prompt(module: nn.Module, setting: Setting, context: int | None) -> torch.Tensor:
    """Ids uniform over the vocabulary, those that `load_model` makes of this seed."""
    length = _CONTEXT if context is None else context
    check_count("context", length)
    generator = make_generator(setting.seed, INPUT_STREAM)
    size = (setting.batch or 1, length)
    drawn = torch.randint(0, _text_config(module).vocab_size, size, generator=generator)
    return drawn.to(_find_device(module))


def _check_options(tokens: int, cache: str, sample: bool) -> None:
    check_count("tokens", tokens)
    if cache not in get_args(CacheKind):
        raise InvalidArgumentError(f"cache is {cache!r}: give 'dynamic' or 'static'")
    if not isinstance(sample, bool):
        raise InvalidArgumentError(f"sample is {sample!r}: give True or False")


def _check_generates(module: Any, name: str) -> None:
    """Raises InvalidArgumentError unless it is a causal language model with a cache."""
    lacks = None
    if not callable(getattr(module, "generate", None)):
        lacks = "has no generate()"
    elif not hasattr(getattr(module, "config", None), "get_text_config"):
        lacks = "has no config of transformers"
    elif module.config.is_encoder_decoder:
        lacks = "is an encoder with a decoder"
    elif not name_cache(module) or not hasattr(
        module.config.get_text_config(), "num_attention_heads"
    ):
        lacks = "keeps no keys and values"
    if lacks is not None:
        kind = type(module).__name__
        told = name if name == kind else f"{name} ({kind})"
        raise InvalidArgumentError(
            f"{told} {lacks}: give a causal language model of "
            "transformers, such as LlamaForCausalLM, or 'llama' of the zoo"
        )


def _check_prompt(
    module: nn.Module, prompt: torch.Tensor, context: int | None, setting: Setting
) -> None:
    if not isinstance(prompt, torch.Tensor):
        raise InvalidArgumentError(
            f"prompt is {name_type(prompt)}: give token ids, an int64 tensor (batch, context)"
        )
    if prompt.dtype != torch.int64 or prompt.ndim != 2 or prompt.numel() == 0:
        raise InvalidArgumentError(
            f"prompt is {prompt.dtype} of shape {tuple(prompt.shape)}: give token ids, an int64 "
            "tensor (batch, context), without padding"
        )
    for option, given, found in (
        ("context", context, prompt.shape[1]),
        ("batch", setting.batch, prompt.shape[0]),
    ):
        if given is not None and given != found:
            raise InvalidArgumentError(
                f"{option} is {given!r}, but the prompt has {found}: leave {option} out"
            )
    device = _find_device(module)
    if prompt.device != device:
        raise InvalidArgumentError(
            f"prompt is on {prompt.device}, but the model is on {device}: give "
            f"prompt.to({str(device)!r})"
        )
    vocabulary = _text_config(module).vocab_size
    least, most = int(prompt.min()), int(prompt.max())
    if least < 0 or most >= vocabulary:
        raise InvalidArgumentError(
            f"prompt has ids from {least} to {most}: give ids from 0 to {vocabulary - 1}, the "
            "model's vocabulary"
        )


def _check_positions(module: nn.Module, name: str, context: int, tokens: int) -> None:
    most = getattr(_text_config(module), "max_position_embeddings", None)
    if most is not None and context + tokens > most:
        raise InvalidArgumentError(
            f"a context of {context} and {tokens} tokens are {context + tokens} positions, but "
            f"{name} has {most}: give fewer"
        )


def _text_config(module: nn.Module) -> Any:
    config: Any = module.config
    return config.get_text_config(decoder=True)


def _find_device(module: nn.Module) -> torch.device:
    return next(module.parameters()).device


def _list_arguments(module: nn.Module) -> frozenset[str]:
    return frozenset(inspect.signature(module.forward).parameters)
