"""tools:generate --chat, with the demo model and a template put beside its tokenizer."""

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import tapeline
from lang_core import InputError
from tapeline.running import MOST_NEW_TOKENS
from tapeline.text import Tokenizer
from tests.product import _bundles
from tests.product._bundles import Finished, invoke

demo_layer = _bundles.demo_layer

Generate = Callable[..., Finished]
_TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }} {% else %}{{ m.content }}{% endif %}{% endfor %}"
)


@pytest.fixture(scope="module")
def bundle(demo_layer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Path(shutil.copytree(demo_layer, tmp_path_factory.mktemp("demo") / "bundle"))
    (made / "chat_template.jinja").write_text(_TEMPLATE)
    return made


@pytest.fixture
def generating(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generate:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))

    def run(bundle: Path, *flags: str, lines: str = "") -> Finished:
        monkeypatch.setattr("sys.stdin", io.StringIO(lines))
        return invoke("generate", capsys, f"--bundle={bundle}", "--device=local-sync", *flags)

    return run


def test_one_turn_is_the_templates_text(bundle: Path, generating: Generate) -> None:
    flags = ["--max_new_tokens=6", "--ignore_eos"]
    chatted = generating(bundle, "--chat", "--system=It was", "--prompt=the best of", *flags)
    ids = Tokenizer.load(bundle).encode("It was the best of", special_tokens=False)
    plain = generating(bundle, f"--token_ids={','.join(map(str, ids))}", *flags)
    assert (chatted.code, plain.code) == (0, 0), chatted.err
    assert chatted.out == plain.out
    assert len(chatted.out.strip()) > 3


def test_a_conversation_goes_on(bundle: Path, generating: Generate) -> None:
    """The second turn's prompt is all that was said; caches begin anew with it."""
    flags = ["--max_new_tokens=4", "--ignore_eos"]
    both = generating(bundle, "--chat", *flags, lines="It was\n\nthe worst\n")
    assert both.code == 0, both.err
    first, second = both.out.split("\n")[:2]
    assert generating(bundle, "--chat", "--prompt=It was", *flags).out == f"{first}\n"
    again = generating(bundle, "--chat", f"--prompt=It was{first}the worst", *flags)
    assert again.out == f"{second}\n"


def test_an_answer_ends_as_the_template_ends_it(bundle: Path, generating: Generate, tmp_path: Path) -> None:
    """The end token is whatever the model says second: generation stops there only because of the template."""
    other = tmp_path / "other"
    shutil.copytree(bundle, other)
    flags = ["--chat", "--prompt=It was the", "--max_new_tokens=8"]
    tokenizer = Tokenizer.load(other)
    free = generating(other, *flags)
    second = tokenizer.encode(free.out.rstrip("\n"), special_tokens=False)[1]
    state = json.loads((other / "tokenizer.json").read_text())
    content = next(token for token, index in state["model"]["vocab"].items() if index == second)
    state["added_tokens"].append(
        {"id": second, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
    )  # fmt: skip
    (other / "tokenizer.json").write_text(json.dumps(state))
    (other / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}"
                                               + content + "{% endif %}{% endfor %}")  # fmt: skip
    stopped = generating(other, *flags, "--verify_files=off")
    assert stopped.code == 0, stopped.err
    assert len(stopped.out) < len(free.out)
    assert free.out.startswith(stopped.out.rstrip("\n"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--system=x", "--prompt=a"], "error: --system goes with --chat"),
        (["--chat", "--token_ids=1"], "error: --chat takes text: give --prompt, or lines on stdin, instead of --token"),
        (
            ["--chat", "--stats=s.json"],
            "error: --stats, --logits, --dump and --format=json are of one answer: give --prompt",
        ),
        (["--chat", f"--prompt={'the ' * 200}"], "positions"),
    ],
)
def test_refusals(flags: list[str], message: str, bundle: Path, generating: Generate) -> None:
    done = generating(bundle, *flags)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "Traceback" not in done.err


