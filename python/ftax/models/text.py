"""The text models of the zoo.

The surprising choice: requests carry no attention mask. The paper's dense inputs pass none either,
and a mask of ones would change which attention kernel runs.
"""

from ftax.models.huggingface import from_config
from ftax.models.inputs import make_token_ids
from ftax.models.spec import ModelSpec

TEXT_MODELS: tuple[ModelSpec, ...] = (
    ModelSpec(
        name="bert-base",
        family="text",
        description="BERT-base encoder with its pooler: 12 layers of width 768",
        source="transformers.BertModel, configuration of bert-base-uncased",
        paper_section="4",
        paper_name="bert",
        parameter_count=109_482_240,
        size=128,
        max_size=512,
        tiny_size=8,
        attentions=("sdpa", "eager"),
        build=from_config(
            model="BertModel",
            config="BertConfig",
            tiny={
                "hidden_size": 32,
                "num_attention_heads": 4,
                "intermediate_size": 64,
                "vocab_size": 1000,
            },
        ),
        make_inputs=make_token_ids,
    ),
    ModelSpec(
        name="gpt2",
        family="text",
        description="GPT-2 small with its language-model head: 12 layers of width 768, one prefill",
        source="transformers.GPT2LMHeadModel, configuration of gpt2",
        paper_section="C",
        paper_name="gpt2",
        # The head shares the token embedding and is counted once.
        parameter_count=124_439_808,
        size=128,
        max_size=1024,
        tiny_size=8,
        attentions=("sdpa", "eager"),
        has_cache=True,
        build=from_config(
            model="GPT2LMHeadModel",
            config="GPT2Config",
            tiny={"n_embd": 32, "n_head": 4, "vocab_size": 1000},
        ),
        make_inputs=make_token_ids,
    ),
)
