"""Pictures and text in, text out: tiny models of each form on a device, as transformers has them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tapeline
from lang_core import ConfigError, InputError
from tapeline.bundle import Bundle
from tapeline.media.images import Picture, read_image
from tapeline.running import PICTURE_FORMS
from tests.goldens.vision_language.cases import CASES, IMAGE_TOKEN, Turn
from tests.goldens.vision_language.files import (
    STEPS,
    read_vision_language_golden,
    read_vision_language_manifest,
    turn_picture,
    write_vision_language_checkpoint,
)
from tests.product import _bundles
from tests.product._bundles import Finished, export, invoke, refused

demo_layer = _bundles.demo_layer

Generate = Callable[..., Finished]
_TOLERANCE = 2e-4
_CASES = {name: CASES[name] for name in ("smolvlm", "idefics3", "llava", "internvl", "gemma3", "qwen3_vl")}
_TURNS = [(name, place) for name, case in _CASES.items() for place in range(len(case.turns))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles of the models, and image files."""
    folder = tmp_path_factory.mktemp("seeing")
    for name, case in _CASES.items():
        (folder / f"{name}-model").mkdir()
        shapes = read_vision_language_manifest()["cases"][name]["shapes"]
        write_vision_language_checkpoint(folder / f"{name}-model", case, shapes)
        verify = "auto" if name == "smolvlm" else "none"
        export(folder / f"{name}-model", folder / name, sequence=32, max_sequence=256, verify=verify)
    for picture in {picture for case in _CASES.values() for turn in case.turns for picture in turn.pictures}:
        (folder / picture).write_bytes(turn_picture(picture))
    (folder / "damaged").write_bytes(turn_picture("rgb")[:200])
    return folder


@pytest.fixture
def generate(capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Generate:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(folder))
    return lambda *flags: invoke("generate", capsys, f"--max_new_tokens={STEPS}", "--ignore_eos", *flags)


def _images(folder: Path, turn: Turn) -> list[Path]:
    return [folder / name for name in turn.pictures]


@pytest.mark.parametrize(("name", "place"), _TURNS)
def test_tokens_are_those_of_transformers(folder: Path, name: str, place: int) -> None:
    turn, golden = CASES[name].turns[place], read_vision_language_golden(name)[place]
    logits: list[np.ndarray] = []
    steps = CASES[name].steps
    with tapeline.load(folder / name) as model:
        stream = model.chat().stream(turn.text, images=_images(folder, turn), max_new_tokens=steps, ignore_eos=True)
        logits.extend(token.logits for token in stream)
        assert stream.prompt_tokens == len(golden["prompt"])
        assert stream.answers[0].token_ids == golden["tokens"].tolist()
        again = model.generate(
            token_ids=golden["prompt"].tolist(), images=_images(folder, turn), max_new_tokens=steps, ignore_eos=True
        )
    np.testing.assert_allclose(np.stack(logits), golden["logits"], atol=_TOLERANCE)
    assert again.token_ids == golden["tokens"].tolist()


def test_the_command_sees_pictures(folder: Path, generate: Generate) -> None:
    turn, golden = CASES["smolvlm"].turns[1], read_vision_language_golden("smolvlm")[1]
    files = [f"--image={name}" for name in turn.pictures]
    done = generate("--bundle=smolvlm", "--chat", f"--prompt={turn.text}", *files, "--logits=logits.npy")
    assert done.code == 0, done.err
    np.testing.assert_allclose(np.load(folder / "logits.npy"), golden["logits"], atol=_TOLERANCE)
    prompt = f"<|im_start|>User:<image><image>{turn.text}<end_of_utterance>\nAssistant:"
    plain = generate("--bundle=smolvlm", f"--prompt={prompt}", *files)
    assert (plain.code, plain.out) == (0, done.out)
    ids = generate("--bundle=smolvlm", f"--token_ids={','.join(map(str, golden['prompt']))}", *files)
    assert (ids.code, ids.out) == (0, done.out)


def test_a_picture_of_an_earlier_turn_is_seen_and_not_run_again(folder: Path) -> None:
    with tapeline.load(folder / "smolvlm") as model:
        chat = model.chat()
        first = chat.ask("What is this?", images=[folder / "rgb"], max_new_tokens=3)
        stream = chat.stream("And?", max_new_tokens=4, ignore_eos=True)
        tokens = [token.token_id for token in stream]
        assert stream.reused > 100
        other = model.chat()
        other.ask("What is this?", images=[folder / "rgba"], max_new_tokens=1)
        fresh = model.chat()
        assert fresh.ask("What is this?", images=[folder / "rgb"], max_new_tokens=3) == first
        assert [token.token_id for token in fresh.stream("And?", max_new_tokens=4, ignore_eos=True)] == tokens


