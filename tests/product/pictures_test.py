"""Image files in, vectors and results out: tools:embed, tools:run and ``LoadedModel.embed_images``."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tapeline
from lang_core import InputError
from tapeline.media.images import ImagePreprocessor, read_image
from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.encoders.files import write_encoder_checkpoint
from tests.goldens.pictures.cases import CLASSIFIED, CLASSIFIERS, PICTURES
from tests.goldens.pictures.files import CLASSES, picture_bytes
from tests.goldens.pictures.zero_shot import HYPOTHESES, LABELS, SCORES, write_zero_shot_checkpoint
from tests.product._bundles import Finished, export, invoke, refused

Run = Callable[..., Finished]
_NAMES = ("rgb", "turned_6", "cmyk_jpeg")
_FILES = tuple(f"--image={name}" for name in _NAMES)
_SETTINGS = {
    "siglip_vision": {"image_processor_type": "ViTImageProcessor", "size": {"height": 14, "width": 14}},
    "siglip": {"image_processor_type": "SiglipImageProcessor", "size": {"height": 10, "width": 10}},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles of tiny models, one of them for two pictures at once, and image files."""
    folder = tmp_path_factory.mktemp("pictures")
    for name, batch, points in (("siglip_vision", 1, None), ("siglip", 2, ("encode_image",))):
        (folder / f"{name}-model").mkdir()
        write_encoder_checkpoint(folder / f"{name}-model", ENCODER_CASES[name])
        (folder / f"{name}-model" / "preprocessor_config.json").write_text(json.dumps(_SETTINGS[name]))
        export(folder / f"{name}-model", folder / name, batch=batch, entry_points=points)
    for name in _NAMES:
        (folder / name).write_bytes(picture_bytes(name, PICTURES[name]))
    (folder / "damaged").write_bytes(picture_bytes("rgb", PICTURES["rgb"])[:200])
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(folder))
    return lambda tool, *flags: invoke(tool, capsys, *flags)


def _pixels(folder: Path, model: str, name: str) -> np.ndarray:
    return ImagePreprocessor.load(folder / model)(read_image(folder / name))[None]


@pytest.mark.parametrize(
    ("model", "point", "result", "batch"),
    [("siglip", "encode_image", "image_embeds", 2), ("siglip_vision", "forward", "pooler_output", 1)],
)
def test_vectors_of_pictures(folder: Path, run: Run, model: str, point: str, result: str, batch: int) -> None:
    done = run("embed", f"--bundle={model}", *_FILES, "--output=vectors.npy")
    assert done.code == 0, done.err
    assert [line.split()[-1] for line in done.out.splitlines()] == [str(name) for name in _NAMES]
    vectors = np.load(folder / "vectors.npy")
    with tapeline.load(folder / model) as loaded:
        again = loaded.embed_images(
            [folder / _NAMES[0], (folder / _NAMES[1]).read_bytes(), read_image(folder / _NAMES[2])]
        )
        np.testing.assert_array_equal(again, vectors)
        for row, name in zip(vectors, _NAMES, strict=True):
            pixels = np.repeat(_pixels(folder, model, name), batch, axis=0)
            np.testing.assert_allclose(loaded.run(point, {"pixel_values": pixels})[result][0], row, atol=1e-6)


