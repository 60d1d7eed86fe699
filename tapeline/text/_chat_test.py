"""Chat templates: where they are found, what they may do, how answers end."""

import doctest
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken

from lang_core import InputError
from tapeline.text import Chat, ChatTemplate, Tokenizer, _chat_template, _samples_testing

USER = [{"role": "user", "content": "the tape"}]


@pytest.fixture
def directory(tmp_path: Path) -> Callable[..., Path]:
    """A model's directory with a tokenizer, its configuration, and a template file."""

    def make(config: Any = None, file: str | None = None, *special: str) -> Path:
        inner = _samples_testing.byte_level()
        inner.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
        inner.save(str(tmp_path / "tokenizer.json"))
        if config is not None:
            (tmp_path / "tokenizer_config.json").write_text(config if isinstance(config, str) else json.dumps(config))
        if file is not None:
            (tmp_path / "chat_template.jinja").write_text(file)
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("config", "file", "expected"),
    [
        ({"chat_template": "one"}, None, "one"),
        (
            {"chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "two"}]},
            None,
            "two",
        ),
        ({"chat_template": "one"}, "of the file", "of the file"),
        (None, "of the file", "of the file"),
        ({"chat_template": "{{ bos_token }}{{ eos_token }}", "bos_token": "<s>"}, None, "<s>"),
        ({"chat_template": "{{ eos_token }}", "eos_token": {"content": "</s>", "lstrip": False}}, None, "</s>"),
    ],
)
def test_where_templates_are_found(
    config: Any, file: str | None, expected: str, directory: Callable[..., Path]
) -> None:
    assert ChatTemplate.find(directory(config, file)).render(USER) == expected


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, r"`chat`: .* has no chat template, neither chat_template.jinja nor chat_template in tok"),
        ({"chat_template": None}, "has no chat template, neither .*: put the model's chat_template.jinja there, or"),
        ({"chat_template": [{"name": "rag", "template": "x"}]}, r"has the chat templates rag, but no default: put the"),
        ({"chat_template": []}, "has the chat templates none, but no default"),
        ({"chat_template": [{"name": {"a": 1}}, {"name": ["b"]}, 7]}, "has the chat templates none, but no default"),
        ({"chat_template": 3}, r"tokenizer_config.json: chat_template: expected text; found 3: copy it again"),
        ("[1]", r"tokenizer_config.json: expected a JSON object; found list"),
        ("{", r"cannot read .*tokenizer_config.json: .*; copy it again from the model's source"),
        ({"chat_template": "a\n{% for %}"}, r"tokenizer_config.json: line 2: .*: this is not a Jinja template; copy"),
        ({"chat_template": "{% generation %}"}, r"line 1: .*this is not a Jinja template"),
    ],
)  # fmt: skip
def test_templates_that_are_not_there(config: Any, message: str, directory: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match=message):
        ChatTemplate.find(directory(config))


def test_tools_may_have_a_template_of_their_own(directory: Callable[..., Path]) -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools[0].name }}!"}]
    template = ChatTemplate.find(directory({"chat_template": named}))
    texts = [template.render(USER), template.render(USER, tools=[]), template.render(USER, tools=[{"name": "now"}])]
    assert texts == ["plain", "plain", "now!"]
    assert template.mentions("tools[0]")
    with pytest.raises(InputError, match=r"tokenizer_config.json: line 1: .*: this is not a Jinja template"):
        ChatTemplate.find(directory({"chat_template": [named[0], {"name": "tool_use", "template": "{% for %}"}]}))


