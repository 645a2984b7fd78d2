"""The speech models of the zoo: 2 s of sound at 16 kHz, as in the paper."""

from ftax.steps.zoo.entries import BOTH, speech_model

SPEECH_MODELS = (
    speech_model(
        "wavlm",
        "WavLM-base: 7 convolutions, 12 layers of width 768, gated positions",
        "WavLMModel",
        "configuration of microsoft/wavlm-base",
        paper_section="E",
        paper_name="wavlm",
        parameter_count=94_381_936,
    ),
    speech_model(
        "wav2vec2",
        "wav2vec 2.0 base: 7 convolutions, 12 layers of width 768",
        "Wav2Vec2Model",
        "configuration of facebook/wav2vec2-base",
        parameter_count=94_371_712,
        attentions=BOTH,
    ),
    speech_model(
        "hubert",
        "HuBERT-base: wav2vec 2.0's layers, trained otherwise",
        "HubertModel",
        "configuration of facebook/hubert-base-ls960",
        parameter_count=94_371_712,
        attentions=BOTH,
    ),
)
