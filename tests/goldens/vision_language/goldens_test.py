"""Decoders that see pictures, in the eager context: held to transformers."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from generation.engine import image_places, ordered_rows
from lang_core import ConfigError, EagerExecutionContext, EntryPoint, InputError, MappingWeights
from tapeline.media.images import Picture, read_image
from tapeline.runners import squares_of_patches
from tapeline.running import PICTURE_FORMS, PicturePart, PicturePrompts
from tapeline.text import Tokenizer
from tests.goldens.vision_language.cases import CASES, Turn
from tests.goldens.vision_language.files import (
    read_vision_language_golden,
    read_vision_language_manifest,
    turn_picture,
    vision_language_weights,
    write_vision_language_checkpoint,
)
from transformer_core.models import entry_points, load_model, weights_of

_TOLERANCE = 1e-4
_CHUNK = 32
_WHOLE_CHUNK = 96  # has all pictures of a prompt
_TURNS = [(name, place) for name, case in CASES.items() for place in range(len(case.turns))]


class _Seeing:
    """A case's model in the eager context."""

    def __init__(self, name: str, directory: Path) -> None:
        case, shapes = CASES[name], read_vision_language_manifest()["cases"][name]["shapes"]
        write_vision_language_checkpoint(directory, case, shapes)
        self._directory = directory
        self._model: Any = load_model(directory)
        model = self._model
        self._chunk = _WHOLE_CHUNK if model.config.facts().get("image_whole") else _CHUNK
        self._ctx = EagerExecutionContext(weights_of(model, MappingWeights(vision_language_weights(shapes, case.seed))))
        self._points = {point.name: point for point in entry_points(model, sequence=self._chunk, max_sequence=256)}
        self._token = case.image_token
        self.width = self._points["prefill_embeddings"].arguments[1].spec.shape[-1]
        self._form = PICTURE_FORMS[model.config.image_form](directory, model.config.facts(), Tokenizer.load(directory))
        caches = [argument for argument in self._points["decode"].arguments if argument.alias_result]
        self._caches: Any = {cache.name: np.zeros(cache.spec.shape, np.float32) for cache in caches}

    def facts(self) -> dict[str, Any]:
        """Returns the model's entries in the description of a bundle."""
        return self._model.config.facts()

    def prompts(self) -> PicturePrompts:
        """Returns the prompts of a bundle of the model."""
        config = SimpleNamespace(entry_points=[*self._points.values()], model=self.facts())
        bundle: Any = SimpleNamespace(path=self._directory, config=config)
        return PicturePrompts(bundle, Tokenizer.load(self._directory))

    def embeddings(self, turn: Turn, prompt: np.ndarray) -> np.ndarray:
        """Returns f32 [T, D]: those of pictures where image tokens are, and NaN elsewhere."""
        pictures = [self._form.tiles(read_image(turn_picture(name))) for name in turn.pictures]
        parts = [part for picture in pictures for part in self._form.parts(picture)]
        rows = np.full((len(prompt), self.width), np.nan, np.float32)
        seen = [self._part(part) for part in parts]
        rows[prompt == self._token] = np.concatenate(seen) if seen else np.zeros((0, self.width), np.float32)
        return rows

    def _part(self, part: PicturePart) -> np.ndarray:
        if part.order is None:
            return self._seen(part.pixels)
        rows = np.concatenate([self._seen(tile) for tile in part.pixels])
        return ordered_rows(rows, part.order, part.weights)[image_places(part.order)]

    def _seen(self, tile: np.ndarray) -> np.ndarray:
        arguments = self._points["encode_image"].arguments
        if len(arguments) == 1:
            return self._call("encode_image", {"pixel_values": tile[None]})["image_embeds"][0]
        merge = self._model.config.vision.merge
        patches = squares_of_patches(tile, 4, merge)
        pixels = np.full(arguments[0].spec.shape, np.float32(7))  # padding has no effect
        pixels[0, : len(patches)] = patches
        grid = np.array([[tile.shape[1] // 4, tile.shape[2] // 4]], np.int32)
        embeds = self._call("encode_image", {"pixel_values": pixels, "grid": grid})["image_embeds"][0]
        return embeds[: len(patches) // merge**2]

    def prefill(self, prompt: np.ndarray, embeddings: np.ndarray) -> np.ndarray:
        """Runs a prompt in chunks and returns the logits after it."""
        logits = np.zeros(0)
        for start in range(0, len(prompt), self._chunk):
            count = len(prompt[start : start + self._chunk])
            ids, rows = np.zeros((1, self._chunk), np.int32), np.zeros((1, self._chunk, self.width), np.float32)
            ids[0, :count], rows[0, :count] = prompt[start : start + count], embeddings[start : start + count]
            places = {"position": np.int32(start), "last": np.int32(count - 1)}
            logits = self._step("prefill_embeddings", {"token_ids": ids, "embeddings": rows, **places})
        return logits

    def prefill_text(self, prompt: np.ndarray) -> np.ndarray:
        """Runs a prompt of one chunk without the entry point of pictures, and returns the logits after it."""
        ids = np.zeros((1, self._chunk), np.int32)
        ids[0, : len(prompt)] = prompt
        return self._step("prefill", {"token_ids": ids, "position": np.int32(0), "last": np.int32(len(prompt) - 1)})

    def forward(self, token_ids: np.ndarray) -> np.ndarray:
        """Returns the logits [T, V] of a whole text."""
        return self._model.forward(self._ctx, self._ctx.constant(token_ids[None])).numpy()[0]

    def decode(self, token: int, position: int) -> np.ndarray:
        """Appends a token and returns the logits after it."""
        return self._step("decode", {"token_ids": np.array([[token]], np.int32), "position": np.int32(position)})

    def _step(self, name: str, given: Mapping[str, Any]) -> np.ndarray:
        results = self._call(name, {**given, **self._caches})
        self._caches = {cache: results[cache] for cache in self._caches}
        return results["logits"][0]

    def _call(self, name: str, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
        point: EntryPoint = self._points[name]
        results = point(self._ctx, *(self._ctx.constant(given[argument.name]) for argument in point.arguments))
        return {result: tensor.numpy() for result, tensor in results.items()}


@pytest.mark.parametrize(("name", "place"), _TURNS)
def test_logits_are_those_of_transformers(name: str, place: int, tmp_path: Path) -> None:
    turn, golden = CASES[name].turns[place], read_vision_language_golden(name)[place]
    model, prompt = _Seeing(name, tmp_path), golden["prompt"]
    logits = [model.prefill(prompt, model.embeddings(turn, prompt))]
    for step, token in enumerate(golden["tokens"][:-1]):
        logits.append(model.decode(int(token), len(prompt) + step))
    np.testing.assert_allclose(np.stack(logits), golden["logits"], atol=_TOLERANCE)


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_texts_alone_need_no_entry_point_of_pictures(name: str, tmp_path: Path) -> None:
    golden = read_vision_language_golden(name)[2]
    model, prompt = _Seeing(name, tmp_path), golden["prompt"]
    logits = [model.prefill_text(prompt)]
    for step, token in enumerate(golden["tokens"][:-1]):
        logits.append(model.decode(int(token), len(prompt) + step))
    np.testing.assert_allclose(np.stack(logits), golden["logits"], atol=_TOLERANCE)
    whole = model.forward(np.concatenate([prompt, golden["tokens"][:-1]]))
    np.testing.assert_allclose(whole[len(prompt) - 1 :], golden["logits"], atol=_TOLERANCE)


def test_one_vision_takes_one_picture_of_its_own_processor(tmp_path: Path) -> None:
    model, image = _Seeing("llava_onevision", tmp_path), turn_picture("rgb")
    prompts = model.prompts()
    tiles = prompts.see([image])
    assert (
        prompts.written("<image>?", tiles).count("<image>")
        == (read_vision_language_golden("llava_onevision")[0]["prompt"] == 257).sum()
    )
    for refused in (lambda: prompts.written("<image><image>", tiles * 2), lambda: prompts.placed([257], tiles * 2)):
        with pytest.raises(InputError, match=r"has 2 pictures, and .* takes 1 per prompt"):
            refused()
    (tmp_path / "processor_config.json").write_text("{}")
    with pytest.raises(ConfigError, match="'vision_aspect_ratio': expected anyres_max_2, as config"):
        model.prompts()


def test_a_picture_whose_rows_shrink_to_none_is_refused(tmp_path: Path) -> None:
    facts = _Seeing("llava_onevision", tmp_path).facts()
    canvases = {"image_grid_pinpoints": [[26, 780]]}
    settings = {**CASES["llava_onevision"].preprocessor, **canvases}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    model = {**facts, "image_canvases": canvases["image_grid_pinpoints"]}
    form = PICTURE_FORMS["anyres_max"](tmp_path, model, None)
    assert form.tiles(Picture(np.zeros((26, 780, 3), np.uint8))).columns == 30
    with pytest.raises(InputError, match="a picture of 780 x 5 pixels has no row or column of tokens left"):
        form.tiles(Picture(np.zeros((5, 780, 3), np.uint8)))


def test_goldens_are_of_these_cases() -> None:
    manifest = read_vision_language_manifest()
    assert {name: case.digest() for name, case in CASES.items()} == {
        name: made["case"] for name, made in manifest["cases"].items()
    }
    assert manifest["script"] == "tests/goldens/vision_language/make_vision_language_goldens.py"
