"""tools:generate --speculate and --draft: the same text from fewer calls."""

import dataclasses
import io
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from compile_hlo.directions import Signature
from tapeline.bundle import MARK, KernelConfig
from tapeline.text import Tokenizer
from tests.goldens.cases import CASES
from tests.product import _bundles
from tests.product._bundles import Finished, export, export_case, invoke, refused

compiled_once = _bundles.compiled_once
pytestmark = pytest.mark.usefixtures("compiled_once")

Generate = Callable[..., Finished]
_SIZES: dict[str, Any] = {"sequence": 8, "max_sequence": 72}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All layers; a call of score takes 5 tokens."""
    folder = tmp_path_factory.mktemp("demo")
    return export("demo", folder / "b", entry_points=("prefill", "decode", "verify"), verify_tokens=5, **_SIZES)


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first layer alone, with room for less."""
    return export("demo", tmp_path_factory.mktemp("draft") / "b", num_layers=1, sequence=4, max_sequence=52)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another vocabulary, no tokenizer, no score."""
    return export_case(CASES["tinyllama_4x"], tmp_path_factory.mktemp("o"), sequence=4, max_sequence=19, num_layers=1)


@pytest.fixture
def generating(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generate:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))

    def run(bundle: Path, *flags: str, lines: str = "") -> Finished:
        monkeypatch.setattr("sys.stdin", io.StringIO(lines))
        return invoke("generate", capsys, f"--bundle={bundle}", *flags)

    return run


_PROMPTS = ("It was the best of times,", "the tape the tape the tape the tape", "x")


@pytest.mark.parametrize("sampled", [[], ["--temperature=0.9", "--repetition_penalty=1.1", "--seed=3"]])
@pytest.mark.parametrize(
    "how",
    [
        ["--speculate=prompt_lookup"],
        ["--speculate=prompt_lookup:1", "--draft_tokens=2"],
        ["--draft=DRAFT"],
        ["--draft=DRAFT", "--draft_tokens=1"],
    ],
)
def test_the_same_is_said(
    how: Sequence[str], sampled: list[str], demo: Path, draft: Path, generating: Generate, tmp_path: Path
) -> None:
    drafted = 0
    for prompt in _PROMPTS:
        flags = [f"--prompt={prompt}", "--max_new_tokens=40", "--ignore_eos", "--stats=s.json", *sampled]
        plain = generating(demo, *flags)
        before = json.loads((tmp_path / "s.json").read_text())
        done = generating(demo, *flags, *(flag.replace("DRAFT", str(draft)) for flag in how))
        assert (done.code, done.err) == (0, "")
        assert done.out == plain.out
        stats = json.loads((tmp_path / "s.json").read_text())
        assert (before["drafted"], before["accepted"], before["tokens_per_call"]) == (0, 0, 1)
        assert 0 <= stats["accepted"] <= stats["drafted"]
        # Each call gives a token and what was accepted; the last one may have accepted more than was wanted.
        calls = 39 / stats["tokens_per_call"]
        assert calls == pytest.approx(39 - stats["accepted"])
        drafted += stats["drafted"]
    assert drafted > 10


def test_text_that_repeats_takes_fewer_calls(demo: Path, draft: Path, generating: Generate, tmp_path: Path) -> None:
    """A model that copies: one with the same layers drafts for itself, and is always right."""
    flags = ["--prompt=It was the best", "--max_new_tokens=40", "--ignore_eos", "--stats=s.json"]
    assert generating(demo, *flags, f"--draft={demo}").code == 0
    stats = json.loads((tmp_path / "s.json").read_text())
    assert stats["accepted"] == stats["drafted"] == 39 - 8
    assert stats["tokens_per_call"] == pytest.approx(39 / 8)


def test_an_end_token_within_a_draft_ends(demo: Path, generating: Generate, tmp_path: Path) -> None:
    bundle = tmp_path / "ending"
    shutil.copytree(demo, bundle)
    flags = ["--prompt=It was the best", "--max_new_tokens=30", f"--draft={demo}", "--stats=s.json"]
    free = generating(bundle, *flags, "--ignore_eos")
    said = json.loads((tmp_path / "s.json").read_text())["new_tokens"]
    assert said == 30
    end = Tokenizer.load(bundle).encode(free.out.rstrip("\n"), special_tokens=False)[9]
    (bundle / "generation_config.json").write_text(json.dumps({"eos_token_id": end}))
    plain = generating(bundle, *flags[:2])
    assert plain.out != free.out
    assert free.out.startswith(plain.out.rstrip("\n"))
    assert generating(bundle, *flags).out == plain.out


def test_a_conversation_with_drafts_and_a_file(demo: Path, draft: Path, generating: Generate, tmp_path: Path) -> None:
    bundle = tmp_path / "chat"
    shutil.copytree(demo, bundle)
    (bundle / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    flags, lines = ["--chat", "--max_new_tokens=9", "--ignore_eos"], "It was\nthe worst of\nof times\n"
    plain = generating(bundle, *flags, lines=lines)
    assert plain.code == 0, plain.err
    for more in (["--speculate=prompt_lookup"], [f"--draft={draft}"], ["--prompt_cache=c"], ["--prompt_cache=c"]):
        assert generating(bundle, *flags, *more, lines=lines) == plain


def _edited(bundle: Path, to: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    shutil.copytree(bundle, to)
    config = json.loads((to / "kernel_config.json").read_text())
    change(config)
    del config["seals"]["fields"]  # as in a bundle of an earlier version
    (to / "kernel_config.json").write_text(json.dumps(config))
    return to


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--speculate=magic"], "--speculate=magic: expected prompt_lookup, or prompt_lookup:N to look for the last N"),
        (["--speculate=prompt_lookup:0"], "--speculate=prompt_lookup:0: expected prompt_lookup"),
        (["--speculate=prompt_lookup:"], "--speculate=prompt_lookup:: expected prompt_lookup"),
        (["--draft_tokens=3"], "--draft_tokens=3 goes with --speculate or --draft"),
        (["--speculate=prompt_lookup", "--draft_tokens=5"], "drafts of up to 5 tokens: expected 1 to 4"),
        (["--speculate=prompt_lookup", "--draft_tokens=0"], "drafts: tokens=0 is out of range: give at least 1"),
        (["--draft=nowhere"], "nowhere: there is no such directory: give the directory of a bundle"),
    ],
)
def test_what_the_user_got_wrong(flags: list[str], message: str, demo: Path, generating: Generate) -> None:
    refused(generating(demo, "--prompt=a", "--max_new_tokens=3", *flags), message)


def test_drafts_of_several_prompts(demo: Path, draft: Path, generating: Generate) -> None:
    flags = ["--prompt=It was the best", "--prompt=of times, it was the", "--max_new_tokens=9", "--ignore_eos"]
    plain = generating(demo, *flags)
    assert plain.code == 0, plain.err
    for more in ("--speculate=prompt_lookup", f"--draft={draft}"):
        assert generating(demo, *flags, more).out == plain.out


def test_two_ways_to_get_drafts(demo: Path, generating: Generate) -> None:
    flags = ["--prompt=a", "--max_new_tokens=3", "--speculate=prompt_lookup", f"--draft={demo}"]
    refused(generating(demo, *flags), "are two ways to get drafts: give one of them")


def test_a_bundle_that_cannot_verify(other: Path, demo: Path, generating: Generate, tmp_path: Path) -> None:
    flags = ["--token_ids=1,2", "--max_new_tokens=3", "--speculate=prompt_lookup"]
    refused(generating(other, *flags), "export with --entry_points=prefill,decode,verify and --verify_tokens=8")
    scaling = {"type": "dynamic", "factor": 2.0, "trained": 16}
    dynamic = _edited(demo, tmp_path / "dynamic", lambda c: c["model"]["rope"].update(scaling=scaling))
    refused(generating(dynamic, *flags), "RoPE (dynamic) depends on how many there are, and a draft that is verified")
    scaling = {"type": "longrope", "short_factors": [1], "long_factors": [2], "original_length": 71}
    long = _edited(demo, tmp_path / "long", lambda c: c["model"]["rope"].update(scaling=scaling))
    refused(generating(long, *flags), "export with --max_sequence=71 or less, or generate without speculation")
    scaling["original_length"] = 72
    short = _edited(demo, tmp_path / "short", lambda c: c["model"]["rope"].update(scaling=scaling))
    assert generating(short, *flags).code == 0


def test_a_draft_of_another_kind(other: Path, demo: Path, draft: Path, generating: Generate, tmp_path: Path) -> None:
    flags = ["--token_ids=1,2", "--max_new_tokens=3"]
    refused(generating(demo, *flags, f"--draft={other}"), "its vocabulary has 125 tokens, that of")
    text = tmp_path / "text"
    shutil.copytree(draft, text)
    tokenizer = json.loads((text / "tokenizer.json").read_text())
    (text / "tokenizer.json").write_text(json.dumps({**tokenizer, "version": "1.0 "}))
    refused(generating(demo, *flags, f"--draft={text}"), "its tokenizer.json is not that of")
    (text / "tokenizer.json").unlink()
    refused(generating(demo, *flags, f"--draft={text}"), "(sha256 None and ")
    encoder = Path(shutil.copytree(draft, tmp_path / "encoder"))
    described = KernelConfig.read(draft / MARK)
    described = dataclasses.replace(described, entry_points=[*described.entry_points, Signature("encode", (), ())])
    described.write(encoder / MARK)
    refused(generating(demo, *flags, f"--draft={encoder}"), "the model has an encoder, which nothing is given to")