def test_classes_are_those_of_transformers(folder: Path, run: Run) -> None:
    goldens = json.loads(CLASSES.read_text())
    (folder / "rgb_tall").write_bytes(picture_bytes("rgb_tall", PICTURES["rgb_tall"]))
    files = [f"--image={picture}" for picture in CLASSIFIED]
    for name, settings in CLASSIFIERS.items():
        (folder / f"{name}-model").mkdir()
        write_encoder_checkpoint(folder / f"{name}-model", ENCODER_CASES[name])
        (folder / f"{name}-model" / "preprocessor_config.json").write_text(json.dumps(settings))
        export(folder / f"{name}-model", folder / name, batch=2, verify="none")
        done = run("classify", f"--bundle={name}", *files, "--format=json", "--output=scores.npy")
        assert done.code == 0, done.err
        rows = json.loads(done.out)["images"]
        assert [row["image"] for row in rows] == list(CLASSIFIED)
        for row, picture in zip(rows, CLASSIFIED, strict=True):
            expected = goldens[name][picture]
            assert row["label"] == max(expected, key=expected.__getitem__)
            assert {label: pytest.approx(score, abs=2e-6) for label, score in expected.items()} == row["scores"]
    best = run("classify", "--bundle=deit_classifier", *files, "--top_k=2")
    assert (best.code, len(best.out.splitlines())) == (0, 2 * len(CLASSIFIED)), best.err
    with tapeline.load(folder / "deit_classifier") as loaded:
        assert loaded.labels == tuple(f"class {label}" for label in range(7))
        scores = loaded.classify_images([folder / picture for picture in CLASSIFIED])
        np.testing.assert_array_equal(np.load(folder / "scores.npy"), scores)
        assert loaded.classify_images([folder / "rgb"], raw=True).min() < 0
        with pytest.raises(InputError, match="give a picture"):
            loaded.classify_images([])
    refused(
        run("classify", "--bundle=deit_classifier", "--image=rgb", "--text=cat"),
        "--text: images are classified alone: leave it out",
    )
    refused(run("classify", "--bundle=siglip", "--image=rgb"), "classifies no pictures: export a vision model For")


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_scores_of_labels_are_those_of_transformers(folder: Path, run: Run, name: str, tmp_path: Path) -> None:
    golden = json.loads(SCORES.read_text())[name]
    (tmp_path / "model").mkdir()
    write_zero_shot_checkpoint(tmp_path / "model", name, golden["shapes"])
    bundle = export(tmp_path / "model", tmp_path / "bundle", batch=2, verify="none")
    for picture in CLASSIFIED:
        (folder / picture).write_bytes(picture_bytes(picture, PICTURES[picture]))
    files = [folder / picture for picture in CLASSIFIED]
    with tapeline.load(bundle) as loaded:
        for hypothesis in HYPOTHESES:
            scores = loaded.classify_images(files, labels=LABELS, hypothesis=hypothesis)
            expected = [golden["scores"][f"{picture} {hypothesis}"] for picture in CLASSIFIED]
            np.testing.assert_allclose(scores, expected, atol=3e-6)
        with pytest.raises(InputError, match=r"expected a text with \{\} in the place of a label; found 'a photo'"):
            loaded.classify_images(files, labels=LABELS, hypothesis="a photo")
        with pytest.raises(InputError, match="labels: give one or more"):
            loaded.classify_images(files, labels=[])
        if name == "clip":
            with pytest.raises(InputError, match="has 27 tokens, the bundle takes 16: shorten it"):
                loaded.classify_images(files, labels=["cat " * 20])
    labels = [f"--label={label}" for label in LABELS]
    done = run("classify", f"--bundle={bundle}", "--image=rgb", *labels, "--format=json")
    assert json.loads(done.out)["labels"] == list(LABELS), done.err
    best = json.loads(done.out)["images"][0]["label"]
    assert best == max(zip(golden["scores"]["rgb This is a photo of {}."], LABELS, strict=True))[1]


def test_labels_need_a_pair(folder: Path, run: Run) -> None:
    refused(
        run("classify", "--bundle=siglip", "--image=rgb", "--label=cat"),
        "has no entry point encode_text, score_pairs: labels of your own need a bundle of a CLIP or a SigLIP",
    )


def test_an_image_file_is_an_argument(folder: Path, run: Run) -> None:
    done = run("run", "--bundle=siglip_vision", "--input=pixel_values=turned_6", "--output_dir=out")
    assert done.code == 0, done.err
    with tapeline.load(folder / "siglip_vision") as loaded:
        expected = loaded.run("forward", {"pixel_values": _pixels(folder, "siglip_vision", "turned_6")})
    assert expected
    for name, array in expected.items():
        np.testing.assert_array_equal(np.load(folder / "out" / f"{name}.npy"), array)


def test_bad_pictures_are_one_error(folder: Path, run: Run) -> None:
    refused(run("embed", "--bundle=siglip", "--image=rgb", "--image=damaged"), "damaged: damaged or cut off")
    refused(run("embed", "--bundle=siglip", "--image=none"), "none: cannot be read: No such file")
    refused(run("embed", "--bundle=siglip", "--image=siglip/config.json"), "no image that is known")
    refused(run("embed", "--bundle=siglip"), "give a sentence with --text, once for each, or pictures with --image")
    refused(
        run("embed", "--bundle=siglip", "--image=rgb", "--text=a"), "give a sentence with --text, once for each, or"
    )
    refused(
        run("run", "--bundle=siglip_vision", "--input=pixel_values=damaged", "--output_dir=out"),
        "damaged: damaged or cut off",
    )
    refused(
        run("run", "--bundle=siglip", "--entry_point=encode_image", "--input=pixel_values=rgb", "--output_dir=out"),
        "found float32[1, 3, 10, 10], 'pixel_values' is f32[2,3,10,10]",
    )


def test_settings_of_another_model_are_one_error(folder: Path) -> None:
    with tapeline.load(folder / "siglip") as loaded:
        (folder / "siglip" / "preprocessor_config.json").write_text(json.dumps(_SETTINGS["siglip_vision"]))
        with pytest.raises(
            InputError, match=r"makes pixels \[3, 14, 14\], the bundle takes \[3, 10, 10\]: the file is an"
        ):
            loaded.embed_images([folder / "rgb"])
        (folder / "siglip" / "preprocessor_config.json").write_text(json.dumps(_SETTINGS["siglip"]))
        with pytest.raises(InputError, match="give a picture"):
            loaded.embed_images([])
