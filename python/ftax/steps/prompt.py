"""A language model, the prompt that it reads (by its encoder, or else by itself), and its cache of
keys and values, as it was at one moment and put back.

An encoder with a decoder is told by `config.is_encoder_decoder` and nothing else of its class. What
its encoder reads (tokens, sound, pictures) is what that one says of itself. Of a cache's classes
nothing is known but two names, `keys` and `values`. What else a layer holds (lengths as integers or
as tensors, states of a scan) is kept by looking, since what counts the positions has changed with
the library's versions.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ftax.errors import InvalidArgumentError, check_count, name_type
from ftax.steps.inputs import INPUT_STREAM, make_generator
from ftax.steps.outputs import call_model
from ftax.steps.setting import CacheKind, Setting

_CONTEXT = 128
_TOKENS = "input_ids"
# Of a configuration: the most positions of a decoder, or of the encoder before it.
_MOST_DECODED = (
    "max_position_embeddings",
    "max_target_positions",
    "max_decoder_position_embeddings",
)
_MOST_ENCODED = ("max_position_embeddings", "max_encoder_position_embeddings")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reader:
    """A model that generates with a cache, and its encoder; None for a model without."""

    module: Any
    name: str
    encoder: Any

    @classmethod
    def of(cls, module: Any, name: str) -> Reader:
        """Raises InvalidArgumentError for a model that does not generate with a cache."""
        _check_generates(module, name)
        encoder = module.get_encoder() if module.config.is_encoder_decoder else None
        return cls(module=module, name=name, encoder=encoder)

    @property
    def argument(self) -> str:
        """The argument that takes the prompt."""
        return str(getattr(self.encoder, "main_input_name", _TOKENS))

    @property
    def reads_tokens(self) -> bool:
        """Whether the prompt is token ids."""
        return self.argument == _TOKENS

    @property
    def config(self) -> Any:
        """Of what makes the tokens."""
        return self.module.config.get_text_config(decoder=True)

    @property
    def vocabulary(self) -> int:
        """How many ids a prompt may have."""
        return int((self.config if self.encoder is None else self.encoder.config).vocab_size)

    @property
    def device(self) -> torch.device:
        """Of the model."""
        found: torch.device = next(self.module.parameters()).device
        return found

    def make_prompt(self, setting: Setting, context: int | None) -> torch.Tensor:
        """Ids uniform over the vocabulary, those that `load_model` makes of this seed."""
        if not self.reads_tokens:
            raise InvalidArgumentError(
                f"{self.name} reads {self.argument}, which ftax cannot make: give prompt=, the "
                "input of its encoder"
            )
        length = _CONTEXT if context is None else context
        check_count("context", length)
        generator = make_generator(setting.seed, INPUT_STREAM)
        size = (setting.batch or 1, length)
        drawn = torch.randint(0, self.vocabulary, size, generator=generator)
        return drawn.to(self.device)

    def check_prompt(self, prompt: Any, context: int | None, batch: int | None) -> None:
        """Raises InvalidArgumentError for what is no prompt of the model, or not of these sizes."""
        if self.reads_tokens:
            _check_ids(prompt)
        elif not isinstance(prompt, torch.Tensor) or prompt.ndim < 2 or prompt.numel() == 0:
            is_tensor = isinstance(prompt, torch.Tensor)
            what = f"of shape {tuple(prompt.shape)}" if is_tensor else name_type(prompt)
            raise InvalidArgumentError(
                f"prompt is {what}: give the {self.argument} of {self.name}, a tensor whose first "
                "dimension is the batch"
            )
        elif context is not None:
            raise InvalidArgumentError(
                f"context is {context!r}, but {self.name} reads {self.argument}, no tokens: leave "
                "context out"
            )
        for option, given, found in (
            ("context", context, prompt.shape[-1]),
            ("batch", batch, prompt.shape[0]),
        ):
            if given is not None and given != found:
                raise InvalidArgumentError(
                    f"{option} is {given!r}, but the prompt has {found}: leave {option} out"
                )
        if prompt.device != self.device:
            raise InvalidArgumentError(
                f"prompt is on {prompt.device}, but the model is on {self.device}: give "
                f"prompt.to({str(self.device)!r})"
            )
        if not self.reads_tokens:
            return
        least, most = int(prompt.min()), int(prompt.max())
        if least < 0 or most >= self.vocabulary:
            raise InvalidArgumentError(
                f"prompt has ids from {least} to {most}: give ids from 0 to {self.vocabulary - 1}, "
                "the model's vocabulary"
            )

    def check_positions(self, prompt: torch.Tensor, tokens: int) -> None:
        """Raises InvalidArgumentError for more positions than the model has."""
        context = prompt.shape[1]
        if self.encoder is not None:
            most = _find_most(self.encoder.config, _MOST_ENCODED)
            if self.reads_tokens and most is not None and context > most:
                raise InvalidArgumentError(
                    f"a context of {context} is more than the {most} positions of the encoder of "
                    f"{self.name}: give fewer"
                )
            context = 1  # the token at which the decoder starts
        most = _find_most(self.config, _MOST_DECODED)
        if most is not None and context + tokens > most:
            raise InvalidArgumentError(
                f"a context of {context} and {tokens} tokens are {context + tokens} positions, but "
                f"{self.name} has {most}: give fewer"
            )

    def encode(self, prompt: torch.Tensor) -> Any:
        """What the decoder attends to, (batch, positions, width) at [0]. Raises RunnerError."""
        return call_model(lambda: self.encoder(**{self.argument: prompt}, return_dict=True))

    def find_start(self) -> int:
        """The token at which the decoder starts, as `generate` finds it; the padding where there
        is none, as T5 has it. Raises InvalidArgumentError where there is none either."""
        holders = (self.module.generation_config, self.module.config, self.config)
        for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id"):
            for holder in holders:
                if isinstance(found := getattr(holder, name, None), int):
                    return found
        raise InvalidArgumentError(
            f"{self.name} does not say at which token its decoder starts: set "
            "model.generation_config.decoder_start_token_id"
        )

    def make_cache(self, transformers: Any, kind: CacheKind, length: int, encoded: int) -> Any:
        """An empty one for ``length`` positions, and ``encoded`` of an encoder."""

        # T5's own has the decoder's number of layers.
        config = (self.module if self.encoder is None else self.module.get_decoder()).config

        def make(positions: int) -> Any:
            if kind == "static":
                return transformers.StaticCache(config=config, max_cache_len=positions)
            return transformers.DynamicCache(config=config)

        if self.encoder is None:
            return make(length)
        return transformers.EncoderDecoderCache(make(length), make(encoded))

    def find_generate(self, transformers: Any) -> Callable[..., torch.Tensor]:
        """What makes tokens by the library. Whisper's own takes sound apart into segments, of each
        of which it calls that of all models."""
        found: Callable[..., torch.Tensor] = self.module.generate
        if self.encoder is not None and isinstance(self.module, transformers.GenerationMixin):
            found = functools.partial(transformers.GenerationMixin.generate, self.module)
        return found


def _check_generates(module: Any, name: str) -> None:
    lacks = None
    if not callable(getattr(module, "generate", None)):
        lacks = "has no generate()"
    elif not hasattr(getattr(module, "config", None), "get_text_config"):
        lacks = "has no config of transformers"
    elif not name_cache(module) or not hasattr(
        module.config.get_text_config(decoder=True), "num_attention_heads"
    ):
        lacks = "keeps no keys and values"
    elif module.config.is_encoder_decoder and "encoder_outputs" not in list_arguments(module):
        lacks = "takes no encoder_outputs, which are computed once"
    if lacks is not None:
        kind = type(module).__name__
        told = name if name == kind else f"{name} ({kind})"
        raise InvalidArgumentError(
            f"{told} {lacks}: give a language model of transformers, causal or an encoder with a "
            "decoder, such as LlamaForCausalLM, or 'llama' of the zoo"
        )


def _check_ids(prompt: Any) -> None:
    if not isinstance(prompt, torch.Tensor):
        raise InvalidArgumentError(
            f"prompt is {name_type(prompt)}: give token ids, an int64 tensor (batch, context)"
        )
    if prompt.dtype != torch.int64 or prompt.ndim != 2 or prompt.numel() == 0:
        raise InvalidArgumentError(
            f"prompt is {prompt.dtype} of shape {tuple(prompt.shape)}: give token ids, an int64 "
            "tensor (batch, context), without padding"
        )


def _find_most(config: Any, names: Sequence[str]) -> int | None:
    found = (getattr(config, name, None) for name in names)
    return next((most for most in found if isinstance(most, int)), None)


def list_arguments(module: nn.Module) -> list[str]:
    """Of its forward, in their order."""
    return list(inspect.signature(module.forward).parameters)


def name_cache(module: nn.Module) -> str:
    """The argument by which a model takes its keys and values, and the field in which it returns
    them: transformers 5.24 gave it another name. "" for a model without."""
    arguments = inspect.signature(module.forward).parameters
    return next((name for name in ("cache", "past_key_values") if name in arguments), "")


class KeptCache:
    """What `cache` holds now.

    Tensors that a layer replaces are referred to, and copied only where a layer writes into them. A
    static layer that has memory for `length` positions writes behind those that are there now, and
    a mask hides what it wrote: its keys and values are not copied either. That of an encoder with a
    decoder is of two: what its decoder attends to of the encoder is there, and stays.
    """

    def __init__(self, cache: Any, *, length: int) -> None:
        self._containers: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
        self._written: list[tuple[torch.Tensor, torch.Tensor]] = []
        for container in _list_containers(cache):  # which layers are filled from the encoder
            self._containers.append((container, container.copy()))
        decoded = getattr(cache, "self_attention_cache", cache)
        self._keep_layers(decoded, int(decoded.get_seq_length()), length)
        if decoded is not cache:
            filled = int(cache.cross_attention_cache.get_seq_length())
            self._keep_layers(cache.cross_attention_cache, filled, filled)

    def _keep_layers(self, cache: Any, filled: int, length: int) -> None:
        for layer in cache.layers:
            for container in _list_containers(layer):
                self._containers.append((container, container.copy()))
            for tensor in _list_written(layer, filled, length):
                self._written.append((tensor, tensor.clone()))

    def put_back(self) -> None:
        """Make the cache what it was, in the same objects and memory."""
        for container, before in self._containers:
            container.update(before)
        with torch.inference_mode():
            for tensor, values in self._written:
                tensor.copy_(values)


def _list_containers(holder: Any) -> Iterator[dict[Any, Any]]:
    attributes = vars(holder)
    yield attributes
    yield from (value for value in attributes.values() if isinstance(value, dict))


def _list_written(layer: Any, filled: int, length: int) -> Iterator[torch.Tensor]:
    """The tensors, or parts of them, that the layer may write into and that are read again."""
    capacity = getattr(layer, "max_cache_len", None)
    for container in _list_containers(layer):
        for name, tensor in container.items():
            if not isinstance(tensor, torch.Tensor):
                continue
            slides = capacity is not None and capacity < length
            if name not in ("keys", "values") or slides:
                yield tensor
            elif capacity is not None and not hasattr(layer, "cumulative_length"):
                # transformers 5.0 counts the positions that are not zero.
                yield tensor.narrow(-2, filled, capacity - filled)
