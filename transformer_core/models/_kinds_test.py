"""Near names of architectures that are not supported: few, and of the same kind."""

import re
from typing import Any

import pytest

from lang_core import ConfigError
from transformer_core._config_fields import ConfigFields
from transformer_core.family import family_in, kind_of, near_of_kind
from transformer_core.models import architectures
from transformer_core.models.gguf.readers import READERS

# The kind of an architecture of transformers, by the task that transformers registers it for.
_KINDS = {
    "decoder": ["OlmoHybridForCausalLM", "RwkvForCausalLM", "XLNetLMHeadModel"],
    "encoder": ["FNetForMaskedLM", "SqueezeBertForSequenceClassification", "XLNetModel", "FunnelModel"],
    "encoder-decoder": [
        "BlenderbotForCausalGeneration",
        "ProphetNetForConditionalGeneration",
        "LongT5ForConditionalGeneration",
        "BartModel",
    ],
    "vision": [
        "Data2VecVisionModel",
        "Swinv2ForImageClassification",
        "Siglip2Model",
        "ConvNextV2ForImageClassification",
    ],
    "vision-language": ["Glm4vForConditionalGeneration", "Ovis2ForConditionalGeneration", "InternVLForCausalLM"],
    "audio": ["Wav2Vec2ConformerForCTC", "Qwen2AudioForConditionalGeneration", "SpeechT5ForSpeechToText"],
}
_SUPPORTED = {
    "encoder": {"BertModel", "T5EncoderModel", "LlamaModel", "Qwen2ForSequenceClassification"},
    "encoder-decoder": {"T5ForConditionalGeneration", "BlenderbotForConditionalGeneration", "MarianMTModel"},
    "vision": {"ViTModel", "CLIPModel", "SiglipVisionModel"},
    "vision-language": {"SmolVLMForConditionalGeneration", "Gemma3ForConditionalGeneration"},
    "audio": {"WhisperForConditionalGeneration", "ASTModel", "ASTForAudioClassification"},
    "decoder": {"LlamaForCausalLM", "GPT2LMHeadModel", "Lfm2MoeForCausalLM"},
}
_HYBRID = {"architectures": ["OlmoHybridForCausalLM"], "model_type": "olmo_hybrid"}
_QWEN_VL = {"architectures": ["Qwen4VLForConditionalGeneration"], "model_type": "qwen4_vl", "vision_config": {}}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in _KINDS.items() for name in names])
def test_near_names_are_of_the_same_kind(kind: str, name: str) -> None:
    assert kind_of(name) == kind
    with pytest.raises(ConfigError) as refused:
        family_in(ConfigFields({"architectures": [name]}, "config.json"))
    message = str(refused.value)
    near = re.findall(r"'(\w+)'", message.partition("did you mean")[2])
    assert len(near) <= 5
    assert {kind_of(other) for other in near} <= {kind}
    assert len(message) < 500
    for page in ("docs/models.md", "docs/extending.md"):
        assert page in message


def test_every_supported_architecture_has_a_kind() -> None:
    kinds = {name: kind_of(name) for name in architectures()}
    assert set(kinds.values()) == set(_SUPPORTED)
    for kind, names in _SUPPORTED.items():
        assert {kinds[name] for name in names} == {kind}
    assert {kind for name, kind in kinds.items() if name.endswith("ForCausalLM")} == {"decoder"}


@pytest.mark.parametrize(
    ("values", "expected", "never"),
    [
        (_HYBRID, "did you mean 'OlmoForCausalLM'", "Falcon"),
        (_QWEN_VL, "'Qwen3VLForConditionalGeneration'", "T5"),
        (
            {"model_type": "falcon_h2", "vocab_size": 3},
            "'model_type': 'falcon_h2' is not supported; did you mean 'falcon_h1'",
            "olmo",
        ),
        ({"model_type": "qwen22"}, "'qwen22' is not supported; did you mean 'qwen2'", "t5"),
        ({"model_type": "fsmt", "is_encoder_decoder": True}, "'fsmt' is not supported; docs/models.md", "bert"),
    ],
)
def test_the_message(values: dict[str, Any], expected: str, never: str) -> None:
    with pytest.raises(ConfigError) as refused:
        family_in(ConfigFields(values, "config.json"))
    assert expected in str(refused.value)
    assert never not in str(refused.value)


def test_every_typo_of_a_supported_name_is_found() -> None:
    known = [(name, kind_of(name)) for name in architectures()]
    for name, kind in known:
        typo = name[:2] + name[3:]
        assert f"'{name}'" in near_of_kind(typo, kind, known)


@pytest.mark.parametrize(
    ("name", "near"),
    [("falcon-h2", ["falcon-h1", "falcon"]), ("wavtokenizer-dec", []), ("neo-bert", ["nomic-bert", "eurobert"])],
)
def test_architectures_of_gguf_files(name: str, near: list[str]) -> None:
    known = [(other, kind_of(other, default="decoder")) for other in READERS]
    hint = near_of_kind(name, kind_of(name, default="decoder"), known)
    assert re.findall(r"'([\w-]+)'", hint) == near
