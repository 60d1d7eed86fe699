import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lang_core import ConfigError, InputError
from tapeline.media.images import ImageLimits, ImagePreprocessor, Picture, TilePreprocessor

_VIT = {"image_processor_type": "ViTImageProcessor", "size": {"height": 5, "width": 7}}
_PICTURE = Picture(np.random.default_rng(5).integers(0, 256, (24, 37, 3), dtype=np.uint8))


def _write(directory: Path, settings: object, name: str = "preprocessor_config.json") -> Path:
    (directory / name).write_text(json.dumps(settings))
    return directory


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"image_processor_type": "DonutImageProcessor"},
            "'image_processor_type': expected one of ViTImageProcessor, D",
        ),
        ({"do_pad": True}, "'do_pad': expected false, or no such field: known steps are do_resize"),
        ({"do_pan_and_scan": True}, "'do_pan_and_scan': expected false"),
        ({"use_square_size": True}, "'use_square_size': expected false"),
        ({"size": {"longest_edge": 7}}, "'size': expected one of height and width; shortest_edge; longest_edge and sh"),
        ({"size": {"height": 5, "width": 0}}, "'size': expected sides of 1 to 16384 pixels"),
        ({"size": {"height": 5, "width": 2**40}}, "'size': expected sides of 1 to 16384 pixels"),
        ({"size": "large"}, "'size': expected an object such as"),
        ({"do_center_crop": True, "crop_size": {"shortest_edge": 4}}, "'crop_size': expected height and width"),
        ({"do_center_crop": True}, "'crop_size': expected an object such as"),
        ({"resample": 9}, "'resample': expected the number of a filter of Pillow, 0 to 5; found 9"),
        ({"do_resize": "yes"}, "'do_resize': expected true or false"),
        ({"rescale_factor": 0}, "'rescale_factor': expected a finite number above 0"),
        ({"image_mean": [0.5, 0.5]}, "'image_mean': expected 3 numbers, one per channel"),
        ({"image_mean": ["a"] * 3}, "'image_mean': expected 3 numbers"),
        ({"image_std": [0.5, 0.0, 0.5]}, "'image_std': expected 3 numbers, one per channel, 1e-06 or more"),
    ],
)
def test_settings_that_are_not_known_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        ImagePreprocessor.load(_write(tmp_path, _VIT | changes))


def test_settings_come_from_either_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it says how pictures become pixels: copy it into the model's directory"):
        ImagePreprocessor.load(tmp_path)
    _write(tmp_path, {"image_processor": _VIT}, "processor_config.json")
    assert ImagePreprocessor.load(tmp_path)(_PICTURE).shape == (3, 5, 7)


def test_a_kind_that_is_not_said_is_that_of_the_model(tmp_path: Path) -> None:
    _write(_write(tmp_path, {"size": 6}), {"model_type": "vit"}, "config.json")
    assert ImagePreprocessor.load(tmp_path)(_PICTURE).shape == (3, 6, 6)
    _write(tmp_path, {"model_type": "clip"}, "config.json")
    assert ImagePreprocessor.load(tmp_path)(_PICTURE).shape == (3, 224, 224)
    _write(tmp_path, {"model_type": "levit"}, "config.json")
    with pytest.raises(
        ConfigError, match="no image_processor_type, and none is known for model_type 'levit': say one o"
    ):
        ImagePreprocessor.load(tmp_path)


def test_tiles_and_single_pictures_are_not_taken_for_one_another(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gives one picture, and the model takes tiles"):
        TilePreprocessor.load(_write(tmp_path, _VIT))
    smolvlm = {"image_processor_type": "SmolVLMImageProcessor"}
    with pytest.raises(ConfigError, match="cuts pictures into tiles, and the model takes one picture"):
        ImagePreprocessor.load(_write(tmp_path, smolvlm))
    with pytest.raises(ConfigError, match="'max_image_size': expected longest_edge"):
        TilePreprocessor.load(_write(tmp_path, smolvlm | {"max_image_size": {"height": 4, "width": 4}}))


@pytest.mark.parametrize("settings", [{"size": {"shortest_edge": 224}}, {"size": {"height": 224, "width": 224}}])
@pytest.mark.parametrize("shape", [(1, 500_000, 3), (500_000, 1, 3)])
def test_narrow_pictures_take_no_memory_without_end(
    settings: dict[str, Any], shape: tuple[int, ...], tmp_path: Path
) -> None:
    picture = Picture(np.zeros(shape, np.uint8))
    process = ImagePreprocessor.load(_write(tmp_path, _VIT | settings), ImageLimits(max_pixels=2**22))
    tracemalloc.start()
    if "height" in str(settings) and shape[1] > 1:
        assert process(picture).shape == (3, 224, 224)
    else:
        with pytest.raises(InputError, match=r"picture of \d+ x \d+ pixels, to be resized to .*: too narrow: cut it"):
            process(picture)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


def test_arrays_are_checked() -> None:
    for array in (
        np.zeros((3, 4, 3)),
        np.zeros((3, 4), np.uint8),
        np.zeros((3, 4, 4), np.uint8),
        np.zeros((0, 4, 3), "u1"),
    ):
        with pytest.raises(InputError, match=r"picture is .*: expected u8 \[height, width, 3\], red first"):
            Picture(array)
