"""Runs the Python of pages that needs models or servers, with tiny models of the same kinds under the pages' names."""

import contextlib
import json
import shutil
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from tests.docs._snippets import PAGES, Snippets, blocks_of
from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.encoders.files import write_encoder_checkpoint
from tests.goldens.heads.cases import HEAD_CASES, read_goldens, write_files, write_weights
from tests.goldens.speech.cases import SPEECH_CASES
from tests.goldens.speech.files import RATE, SPEECH, read_speech_goldens, sound, write_speech_checkpoint
from tests.goldens.vision_language.cases import CASES
from tests.goldens.vision_language.files import (
    read_vision_language_manifest,
    turn_picture,
    write_vision_language_checkpoint,
)
from tests.product._bundles import export
from tests.product._sentences import export_sentences, write_sentence_tokenizer
from tests.product._serving import ServerProcess, serving

_SERVER: Final = "http://127.0.0.1:8000"
_CHAT: Final = "{% for m in messages %}{{ m.content }}{% endfor %}"
# What the text of a page defines, or an earlier page.
_PRELUDES: Final = {
    "docs/encoders.md": "import tapeline\ntexts = ['w5 w9', 'w7']\n",
    "docs/serving-api.md": (
        "import base64\nfrom pathlib import Path\n"
        f"import openai\nclient = openai.OpenAI(base_url='{_SERVER}/v1', api_key='none')\n"
    ),
}
# Blocks of Python on each page that ask a server, and all of them.
_SERVED: Final = {"docs/grammars.md": 1, "docs/serving-api.md": 1, "docs/serving.md": 1, "docs/start.md": 1}
_HEADS: Final = {
    "classes": "sentiment-bundle",
    "entities": "ner-bundle",
    "answers": "squad-bundle",
    "masked": "bert-bundle",
}
_LOADED: Final = {"docs/encoders.md": 4, "docs/transcription.md": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles and files of the pages' names."""
    folder = tmp_path_factory.mktemp("pages")
    export("demo", folder / "demo", sequence=8, slots=2, max_sequence=256)
    (folder / "demo" / "chat_template.jinja").write_text(_CHAT)
    shutil.copytree(folder / "demo", folder / "SmolLM2-135M-Instruct.Q4_1")

    case = CASES["smolvlm"]
    (folder / "smolvlm-model").mkdir()
    shapes = read_vision_language_manifest()["cases"][case.name]["shapes"]
    write_vision_language_checkpoint(folder / "smolvlm-model", case, shapes)
    export(folder / "smolvlm-model", folder / "smolvlm", sequence=8, slots=1, max_sequence=256)
    for name in ("table.jpg", "cat.jpg", "rug.png"):
        (folder / name).write_bytes(turn_picture("rgb"))

    export_sentences(folder / "minilm-model", folder / "minilm-bundle")
    (folder / "reranker-model").mkdir()
    write_encoder_checkpoint(folder / "reranker-model", ENCODER_CASES["xlm_roberta_classifier"])
    write_sentence_tokenizer(folder / "reranker-model")
    export(folder / "reranker-model", folder / "bge-reranker-bundle", batch=2, sequence=16)
    goldens = read_goldens()["cases"]
    for name, bundle in _HEADS.items():
        write_files(folder / name, HEAD_CASES[name])
        write_weights(folder / name, HEAD_CASES[name], goldens[name]["shapes"])
        export(folder / name, folder / bundle, sequence=32)
    (folder / "siglip-model").mkdir()
    write_encoder_checkpoint(folder / "siglip-model", ENCODER_CASES["siglip"])
    settings = {"image_processor_type": "SiglipImageProcessor", "size": {"height": 10, "width": 10}}
    (folder / "siglip-model" / "preprocessor_config.json").write_text(json.dumps(settings))
    export(folder / "siglip-model", folder / "siglip", batch=2, entry_points=("encode_image",))

    (folder / "tiny-model").mkdir()
    write_speech_checkpoint(folder / "tiny-model", read_speech_goldens()["shapes"])
    export(folder / "tiny-model", folder / "tiny", sequence=4)
    shutil.copy(SPEECH, folder / "ishmael.flac")
    samples = np.clip(np.asarray(sound(SPEECH_CASES["plain"].sound)) * 32767, -32768, 32767).astype("<i2")
    with wave.open(str(folder / "fox.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.tobytes())
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    names = ("demo", "SmolLM2-135M-Instruct.Q4_1", "smolvlm", "tiny")
    with serving(folder / "server", *(f"--bundle={folder / name}" for name in names)) as started:
        yield started
        assert started.end() == 0


def _run(page: str, folder: Path, server: ServerProcess, wanted: Any) -> int:
    snippets, shown = Snippets(page), 0
    url = server.url.removesuffix("/v1")
    with contextlib.chdir(folder):
        snippets.run_beside(_PRELUDES.get(page, "").replace(_SERVER, url))
        for number, (language, code) in enumerate(blocks_of(page)):
            if language == "python" and wanted(code):
                snippets.run(code.replace(_SERVER, url), f"block {number}")
                shown += 1
        for name in ("client", "model"):
            if hasattr(snippets.names.get(name), "close"):
                snippets.names[name].close()
    assert snippets.uncalled() == []
    return shown


@pytest.mark.parametrize("page", _SERVED)
def test_pages_that_ask_a_server(page: str, folder: Path, server: ServerProcess) -> None:
    assert _run(page, folder, server, lambda code: "client" in code) == _SERVED[page]


@pytest.mark.parametrize("page", _LOADED)
def test_pages_that_load_a_model(page: str, folder: Path, server: ServerProcess) -> None:
    assert _run(page, folder, server, lambda code: True) == _LOADED[page]
    assert sum(language == "python" for language, _ in blocks_of(page)) == _LOADED[page]


def test_every_page_that_asks_a_server_is_here() -> None:
    asking = {page for page in PAGES for language, code in blocks_of(page) if language == "python" and "client" in code}
    assert asking == {*_SERVED, "docs/transcription.md"}