def test_other_pictures_are_not_taken_for_those_in_the_caches(folder: Path) -> None:
    with tapeline.load(folder / "idefics3") as model:
        prompt = "<image>" * 1 + "What is this, and that, and all of it together?" * 2
        answers = {}
        for name in ("rgb_wide", "palette", "rgb_wide"):
            stream = model.stream(prompt, images=[folder / name], max_new_tokens=2, ignore_eos=True)
            logits = next(stream).logits.copy()
            np.testing.assert_array_equal(answers.setdefault(name, logits), logits)
        assert np.abs(answers["rgb_wide"] - answers["palette"]).max() > 1e-2
        same = model.stream(prompt, images=[folder / "rgb_wide"], max_new_tokens=1)
        np.testing.assert_array_equal(next(same).logits, answers["rgb_wide"])
        assert same.reused == 96


def test_pictures_that_run_in_one_call_have_rows_of_a_server(folder: Path) -> None:
    export(
        folder / "gemma3-model",
        folder / "rows",
        sequence=24,
        slots=2,
        max_sequence=128,
        window_caches="ring",
        verify="none",
    )
    with tapeline.load(folder / "rows") as model:
        for turn, golden in zip(CASES["gemma3"].turns, read_vision_language_golden("gemma3"), strict=True):
            stream = model.chat().stream(turn.text, images=_images(folder, turn), max_new_tokens=STEPS, ignore_eos=True)
            assert [token.token_id for token in stream] == golden["tokens"].tolist()
        token, pictures = CASES["gemma3"].image_token, _images(folder, CASES["gemma3"].turns[1])
        with pytest.raises(InputError, match="two pictures of the prompt stand side by side"):
            model.generate(token_ids=[1, *[token] * 32, 2], images=pictures)


def test_a_bundle_without_room_for_a_picture_is_refused(folder: Path) -> None:
    message = "sequence: the 16 tokens of a picture see each other, and run in one call; found 8: raise it to 16"
    with pytest.raises(ConfigError, match=message):
        tapeline.export(folder / "gemma3-model", folder / "small", sequence=8, target=["vmvx"])


def test_bad_input_is_one_error(folder: Path, generate: Generate) -> None:
    chat = ("--bundle=smolvlm", "--chat", "--prompt=What?")
    refused(generate(*chat, "--image=damaged"), "damaged: damaged or cut off")
    refused(generate(*chat, "--image=none"), "none: cannot be read: No such file")
    refused(
        generate("--bundle=smolvlm", "--chat", "--prompt=<image>", "--image=rgb"), "the turn has <image> in its text"
    )
    for prompt, places in (("Hello", 0), ("<image><image>", 2)):
        refused(
            generate("--bundle=smolvlm", f"--prompt={prompt}", "--image=rgb"),
            f"the prompt has {places} places for pictures, 1 given: put <image> where each",
        )
    refused(
        generate("--bundle=smolvlm", f"--token_ids={IMAGE_TOKEN},5", "--image=rgb"),
        f"the prompt has 1 image tokens (id {IMAGE_TOKEN}), the pictures have 90",
    )
    refused(generate(*chat, "--image=rgb", "--prompt_cache=cache"), "keeps tokens, and no pictures: leave it out")


def test_bundles_without_eyes_refuse_pictures(folder: Path, demo_layer: Path) -> None:
    with (
        tapeline.load(Bundle(demo_layer)) as model,
        pytest.raises(InputError, match="has the entry points prefill, decode, and takes no pictures"),
    ):
        model.generate("<image>", images=[folder / "rgb"])


def test_a_picture_has_as_many_tokens_as_the_bundle_takes(folder: Path) -> None:
    model = {**Bundle(folder / "qwen3_vl").config.model, "max_sequence": 12}
    form = PICTURE_FORMS["dynamic"](folder / "qwen3_vl", model, None)
    picture = form.tiles(read_image(turn_picture("rgb_large")))
    assert (picture.pixels.shape, form.count(picture.pixels.shape[1:])) == ((1, 3, 24, 24), 9)
    with pytest.raises(ConfigError, match=r"'patch_size' and 'merge_size': expected 8 and 2, .* found 4 and 2"):
        PICTURE_FORMS["dynamic"](folder / "qwen3_vl", {**model, "vision": {"patch": [8, 8], "merge": 2}}, None)


def test_a_thread_of_a_picture_is_refused(folder: Path) -> None:
    with tapeline.load(folder / "qwen3_vl") as model:
        for size, message in (((2, 500), "at most 200 times as long as wide"), ((300, 1), "200 times")):
            pixels = np.zeros((*size, 3), np.uint8)
            with pytest.raises(InputError, match=message):
                list(model.chat().stream("?", images=[Picture(pixels)], max_new_tokens=1))
