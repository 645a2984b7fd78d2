"""Text generation, token by token, with a KV cache. An iteration is a token."""

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from support import Clock, finish, parse, plant

NEW_TOKENS = 64
VOCABULARY = 8000
END_OF_TEXT = 2


def probe(module, inputs, output):
    """Reads along, halfway through the model."""
    plant(1)


def build(device):
    big = device.type == "cuda"
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=512 if big else 64,
        intermediate_size=1536 if big else 128,
        num_hidden_layers=6 if big else 2,
        num_attention_heads=8,
        num_key_value_heads=8,
        max_position_embeddings=512,
    )
    model = LlamaForCausalLM(config).to(device, torch.bfloat16 if big else torch.float32).eval()
    model.model.layers[1].register_forward_hook(probe)
    return model


def prepare(ids, cache):
    plant(0)
    return {"input_ids": ids, "past_key_values": cache, "use_cache": True}


def choose(logits):
    scores = logits[:, -1].float()
    scores[:, :END_OF_TEXT] = float("-inf")
    plant(2)
    return scores.argmax(dim=-1, keepdim=True)


def to_text(token):
    plant(3)
    return chr(ord("a") + token % 26) + " " * (token % 5 == 0)


@torch.inference_mode()
def generate(model, prompt, steps, history):
    ids, cache, text = prompt, DynamicCache(config=model.config), ""
    for _, _ in zip(range(NEW_TOKENS), steps):
        logits = model(**prepare(ids, cache)).logits
        ids = choose(logits)
        token = ids.item()
        text += to_text(token)
        history.append(token)
        plant(4)
        if token == END_OF_TEXT:
            break
    return text


def main():
    options = parse()
    model = build(options.device)
    # Attention on a GPU is planned anew for each length, which takes longer than the token.
    clock = Clock(options, warm_up=NEW_TOKENS)
    steps, history, random = clock.iterations(), [], torch.Generator().manual_seed(1)
    while not clock.done:
        prompt = torch.randint(3, VOCABULARY, (1, 32), generator=random).to(options.device)
        generate(model, prompt, steps, history)
    finish(clock, history[-50:])


if __name__ == "__main__":
    main()