def test_a_template_file_that_is_no_text(directory: Callable[..., Path]) -> None:
    folder = directory()
    (folder / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"cannot read .*chat_template.jinja: .*; copy it again"):
        ChatTemplate.find(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ raise_exception('no ' ~ messages[0].role) }}", "here: the chat template refuses these messages: no user"),
        (
            "{{ ''.__class__.__mro__ }}",
            "here: the chat template is not allowed to do this: access to attribute '__class",
        ),
        ("{{ messages.append(1) }}", r"is not allowed to do this: .*append"),
        ("{{ messages[0].update(role='x') }}", r"is not allowed to do this: .*update"),
        ("{% for i in range(10**9) %}{% endfor %}", r"fails: OverflowError: Range too big"),
        ("{{ nothing.at.all }}", r"here: the chat template uses an undefined value: 'nothing' is undefined"),
        ("{{ messages[0].content + 1 }}", "here: the chat template fails: TypeError: "),
        ("{{ 1 // 0 }}", "here: the chat template fails: ZeroDivisionError: "),
        (
            "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
            "here: the chat template, or a value in it, nests too deep",
        ),
    ],
)
def test_what_templates_may_not_do(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ChatTemplate(text, "here").render(USER)


def test_the_time_is_theirs_to_ask() -> None:
    assert re.fullmatch(r"\d\d\d\d", ChatTemplate("{{ strftime_now('%Y') }}", "here").render(USER))


def test_templates_do_not_change_what_they_are_given() -> None:
    messages = [{"role": "user", "content": "x"}]
    assert ChatTemplate("{% set messages = [] %}{{ messages }}", "here").render(messages) == "[]"
    assert messages == [{"role": "user", "content": "x"}]


_CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_a_conversation(directory: Callable[..., Path]) -> None:
    folder = directory({"chat_template": _CHATML, "eos_token": "</s>"}, None, "<|im_start|>", "<|im_end|>")
    tokenizer = Tokenizer.load(folder)
    chat = Chat.of(folder, tokenizer, "brief")
    start = tokenizer.special_id("<|im_start|>")
    end = tokenizer.special_id("<|im_end|>")
    first = chat.ask("the", 10**6)
    assert tokenizer.decode(first) == "system\nbrief\nuser\nthe\nassistant\n"
    assert (first[0], first.count(start or -1), first.count(end or -1)) == (start, 3, 2)
    chat.answered("tape")
    again = chat.ask("to", 10**6)
    assert again[: len(first)] == first
    assert tokenizer.decode(again[len(first) :]) == "tape\nuser\nto\nassistant\n"
    assert chat.end_ids() == {end, tokenizer.special_id("</s>")}


def test_ids_are_of_the_templates_text_alone(directory: Callable[..., Path]) -> None:
    """The template writes the first token; the tokenizer's own would be one too many."""
    inner = _samples_testing.byte_fallback()
    folder = directory({"chat_template": "<s>{{ messages[0].content }}"})
    inner.save(str(folder / "tokenizer.json"))
    tokenizer = Tokenizer.load(folder)
    assert Chat.of(folder, tokenizer).ask("the", 10**6) == tokenizer.encode("the")


@pytest.mark.parametrize(
    ("template", "ends"),
    [
        ("{% for m in messages %}{{ m.content }} </s>{% endfor %}", ["</s>"]),
        ("{% for m in messages %}{{ m.content }} the </s>{% endfor %}", []),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", []),
        ("{{ raise_exception('no') }}", []),
        ("{{ messages[0].content }}", []),
    ],
)
def test_how_answers_end(template: str, ends: list[str], directory: Callable[..., Path]) -> None:
    folder = directory({"chat_template": template})
    tokenizer = Tokenizer.load(folder)
    assert Chat.of(folder, tokenizer).end_ids() == {tokenizer.special_id(token) for token in ends}


def test_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"`chat`: .* has no tokenizer: text cannot become ids"):
        Chat.of(tmp_path, None)


def test_doctest() -> None:
    assert doctest.testmod(_chat_template) == (0, 2)


_PARTS = (
    "{% for m in messages %}{{ m.role }}:{% for part in m.content %}{% if part.type == 'image' %}<image>"
    "{% elif part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %};{% endfor %}"
)


def test_a_template_of_parts_gets_text_as_a_part() -> None:
    template = ChatTemplate(_PARTS, "here")
    assert template.takes_parts
    assert template.render(USER) == "user:the tape;"
    assert template.render([{"role": "user", "content": [{"type": "image"}]}]) == "user:<image>;"
    assert template.after_answers() == ";"
    for text in ("{{ messages[0].content }}", "{{ raise_exception('no') }}", "x"):
        assert not ChatTemplate(text, "here").takes_parts


@pytest.mark.parametrize("vision", [False, True])
def test_templates_are_those_of_the_tokenizer_or_the_processor(vision: bool, directory: Callable[..., Path]) -> None:
    """AutoTokenizer and AutoProcessor of transformers 5.23 read the same files in another order."""
    folder = directory({"chat_template": "of the tokenizer"})
    (folder / "config.json").write_text(json.dumps({"vision_config": {}} if vision else {}))
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": _PARTS}))
    of_the_processor = "user:the tape;"
    assert ChatTemplate.find(folder).render(USER) == (of_the_processor if vision else "of the tokenizer")
    (folder / "chat_template.jinja").write_text("of the file")
    assert ChatTemplate.find(folder).render(USER) == (of_the_processor if vision else "of the file")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates/default.jinja").write_text("of the folder")
    assert ChatTemplate.find(folder).render(USER) == (of_the_processor if vision else "of the folder")
    (folder / "chat_template.json").unlink()
    assert ChatTemplate.find(folder).render(USER) == ("of the file" if vision else "of the folder")
    (folder / "chat_template.jinja").unlink()
    assert ChatTemplate.find(folder).render(USER) == "of the folder"


def test_the_template_of_a_processor_counts_if_there_is_no_other(directory: Callable[..., Path]) -> None:
    folder = directory({})
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": _PARTS}))
    assert ChatTemplate.find(folder).render(USER) == "user:the tape;"


def test_pictures_come_before_the_text_and_get_their_tokens(directory: Callable[..., Path]) -> None:
    tokenizer = Tokenizer.load(directory())
    chat = Chat(ChatTemplate(_PARTS, "here"), tokenizer)
    seen: list[str] = []
    chat.ask("What?", 1000, pictures=2, written=lambda text: seen.append(text) or text)
    assert seen == ["user:<image><image>What?;"]