def test_a_bundle_without_a_template(bundle: Path, generating: Generate, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(bundle, other)
    (other / "chat_template.jinja").write_text("{{ raise_exception('never') }}")
    done = generating(other, "--chat", "--prompt=a")
    assert (done.code, "the chat template refuses these messages: never" in done.err) == (2, True)
    (other / "chat_template.jinja").unlink()
    done = generating(other, "--chat", "--prompt=a")
    assert (done.code, done.out) == (2, "")
    assert "has no chat template, neither chat_template.jinja nor chat_template in tokenizer_config.json" in done.err


def test_a_turn_that_does_not_fit_is_forgotten(bundle: Path) -> None:
    with tapeline.load(bundle, device="local-sync") as model:
        conversation, other = model.chat(), model.chat()
        conversation.ask("It was", max_new_tokens=4, ignore_eos=True)
        with pytest.raises(InputError, match="positions, the bundle's caches hold 96: ask for fewer, or export with"):
            conversation.stream("the " * 200, max_new_tokens=4)  # at once, before a token is asked for
        answer = conversation.ask("the worst", max_new_tokens=4, ignore_eos=True)
        other.ask("It was", max_new_tokens=4, ignore_eos=True)
        assert other.ask("the worst", max_new_tokens=4, ignore_eos=True).token_ids == answer.token_ids


def test_an_answer_that_is_cut_off_says_so(bundle: Path, generating: Generate) -> None:
    cut = generating(bundle, "--chat", "--prompt=It was", "--max_new_tokens=4", "--ignore_eos")
    assert "(cut off by --max_new_tokens=4)" in cut.err
    plain = generating(bundle, "--prompt=It was", "--max_new_tokens=4", "--ignore_eos")
    assert "cut off" not in plain.err  # so many tokens were asked for
    ended = generating(bundle, "--prompt=It was", "--max_new_tokens=4")
    assert ended.err == "(cut off by --max_new_tokens=4)\n"


def test_an_answer_goes_on_to_its_end(bundle: Path, generating: Generate) -> None:
    """Beyond the 64 tokens of a text that is continued; what the context has room for is the limit."""
    prompt = len(Tokenizer.load(bundle).encode("It was", special_tokens=False))
    room = 96 - prompt + 1
    flags = ["--chat", "--prompt=It was", "--ignore_eos", "--format=json"]
    done = generating(bundle, *flags)
    answer = json.loads(done.out)["answers"][0]
    assert (done.code, len(answer["token_ids"]), answer["finish_reason"]) == (0, room, "length")
    assert f"(cut off after {room} tokens: the context is full; export with a larger --max_sequence)" in done.err
    turns = generating(bundle, "--chat", "--ignore_eos", lines="It was\n")
    assert f"(cut off after {room} tokens: the context is full; /reset clears the conversation)" in turns.err
    assert turns.out == answer["text"] + "\n"


def test_an_answer_that_ends_is_not_said_to_be_cut(bundle: Path, generating: Generate, tmp_path: Path) -> None:
    """Every token ends an answer: so says config.json."""
    other = tmp_path / "other"
    shutil.copytree(bundle, other)
    (other / "generation_config.json").write_text(json.dumps({"eos_token_id": list(range(512))}))
    for flags in (["--chat"], []):
        done = generating(other, *flags, "--prompt=It was", "--format=json", "--verify_files=off")
        answer = json.loads(done.out)["answers"][0]
        assert (done.err, answer["ended"], answer["finish_reason"], answer["text"]) == ("", "eos", "stop", "")


def test_a_long_context_ends_an_answer(bundle: Path, generating: Generate, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 1,024 tokens; at 24 in the test, where the context has room for 96."""
    assert MOST_NEW_TOKENS == 1024
    for module in ("running._generation", "command._generate"):
        monkeypatch.setattr(f"tapeline.{module}.MOST_NEW_TOKENS", 24)
    done = generating(bundle, "--chat", "--prompt=It was", "--ignore_eos", "--format=json")
    assert len(json.loads(done.out)["answers"][0]["token_ids"]) == 24
    assert "(cut off after 24 tokens: --max_new_tokens allows more)" in done.err


def test_the_text_of_generate_that_is_cut_off_says_so(bundle: Path, generating: Generate, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(bundle, other)
    (other / "generation_config.json").write_text(json.dumps({"eos_token_id": []}))
    done = generating(other, "--prompt=It was", "--format=json", "--verify_files=off")
    answer = json.loads(done.out)["answers"][0]
    assert (len(answer["token_ids"]), answer["ended"], answer["finish_reason"]) == (64, "length", "length")
    assert done.err == "(cut off by --max_new_tokens=64)\n"


def test_a_file_is_no_bundle(generating: Generate, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").touch()
    done = generating(tmp_path / "model.gguf", "--chat", "--prompt=a")
    assert (done.code, done.out) == (2, "")
    assert "model.gguf: it is a file, and a bundle is a directory: give a model's file as --model" in done.err
