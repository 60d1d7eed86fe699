"""Texts with a gap: /infill and the field ``suffix`` of /v1/completions, with a scripted model."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tapeline.server._infill import LineRules
from tapeline.server._models import ModelSource
from tapeline.server._options import ServerOptions
from tapeline.server._script_slots_testing import ScriptSlots
from tapeline.server._scripted_server_testing import script_tokens, scripted_server
from tapeline.server._server_testing import VOCABULARY, Answered, RunningServer, running, text_model
from tapeline.text import InfillTokens, Tokenizer

__all__ = ["script_tokens", "scripted_server"]  # fixtures

_QWEN: Final = (
    *("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>"),
    *("<|fim_repo|>", "<|file_sep|>"),
)
_BEGIN: Final = "<|begin|>"
_CODE: Final = "return x:\n  if y:\n    z\n\n  w\nq"
_CONTEXT: Final = 400
_SMALL: Final = 60


def tokenizer_with(directory: Path, names: tuple[str, ...], *, special: bool = False) -> Tokenizer:
    """Returns the demo model's tokenizer with further tokens; Qwen's tokens of infilling are not special."""
    text_model(directory, ScriptSlots([0], VOCABULARY)).close()
    fields = json.loads((directory / "tokenizer.json").read_text())
    (first,) = [one for one in fields["added_tokens"] if one["content"] == _BEGIN]
    for index, name in enumerate(names):
        fields["added_tokens"].append({**first, "id": VOCABULARY + index, "content": name, "special": special})
    (directory / "tokenizer.json").write_text(json.dumps(fields))
    return Tokenizer.load(directory)


def source(directory: Path, name: str, names: tuple[str, ...], context: int) -> ModelSource:
    """Returns a model that says the code again and again."""
    tokenizer = tokenizer_with(directory, names)
    size = VOCABULARY + len(names)
    said = tokenizer.encode(_CODE, special_tokens=False)
    slots = ScriptSlots((said * context)[:context], size)
    model = dataclasses.replace(text_model(directory, slots, name), tokenizer=tokenizer, vocabulary=size)
    return ModelSource(name, lambda: model)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    sources = [
        source(tmp_path_factory.mktemp("qwen"), "qwen", _QWEN, _CONTEXT),
        source(tmp_path_factory.mktemp("small"), "small", _QWEN, _SMALL),
        source(tmp_path_factory.mktemp("plain"), "plain", ("<PRE>", "<SUF>", "<MID>"), _CONTEXT),
    ]
    with running(sources, ServerOptions(port=0)) as started:
        yield started


def infill(server: RunningServer, **fields: Any) -> Answered:
    body = {"model": "qwen", "input_prefix": "def f(", "input_suffix": ")", "n_predict": 4, "temperature": 0, **fields}
    return server.request("/infill", {name: value for name, value in body.items() if value is not None})


def events_of(answered: Answered) -> list[Any]:
    """Returns the events of a stream, which ends without a mark."""
    assert answered.status == 200, answered.body
    assert b"[DONE]" not in answered.body
    return [json.loads(one.removeprefix("data: ")) for one in answered.body.decode().strip().split("\n\n")]


def test_the_prompt_is_that_of_the_model(qwen: RunningServer) -> None:
    assert infill(qwen).json["prompt"] == f"{_BEGIN}<|fim_prefix|>def f(<|fim_suffix|>)<|fim_middle|>"
    after = infill(qwen, prompt="a, ").json["prompt"]
    assert after == f"{_BEGIN}<|fim_prefix|>def f(a, <|fim_suffix|>)<|fim_middle|>"
    extra = [{"filename": "a.py", "text": "A = 1"}, {"text": "B = 2"}]
    expected = f"{_BEGIN}<|fim_repo|>myproject\n<|file_sep|>a.py\nA = 1<|file_sep|>tmp\nB = 2<|file_sep|>filename\n"
    assert infill(qwen, input_extra=extra).json["prompt"] == expected + infill(qwen).json["prompt"].removeprefix(_BEGIN)
    plain = infill(qwen, model="plain", input_extra=extra[:1]).json["prompt"]
    assert plain == f"{_BEGIN}\n\n--- snippet ---\n\nA = 1<PRE>def f(<SUF>)<MID>"


def test_names_of_tokens_in_a_program_are_text(qwen: RunningServer) -> None:
    """A program about tokenizers must not end its own gap."""
    text = "x = '<|fim_middle|><|end|><|file_sep|>'"
    body = infill(qwen, input_prefix=text, input_suffix=text).json
    assert body["prompt"] == f"{_BEGIN}<|fim_prefix|>{text}<|fim_suffix|>{text}<|fim_middle|>"
    assert body["tokens_evaluated"] > 60


def test_the_farthest_text_is_left_out(qwen: RunningServer) -> None:
    whole = infill(qwen, model="small").json
    assert not whole["truncated"]
    long: dict[str, Any] = {"model": "small", "input_prefix": "a" * 200 + "b", "input_suffix": "c" + "d" * 200}
    body = infill(qwen, **long, input_extra=[{"text": "e" * 50}]).json
    assert body["truncated"]
    assert body["tokens_evaluated"] + 4 <= _SMALL + 1
    begin, _, rest = body["prompt"].partition("<|fim_prefix|>")
    before, _, after = rest.partition("<|fim_suffix|>")
    assert begin == _BEGIN
    assert before == "a" * (len(before) - 1) + "b"
    assert after == "c" + "d" * (len(after) - len("c<|fim_middle|>")) + "<|fim_middle|>"
    assert len(before) > 2 * len(after.removesuffix("<|fim_middle|>"))
    short = infill(qwen, **{**long, "input_suffix": ")"}, input_extra=[{"text": "e" * 50}]).json
    assert short["prompt"].endswith("b<|fim_suffix|>)<|fim_middle|>")
    assert len(short["prompt"]) > len(body["prompt"]) - 20
    extra = infill(qwen, model="small", input_extra=[{"text": "e" * 80}]).json
    assert extra["truncated"]
    assert extra["prompt"].startswith(f"{_BEGIN}eee")
    over = infill(qwen, model="small", prompt="f" * 70)
    assert (over.status, over.error["code"]) == (400, "context_length_exceeded")


def test_a_stream_is_the_whole(qwen: RunningServer) -> None:
    whole = infill(qwen, n_predict=12, return_tokens=True).json
    *parts, last = events_of(infill(qwen, n_predict=12, stream=True, return_tokens=True))
    assert "".join(part["content"] for part in parts) == whole["content"] != ""
    assert [part["stop"] for part in parts] == [False] * len(parts)
    assert (last["stop"], last["stop_type"], last["content"]) == (True, "limit", "")
    assert len(whole["tokens"]) == whole["tokens_predicted"] == last["tokens_predicted"] == 12
    assert whole["timings"]["predicted_n"] == 12
    assert whole["timings"]["prompt_n"] + whole["timings"]["cache_n"] == whole["tokens_evaluated"]
    nothing = infill(qwen, n_predict=0).json
    assert (nothing["content"], nothing["tokens_predicted"]) == ("", 0)
    stop = whole["content"][3:6]
    stopped = infill(qwen, n_predict=12, stop=[stop]).json
    assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", stop)
    assert stopped["content"] == whole["content"][:3]


def test_fields_of_llama_vim(qwen: RunningServer) -> None:
    fields = ["content", "timings/prompt_n", "timings/predicted_ms", "generation_settings/n_ctx", "nothing/here"]
    options: dict[str, Any] = {"samplers": ["top_k", "infill"], "t_max_prompt_ms": 500, "id_slot": 0, "top_k": 40}
    answered = infill(qwen, response_fields=fields, cache_prompt=True, **options)
    assert list(answered.json) == fields[:4]
    assert answered.json["generation_settings/n_ctx"] == _CONTEXT
    assert answered.headers["x-ignored-fields"] == "samplers, t_max_prompt_ms"


def test_lines_end_an_answer(qwen: RunningServer) -> None:
    text = infill(qwen, n_predict=60).json["content"]
    indent = infill(qwen, n_predict=60, n_indent=2).json
    first = text.partition("\n")[0]
    lines = indent["content"].split("\n")
    assert lines[0] == first
    assert all(not line or line.startswith("  ") for line in lines[1:-1])
    assert (lines[-1], indent["stop_type"]) == ("", "limit")
    assert text.startswith(indent["content"])
    assert text[len(indent["content"])] not in " \n"
    *parts, last = events_of(infill(qwen, n_predict=60, n_indent=2, stream=True))
    assert "".join(part["content"] for part in parts) == indent["content"]
    assert last["has_new_line"]


def test_time_ends_an_answer_of_several_lines() -> None:
    rules = LineRules(seconds=1.0)
    assert rules.push("a", 10.0) == ("a", False)
    assert rules.push("b", 12.0) == ("b", False)
    assert rules.push("\nc", 12.5) == ("\nc", True)
    assert LineRules(seconds=1.0).push("a\nb", 50.0) == ("a\nb", False)


def test_a_completion_with_a_suffix(qwen: RunningServer) -> None:
    body: dict[str, Any] = {"model": "qwen", "prompt": "def f(", "max_tokens": 4, "temperature": 0, "suffix": ")"}
    choice = qwen.request("/v1/completions", {**body, "return_token_ids": True}).json["choices"][0]
    ids = choice["prompt_token_ids"]
    prefix, suffix, middle = range(VOCABULARY, VOCABULARY + 3)
    assert (ids[0], ids[1], ids[-1]) == (0, prefix, middle)
    before, after = ids[2 : ids.index(suffix)], ids[ids.index(suffix) + 1 : -1]
    plain = {"model": "qwen", "add_special_tokens": False}
    for part, text in ((before, "def f("), (after, ")")):
        assert part == qwen.request("/tokenize", {**plain, "prompt": text}).json["tokens"]
    assert choice["text"] == infill(qwen).json["content"]
    by_ids = qwen.request("/v1/completions", {**body, "prompt": before, "return_token_ids": True}).json["choices"][0]
    assert by_ids["prompt_token_ids"] == ids[1:]
    without = qwen.request("/v1/completions", {**body, "suffix": "", "return_token_ids": True}).json["choices"][0]
    assert prefix not in without["prompt_token_ids"]


@pytest.mark.parametrize(
    ("path", "fields", "message"),
    [
        ("/infill", {"input_prefix": None}, "input_prefix: this field is required"),
        ("/infill", {"n": 2}, "n: expected a whole number from 1 to 1"),
        ("/infill", {"n_predict": 3, "max_tokens": 4}, "n_predict: 3 contradicts max_tokens=4"),
        ("/infill", {"input_extra": [{"text": 3}]}, r"input_extra[0].text: expected a string"),
        ("/infill", {"grammar": "root ::= x"}, "grammar: not supported"),
        ("/v1/completions", {"prompt": "a", "suffix": "b", "echo": True}, "echo: goes without `suffix`"),
        (
            "/v1/completions",
            {"prompt": "a", "suffix": "b", "truncate_prompt_tokens": 3},
            "truncate_prompt_tokens: goes without `suffix`",
        ),
        ("/v1/completions", {"prompt": "a", "suffix": "b" * 300_000}, "suffix: expected at most"),
    ],
)
def test_refusals(qwen: RunningServer, path: str, fields: dict[str, Any], message: str) -> None:
    body = {"model": "qwen", **({"input_prefix": "a", "input_suffix": "b"} if path == "/infill" else {}), **fields}
    answered = qwen.request(path, body)
    assert answered.status == 400
    assert message in answered.error["message"]


def test_a_model_without_the_tokens_is_named(server: RunningServer) -> None:
    expected = "not supported: the tokenizer of model 'demo' has no tokens of prefix, suffix and middle"
    body = {"model": "demo", "prompt": "a", "suffix": "b"}
    for answered in (
        server.request("/v1/completions", body),
        server.request("/infill", {"model": "demo", "input_prefix": "a", "input_suffix": "b"}),
    ):
        assert answered.status == 400
        assert expected in answered.error["message"]
        assert answered.error["code"] == "unsupported_parameter"


@pytest.mark.parametrize("special", [True, False])
def test_tokens_of_families(tmp_path: Path, special: bool) -> None:
    """The names are those that llama.cpp looks for; a tokenizer that lacks one of three cannot fill in."""
    families: dict[str, tuple[str, ...]] = {
        "starcoder": ("<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<fim_pad>"),
        "deepseek": ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # noqa: RUF001
        "code_llama": ("▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"),
        "glm": ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),
        "qwen": _QWEN,
    }
    for name, names in families.items():
        folder = tmp_path / name
        folder.mkdir()
        tokens = InfillTokens.of(tokenizer_with(folder, names, special=special))
        assert tokens is not None
        assert (tokens.prefix, tokens.suffix, tokens.middle) == tuple(range(VOCABULARY, VOCABULARY + 3))
        assert tokens.ends == frozenset(range(VOCABULARY + 3, VOCABULARY + len(names)))
    partial = tmp_path / "partial"
    partial.mkdir()
    assert InfillTokens.of(tokenizer_with(partial, _QWEN[:2])) is None
