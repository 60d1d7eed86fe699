"""``tapeline families``: supported and refused families by a part of their names."""

import json

import pytest

from tapeline.command import main
from transformer_core.family import refusals
from transformer_core.models import architectures


def _listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, list[dict[str, object]]]:
    assert main(["families", *arguments, "--format=json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_family_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    families = _listed(capsys)["families"]
    supported = {one["architecture"]: one["supported"] for one in families}
    assert supported == dict.fromkeys(architectures(), True) | dict.fromkeys(refusals(), False)
    assert all(one["about"] for one in families)
    assert all(one["commands"] for one in families if one["supported"])


@pytest.mark.parametrize(
    ("architecture", "commands"),
    [
        ("LlamaForCausalLM", ["generate", "chat", "serve"]),
        ("LlavaForConditionalGeneration", ["generate", "chat", "serve", "generate --image"]),
        ("BertForMaskedLM", ["fill", "embed --sparse"]),
        ("BertModel", ["embed"]),
        ("BertForNextSentencePrediction", ["classify"]),
        ("LayoutLMv3ForTokenClassification", ["run"]),
        ("NeoBERTLMHead", ["fill", "embed --sparse"]),
        ("ViTForImageClassification", ["classify --image"]),
        ("MarianMTModel", ["generate"]),
        ("WhisperForConditionalGeneration", ["transcribe"]),
        ("Wav2Vec2ForSequenceClassification", ["run"]),
        ("YolosForObjectDetection", ["run"]),
        ("ConvNextForImageClassification", ["run"]),
        ("ViTMAEModel", ["run"]),
        ("ASTModel", ["run"]),
        ("ASTForAudioClassification", ["run"]),
    ],
)
def test_commands_of_a_family(capsys: pytest.CaptureFixture[str], architecture: str, commands: list[str]) -> None:
    listed = {one["architecture"]: one["commands"] for one in _listed(capsys, architecture)["families"]}
    assert listed[architecture] == commands


def test_names_are_searched(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["families", "SMOLLM"]) == 0
    out = capsys.readouterr().out
    assert "SmolLM3ForCausalLM  generate, chat, serve  SmolLM3" in out
    assert out.endswith("GGUF files, by general.architecture: smollm3\n")
    assert "Llama 1 to 3" not in out


def test_a_name_without_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["families", "mistrel"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: name: no family has 'mistrel' in its name; did you mean 'mistral'")
