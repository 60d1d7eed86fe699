"""Settings of image processors: ``preprocessor_config.json``, with transformers' defaults."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lang_core import ConfigError
from tapeline.media.images._sizes import RESIZES, TILED_RESIZES, Size
from transformer_core import ConfigFields, config_fields

PREPROCESSOR_FILE: Final = "preprocessor_config.json"
"""File with the settings of a feature extractor or an image processor."""

_PROCESSOR_FILE: Final = "processor_config.json"  # of newer checkpoints, which hold the settings in a field
_REMEDY: Final = "it says how pictures become pixels: copy it into the model's directory, and export again"
_LARGEST: Final = 2**14  # pixels of a side
_CHANNELS: Final = 3
_HALVES: Final = (0.5, 0.5, 0.5)
_PLAIN_STEPS: Final = ("do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_convert_rgb")
_CANVAS_STEPS: Final = ("do_resize", "do_rescale", "do_normalize", "do_convert_rgb")
_BOX_STEPS: Final = (*_CANVAS_STEPS, "do_pad")
_PINPOINT_STEPS: Final = (*_PLAIN_STEPS, "do_pad")
_TILED_STEPS: Final = ("do_resize", "do_rescale", "do_normalize", "do_convert_rgb", "do_image_splitting", "do_pad")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """Defaults of a kind of image processor, and the kinds of model that have it without saying so."""

    models: tuple[str, ...]
    resample: int
    size: Mapping[str, int]
    square: bool = False
    on_white: bool = True
    crop: Size | None = None
    mean: tuple[float, ...] = _HALVES
    std: tuple[float, ...] = _HALVES
    tile: int | None = None
    canvas: tuple[int, int] | None = None
    grid: tuple[int, int] | None = None
    pinpoints: tuple[Size, ...] | None = None
    boxed: bool = False

    @property
    def steps(self) -> tuple[str, ...]:
        """Fields of the steps that are known."""
        if self.canvas is not None or self.grid is not None:
            return _CANVAS_STEPS
        if self.boxed:
            return _BOX_STEPS
        if self.pinpoints is not None:
            return _PINPOINT_STEPS
        return _PLAIN_STEPS if self.tile is None else _TILED_STEPS


_LANCZOS, _BILINEAR, _BICUBIC = 1, 2, 3
_SQUARE: Final = {"height": 224, "width": 224}
_CLIP_MEAN: Final = (0.48145466, 0.4578275, 0.40821073)
_CLIP_STD: Final = (0.26862954, 0.26130258, 0.27577711)
_KINDS: Final = {
    "ViTImageProcessor": _Kind(
        models=("vit", "swin", "vit_mae"), resample=_BILINEAR, size=_SQUARE, square=True, on_white=False
    ),
    "DeiTImageProcessor": _Kind(
        models=("deit",),
        resample=_BICUBIC,
        size={"height": 256, "width": 256},
        square=True,
        on_white=False,
        crop=(224, 224),
    ),
    "BeitImageProcessor": _Kind(models=("beit",), resample=_BICUBIC, size=_SQUARE, square=True, on_white=False),
    "BitImageProcessor": _Kind(
        models=("dinov2", "dinov2_with_registers"),
        resample=_BICUBIC,
        size={"shortest_edge": 224},
        crop=(224, 224),
        mean=_CLIP_MEAN,
        std=_CLIP_STD,
    ),
    "SiglipImageProcessor": _Kind(models=("siglip", "siglip_vision_model"), resample=_BICUBIC, size=_SQUARE),
    "CLIPImageProcessor": _Kind(
        models=("clip", "clip_vision_model"),
        resample=_BICUBIC,
        size={"shortest_edge": 224},
        crop=(224, 224),
        mean=_CLIP_MEAN,
        std=_CLIP_STD,
    ),
    "LlavaImageProcessor": _Kind(
        models=("llava",),
        resample=_BICUBIC,
        size={"shortest_edge": 224},
        crop=(224, 224),
        mean=_CLIP_MEAN,
        std=_CLIP_STD,
    ),
    "LlavaNextImageProcessor": _Kind(
        models=("llava_next",),
        resample=_BICUBIC,
        size={"shortest_edge": 224},
        crop=(224, 224),
        mean=_CLIP_MEAN,
        std=_CLIP_STD,
        pinpoints=((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008)),
    ),
    "LlavaOnevisionImageProcessor": _Kind(
        models=("llava_onevision",),
        resample=_BICUBIC,
        size={"height": 384, "width": 384},
        mean=_CLIP_MEAN,
        std=_CLIP_STD,
        pinpoints=tuple((384 * rows, 384 * columns) for rows in range(1, 7) for columns in range(1, 7)),
    ),
    "Gemma3ImageProcessor": _Kind(models=("gemma3",), resample=_BILINEAR, size=_SQUARE, square=True),
    "GotOcr2ImageProcessor": _Kind(
        models=("internvl",),
        resample=_BICUBIC,
        size={"height": 384, "width": 384},
        square=True,
        mean=_CLIP_MEAN,
        std=_CLIP_STD,
        canvas=(1, 12),
    ),
    "PixtralImageProcessor": _Kind(
        models=("mistral3", "pixtral"),
        resample=_BICUBIC,
        size={"longest_edge": 1024},
        mean=_CLIP_MEAN,
        std=_CLIP_STD,
        boxed=True,
    ),
    "Qwen2VLImageProcessor": _Kind(
        models=("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"),
        resample=_BICUBIC,
        size={"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280},
        mean=_CLIP_MEAN,
        std=_CLIP_STD,
        grid=(14, 2),
    ),
    "SmolVLMImageProcessor": _Kind(models=("smolvlm",), resample=_LANCZOS, size={"longest_edge": 1456}, tile=364),
    "Idefics3ImageProcessor": _Kind(models=("idefics3",), resample=_LANCZOS, size={"longest_edge": 1456}, tile=364),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSettings:
    """Steps of an image processor.

    Attributes:
        resize: function from a picture's size to the one that it is resized to; None leaves it.
        resample: Pillow's number of the filter.
        crop: height and width of the middle that is kept, or None.
        scale: factor of the values, or None.
        mean: of each channel, or None.
        std: of each channel.
        on_white: whether transparency becomes white, or is left out of account.
        tile: side of the tiles of a model that sees several per picture, or None.
        splits: whether a larger picture is cut into tiles, or only resized to one.
        canvas: fewest and most tiles of a model that sees a picture as tiles of ``resize``'s size, or None.
        grid: side of a patch, and of the squares of patches that are one token, of a model that sees pictures of any
            size; None for others.
        pixels: fewest and most pixels of a picture of any size; None for others.
        box: greatest height and width of a picture of any size that is cut into rows; None for others.
        pinpoints: sizes of the canvases of a model that sees a picture as tiles of ``crop``'s size; None for others.
    """

    resize: Callable[[Size], Size] | None
    resample: int
    crop: Size | None
    scale: float | None
    mean: tuple[float, ...] | None
    std: tuple[float, ...]
    on_white: bool
    tile: int | None = None
    splits: bool = False
    canvas: tuple[int, int] | None = None
    grid: tuple[int, int] | None = None
    pixels: tuple[int, int] | None = None
    pinpoints: tuple[Size, ...] | None = None
    box: Size | None = None

    @classmethod
    def load(cls, directory: Path) -> "ImageSettings":
        """Reads the settings of a checkpoint or a bundle.

        Raises:
            ConfigError: there are none, or they are of another kind of processor, or out of range.
        """
        fields = _fields(directory)
        kind = _KINDS[_name_of_kind(fields, directory)]
        for name, value in fields.values.items():
            if name.startswith("do_") and name not in kind.steps and value:
                fields.refuse(name, f"false, or no such field: known steps are {', '.join(kind.steps)}")
        if fields.values.get("use_square_size"):
            fields.refuse("use_square_size", "false, or no such field: say height and width in `size`")
        normalizes = fields.boolean("do_normalize", True)
        grid = None if kind.grid is None else _grid(fields, *kind.grid)
        if grid is not None and not fields.boolean("do_resize", True):
            fields.refuse("do_resize", "true: sides are multiples of patches")
        if kind.boxed and not fields.boolean("do_resize", True):
            fields.refuse("do_resize", "true: sides are multiples of patches")
        resizes = grid is None and not kind.boxed and fields.boolean("do_resize", True)
        return cls(
            resize=_resize(fields, kind) if resizes else None,
            resample=_resample(fields, kind.resample),
            crop=_crop(fields, kind) if kind.pinpoints is None else _tile_of_canvases(fields, kind),
            scale=fields.number("rescale_factor", 1 / 255) if fields.boolean("do_rescale", True) else None,
            mean=_channels(fields, "image_mean", kind.mean) if normalizes else None,
            std=_channels(fields, "image_std", kind.std, least=1e-6),
            on_white=fields.boolean("do_convert_rgb", kind.on_white),
            tile=None if kind.tile is None else _tile(fields, kind.tile),
            splits=kind.tile is not None and fields.boolean("do_image_splitting", True),
            canvas=None if kind.canvas is None else _canvas(fields, *kind.canvas),
            grid=grid,
            box=_box(fields, kind) if kind.boxed else None,
            pinpoints=None if kind.pinpoints is None else _pinpoints(fields, kind, kind.pinpoints),
            pixels=None if grid is None else _pixels(fields, kind, math.prod(grid)),
        )


def _fields(directory: Path) -> ConfigFields:
    """Returns the fields that have a value: transformers takes null as absent."""
    newer = directory / _PROCESSOR_FILE
    if newer.exists() and not (directory / PREPROCESSOR_FILE).exists():
        fields = config_fields(str(newer), _REMEDY).object("image_processor")
    else:
        fields = config_fields(str(directory / PREPROCESSOR_FILE), _REMEDY)
    return ConfigFields({name: value for name, value in fields.values.items() if value is not None}, fields.where)


def _name_of_kind(fields: ConfigFields, directory: Path) -> str:
    for field in ("image_processor_type", "feature_extractor_type"):
        if fields.has(field):
            stored = str(fields.values[field])
            name = stored.removesuffix("Fast").removesuffix("Pil").replace("FeatureExtractor", "ImageProcessor")
            if name not in _KINDS:
                fields.refuse(field, f"one of {', '.join(_KINDS)}")
            return name
    return _kind_of_model(directory)


def _kind_of_model(directory: Path) -> str:
    config = config_fields(str(directory / "config.json"), _REMEDY)
    model = config.values.get("model_type")
    for name, kind in _KINDS.items():
        if model in kind.models:
            return name
    raise ConfigError(
        f"{directory / PREPROCESSOR_FILE}: no image_processor_type, and none is known for model_type {model!r}: say "
        f"one of {', '.join(_KINDS)}"
    )


def _resize(fields: ConfigFields, kind: _Kind) -> Callable[[Size], Size]:
    given = fields.values.get("size", kind.size)
    asked = _sides(fields, "size", given, square=kind.square)
    known = RESIZES if kind.tile is None else TILED_RESIZES
    compute = known.get(frozenset(asked))
    if compute is None:
        fields.refuse("size", f"one of {'; '.join(' and '.join(sorted(names)) for names in known)}")
    return lambda size: compute(size, asked)


def _grid(fields: ConfigFields, patch: int, merge: int) -> tuple[int, int]:
    return fields.integer("patch_size", patch), fields.integer("merge_size", merge)


def _pixels(fields: ConfigFields, kind: _Kind, factor: int) -> tuple[int, int]:
    """Reads the fewest and most pixels of a picture; older files have names of their own for them."""
    size = fields.object("size") if fields.has("size") else ConfigFields(kind.size, fields.where)
    fewest, most = (
        fields.integer(own) if fields.has(own) else size.integer(name, kind.size[name])
        for own, name in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge"))
    )
    if fewest > most or most < factor**2:
        fields.refuse("size", f"a longest_edge of at least shortest_edge ({fewest}) and {factor**2}, in pixels")
    return fewest, most


def _box(fields: ConfigFields, kind: _Kind) -> Size:
    sides = _sides(fields, "size", fields.values.get("size", kind.size), square=True)
    if set(sides) not in ({"longest_edge"}, {"height", "width"}):
        fields.refuse("size", "longest_edge; height and width")
    longest = sides.get("longest_edge", 0)
    return sides.get("height", longest), sides.get("width", longest)


def _tile_of_canvases(fields: ConfigFields, kind: _Kind) -> Size:
    """Reads the size of a tile, which is that of whole pictures; kinds that cut none have no ``crop_size``."""
    size = _sides(fields, "size", fields.values.get("size", kind.size), square=True)
    crop = fields.values.get("crop_size", kind.crop)
    tile = (
        size
        if crop is None
        else _sides(fields, "crop_size", list(crop) if isinstance(crop, tuple) else crop, square=True)
    )
    cuts = kind.crop is None or fields.boolean("do_center_crop", True)
    if not fields.boolean("do_resize", True) or not cuts:
        fields.refuse("do_resize", "true, and do_center_crop too: a picture is cut into tiles of one size")
    if len({*size.values(), *tile.values()}) != 1:
        fields.refuse("crop_size", f"a square of the size's side, {max(size.values())}: tiles are not resized")
    return max(tile.values()), max(tile.values())


def _pinpoints(fields: ConfigFields, kind: _Kind, default: tuple[Size, ...]) -> tuple[Size, ...]:
    """Reads the canvases, each of whole tiles."""
    given = fields.values.get("image_grid_pinpoints", default)
    side, _ = _tile_of_canvases(fields, kind)
    if not isinstance(given, list | tuple) or not given or not all(_is_canvas(canvas, side) for canvas in given):
        fields.refuse("image_grid_pinpoints", f"heights and widths that are multiples of {side}, the side of a tile")
    return tuple((height, width) for height, width in given)


def _is_canvas(value: Any, side: int) -> bool:
    pair = isinstance(value, list | tuple) and len(value) == 2
    return pair and all(type(length) is int and 0 < length <= _LARGEST and not length % side for length in value)


def _sides(fields: ConfigFields, name: str, given: Any, *, square: bool) -> dict[str, int]:
    """Returns the sides of a setting, which older files give as a number or as height and width."""
    if isinstance(given, int) and not isinstance(given, bool):
        given = {"height": given, "width": given} if square else {"shortest_edge": given}
    elif isinstance(given, list) and len(given) == 2:
        given = dict(zip(("height", "width"), given, strict=True))
    if not isinstance(given, Mapping):
        fields.refuse(name, "an object such as {height, width}")
    sides = {str(side): value for side, value in given.items() if value is not None}
    if not all(type(value) is int and 1 <= value <= _LARGEST for value in sides.values()):
        fields.refuse(name, f"sides of 1 to {_LARGEST} pixels")
    return sides


def _canvas(fields: ConfigFields, fewest: int, most: int) -> tuple[int, int]:
    least = fields.integer("min_patches", fewest)
    most = fields.integer("max_patches", most)
    if least > most:
        fields.refuse("min_patches", f"at most max_patches ({most})")
    return least, most


def _crop(fields: ConfigFields, kind: _Kind) -> Size | None:
    if kind.steps != _PLAIN_STEPS or not fields.boolean("do_center_crop", kind.crop is not None):
        return None
    given = fields.values.get("crop_size", None if kind.crop is None else list(kind.crop))
    sides = _sides(fields, "crop_size", given, square=True)
    if set(sides) != {"height", "width"}:
        fields.refuse("crop_size", "height and width")
    return sides["height"], sides["width"]


def _resample(fields: ConfigFields, default: int) -> int:
    value = fields.values.get("resample", default)
    if type(value) is not int or not 0 <= value <= 5:
        fields.refuse("resample", "the number of a filter of Pillow, 0 to 5")
    return value


def _channels(
    fields: ConfigFields, name: str, default: tuple[float, ...], least: float = -math.inf
) -> tuple[float, ...]:
    value = fields.values.get(name, default)
    values = [value] * _CHANNELS if isinstance(value, int | float) else value
    numbers = isinstance(values, list | tuple) and all(type(number) in (int, float) for number in values)
    if not numbers or len(values) != _CHANNELS or not all(least <= number < math.inf for number in values):
        fields.refuse(name, f"{_CHANNELS} numbers, one per channel" + (f", {least} or more" if least > 0 else ""))
    return tuple(map(float, values))


def _tile(fields: ConfigFields, default: int) -> int:
    given = fields.values.get("max_image_size", {"longest_edge": default})
    sides = _sides(fields, "max_image_size", given, square=False)
    if set(sides) != {"longest_edge"}:
        fields.refuse("max_image_size", "longest_edge")
    return sides["longest_edge"]
