"""Pixels of pictures, held bit for bit to transformers."""

import json
from pathlib import Path

import pytest

from lang_core import InputError
from tapeline.media.images import (
    BoxPreprocessor,
    CanvasPreprocessor,
    GridPreprocessor,
    ImagePreprocessor,
    Picture,
    PinpointPreprocessor,
    TilePreprocessor,
    Tiles,
    read_image,
)
from tapeline.runners import squares_of_patches
from tests.goldens.pictures.cases import PICTURES, PROCESSORS
from tests.goldens.pictures.files import picture_bytes, picture_digest, read_picture_goldens

_GOLDENS = read_picture_goldens()
_TILED = ("smolvlm", "idefics3")
Processor = (
    BoxPreprocessor
    | CanvasPreprocessor
    | GridPreprocessor
    | ImagePreprocessor
    | PinpointPreprocessor
    | TilePreprocessor
)


def _processor(name: str, directory: Path, settings: object) -> Processor:
    (directory / "preprocessor_config.json").write_text(json.dumps(settings))
    if name.startswith("internvl"):
        return CanvasPreprocessor.load(directory)
    if name.startswith(("llava_next", "llava_onevision")):
        return PinpointPreprocessor.load(directory)
    if name.startswith("pixtral"):
        return BoxPreprocessor.load(directory, 7)
    if name.startswith("qwen"):
        return GridPreprocessor.load(directory)
    return (TilePreprocessor if name.startswith(_TILED) else ImagePreprocessor).load(directory)


@pytest.mark.parametrize("name", PICTURES)
def test_pixels_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    expected = _GOLDENS["pictures"][name]
    picture = read_image(picture_bytes(name, PICTURES[name]))
    assert picture_digest(picture.pixels) == expected["picture"]
    for processor, settings in PROCESSORS.items():
        process = _processor(processor, tmp_path, settings)
        if expected[processor] is None:
            with pytest.raises(InputError, match="too narrow"):
                process(picture)
        else:
            assert _digest(process, picture, expected[processor]) == expected[processor], processor


@pytest.mark.parametrize("name", PROCESSORS)
def test_settings_that_transformers_saves_are_read(name: str, tmp_path: Path) -> None:
    processor = _processor(name, tmp_path, _GOLDENS["settings"][name])
    for picture in ("rgb", "turned_5", "rgba_wide"):
        expected = _GOLDENS["pictures"][picture][name]
        assert _digest(processor, read_image(picture_bytes(picture, PICTURES[picture])), expected) == expected


def _digest(process: Processor, picture: Picture, expected: object) -> object:
    made = process(picture)
    if isinstance(process, GridPreprocessor):
        assert isinstance(made, Tiles)
        _, _, height, width = made.pixels.shape
        patches = squares_of_patches(made.pixels[0], process.patch, process.merge)
        return [picture_digest(patches), height // process.patch, width // process.patch]
    if isinstance(made, Tiles) and isinstance(expected, list) and len(expected) == 2:
        return [picture_digest(made.pixels), len(made.pixels)]
    if isinstance(made, Tiles) and isinstance(expected, str):
        return picture_digest(made.pixels[0] if isinstance(process, BoxPreprocessor) else made.pixels)
    if isinstance(made, Tiles):
        return [picture_digest(made.pixels), made.rows, made.columns]
    return picture_digest(made)


def test_goldens_are_of_these_cases() -> None:
    assert set(_GOLDENS["pictures"]) == set(PICTURES)
    assert all(set(row) == {"picture", *PROCESSORS} for row in _GOLDENS["pictures"].values())
    assert len(PICTURES) >= 50
    assert _GOLDENS["script"] == "tests/goldens/pictures/make_picture_goldens.py"
