"""Decoding as a step: a window of tokens after a prompt, with its key-value cache put back. What an
encoder made of its prompt stays: each token is one call of the decoder.

The loop that is measured is the shortest that there is, a call of the model and the choice of a
token, and not the library's `generate`. That one stands beside it as the step's `through_library`,
on the same cache, so that what it adds to each token can be told.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import nn

from ftax.errors import InvalidArgumentError, RunnerError, UnsupportedError, check_count
from ftax.steps.left_as_found import leave_as_found
from ftax.steps.load_code import is_code, load_forward, looks_like_path
from ftax.steps.loaded import LoadedModel
from ftax.steps.outputs import call_model
from ftax.steps.prompt import KeptCache, Reader, list_arguments, name_cache
from ftax.steps.setting import DEFAULT_TOKENS, CacheKind, Setting, read_setting
from ftax.steps.spec import Attention, Dtype
from ftax.steps.step import Step
from ftax.steps.user_inputs import read_given
from ftax.steps.zoo.huggingface import quiet_transformers

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

    The prompt is read once, here (the prefill): by the encoder, where the model has one, whose
    decoder then reads the token at which it starts. Each run starts from the keys and values of
    that, which the step's `reset` brings back. The step's input is the token that is fed first,
    (batch, 1) int64: the most likely one after the prompt; it is checked on another one. It returns
    the `tokens` tokens that follow, (batch, tokens) int64. One unit of the step is a token of each
    row of the batch: with a batch of 8, the time of a unit is what 8 requests wait for a token
    each.

    The step's `through_library` makes the same tokens with `model.generate` from the same cache,
    without compiling and without a token at which it ends; of `model.generation_config` nothing
    counts but the token at which a decoder behind an encoder starts.

    Args:
        model: a language model of transformers, causal or an encoder with a decoder (T5, BART,
            Whisper), or what `ftax.load_model` makes one of.
        prompt: token ids (batch, context) int64, on the model's device; None: random ones. Of an
            encoder that reads no tokens, its input, such as (batch, mels, frames) in the model's
            dtype.
        context: how many tokens of prompt, where none is given; None: 128.
        tokens: how many tokens one run makes.
        cache: "dynamic" grows by concatenation, as `generate` does by default; "static" is
            memory for context + tokens positions (of a decoder behind an encoder: 1 + tokens). The
            two run other attention kernels.
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
    cache, and more positions than the model has; UnsupportedError for one that takes no static
    cache; RunnerError where the model raises; and what `ftax.load_model` raises.
    """
    building = {"dtype": dtype, "device": device, "attention": attention, "tiny": tiny}
    setting = read_setting({**building, "batch": batch, "seed": seed})
    _check_options(tokens, cache, sample)
    module, own_name = _find_module(model, setting)
    reader = Reader.of(module, own_name)
    if prompt is None:
        prompt = reader.make_prompt(setting, context)
    reader.check_prompt(prompt, context, setting.batch)
    reader.check_positions(prompt, tokens)
    window = _prefill(reader, prompt, tokens, cache, sample)
    return Step(
        function=window.make_loop(),
        inputs=(window.first,),
        check_inputs=((window.first + 1) % reader.config.vocab_size,),
        reset=window.kept.put_back,
        units=tokens,
        sequence=window.context,
        name=name or " ".join([own_name, *["static"] * (cache == "static"), *["sampled"] * sample]),
        kind="decode",
        grad_mode="inference",
        through_library=window.make_generate(),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Window:
    """A model after its prompt."""

    module: Any
    context: int  # positions of the prompt
    prompt: torch.Tensor
    first: torch.Tensor  # (batch, 1): the token to feed first
    feed: str  # the argument that takes it
    fixed: dict[str, Any]  # other arguments: the cache, and what an encoder made of the prompt
    kept: KeptCache
    generate: Callable[..., torch.Tensor]
    settings: Any  # of generate
    tokens: int
    sample: bool

    def make_loop(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """The bare loop, as a function of the first token."""
        model, tokens, feed, fixed = self.module, self.tokens, self.feed, self.fixed
        choose = _draw if self.sample else _take_most_likely

        def decode_tokens(token: torch.Tensor) -> torch.Tensor:
            chosen = []
            for _ in range(tokens):
                output = model(**{feed: token}, use_cache=True, return_dict=True, **fixed)
                token = choose(output.logits[:, -1])
                chosen.append(token)
            return torch.cat(chosen, dim=1)

        return decode_tokens

    def make_generate(self) -> Callable[[], torch.Tensor]:
        """The same tokens by the library."""
        model, run, settings, first = self.module, self.generate, self.settings, self.first
        if self.feed == "input_ids":
            fed = torch.cat([self.prompt, first], dim=1)
            arguments = {**self.fixed, "input_ids": fed}
        else:
            # Tokens that it is given it reads, those of the cache too: so it starts at this one.
            fed, arguments = first, self.fixed
            settings.decoder_start_token_id = first
        length = fed.shape[1]

        def generate() -> torch.Tensor:
            fed[:, -1:].copy_(first)  # which checks write into
            # What a checkpoint brings (ends, penalties) would fill all that `settings` leaves open.
            own = model.generation_config
            model.generation_config = settings
            try:
                with torch.inference_mode():
                    ids = run(generation_config=settings, **arguments)
            finally:
                model.generation_config = own
            return ids[:, length:]

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
    reader: Reader, prompt: torch.Tensor, tokens: int, kind: CacheKind, sample: bool
) -> _Window:
    """The model after it has read the prompt, itself as it was."""
    module, feed, read = reader.module, "input_ids", prompt
    context, fixed = prompt.shape[1], dict[str, Any]()
    with quiet_transformers() as transformers:
        with leave_as_found(module), torch.inference_mode():
            module.eval()
            if reader.encoder is not None:
                encoded = reader.encode(prompt)
                feed, fixed["encoder_outputs"] = "decoder_input_ids", encoded
                context = encoded[0].shape[1]
                size, start = (prompt.shape[0], 1), reader.find_start()
                read = torch.full(size, start, device=prompt.device)
            length = read.shape[1] + tokens
            cache = reader.make_cache(transformers, kind, length, context)
            fixed[name_cache(module)] = cache
            # The scores of a long prompt would fill more memory than the model.
            last = {"logits_to_keep": 1} if "logits_to_keep" in list_arguments(module) else {}
            given = {feed: read, "use_cache": True, "return_dict": True, **fixed, **last}
            try:
                output = call_model(lambda: module(**given))
            except RunnerError as error:
                if kind == "dynamic":
                    raise
                raise UnsupportedError(
                    f"{reader.name} does not read its prompt into a static cache ({error}): give "
                    "cache='dynamic'"
                ) from error
            first = _take_most_likely(output.logits[:, -1])
            kept = KeptCache(cache, length=length)
        settings = _make_settings(transformers, tokens, sample)
        generate = reader.find_generate(transformers)
    with torch.inference_mode(False):
        first = first.clone()  # a tensor that may be written in every mode
    return _Window(
        module=module,
        context=context,
        prompt=prompt,
        first=first,
        feed=feed,
        fixed=fixed,
        kept=kept,
        generate=generate,
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
        # A module of the user's code need not come with inputs, nor has ftax to know how to make
        # those of a folder's: the prompt is made here.
        is_bare = not isinstance(model, str) or is_code(model) or looks_like_path(model)
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


def _check_options(tokens: int, cache: str, sample: bool) -> None:
    check_count("tokens", tokens)
    if cache not in get_args(CacheKind):
        raise InvalidArgumentError(f"cache is {cache!r}: give 'dynamic' or 'static'")
    if not isinstance(sample, bool):
        raise InvalidArgumentError(f"sample is {sample!r}: give True or False")
