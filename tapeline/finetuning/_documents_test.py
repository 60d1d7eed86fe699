import functools
import json
import operator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lang_core import InputError
from tapeline.demo import EOS_ID, VOCABULARY_SIZE, write_demo_checkpoint
from tapeline.finetuning._documents import Documents, TrainingDocument
from tapeline.finetuning._windows import PackedWindows
from tapeline.text import Tokenizer

_TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
_ANEW = "{{ messages | length }}" + _TEMPLATE


def documents(directory: Path, template: str | None = _TEMPLATE) -> Documents:
    write_demo_checkpoint(directory)
    if template:
        (directory / "chat_template.jinja").write_text(template)
    return Documents(Tokenizer.load(directory), directory, VOCABULARY_SIZE, EOS_ID)


def turn(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def text_of(directory: Path, ids: np.ndarray) -> str:
    tokenizer = Tokenizer.load(directory)
    return b"".join(tokenizer.token_bytes(int(one)) for one in ids).decode()


def test_a_text_is_one_document_with_an_end(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("It was the best of times.\n\nIt was the worst of times.\n")
    (document,) = documents(tmp_path).read(tmp_path / "data.txt")
    assert text_of(tmp_path, document.ids[:-1]).endswith("best of times.\n\nIt was the worst of times.\n")
    assert document.ids[-1] == EOS_ID
    assert document.learned.all()


def test_lines_are_documents(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text('{"text": "One."}\n\n{"text": "Another one.", "source": "here"}\n')
    texts = [text_of(tmp_path, document.ids) for document in documents(tmp_path).read(tmp_path / "data.jsonl")]
    assert [text.removeprefix("<|begin|>").removesuffix("<|end|>") for text in texts] == ["One.", "Another one."]


def test_of_conversations_the_assistant_is_learned(tmp_path: Path) -> None:
    messages = [turn("user", "Hi"), turn("assistant", "Good day"), turn("user", "And now?"), turn("assistant", "Tea.")]
    (tmp_path / "data.jsonl").write_text(json.dumps({"messages": messages}))
    (document,) = documents(tmp_path).read(tmp_path / "data.jsonl")
    assert "<user>Hi<|end|>\n<assistant>Good day<|end|>" in text_of(tmp_path, document.ids)
    learned = text_of(tmp_path, document.ids[document.learned])
    assert learned.replace("\n", "") == "Good day<|end|>Tea.<|end|>"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"data\.jsonl:2: this is no JSON \(.*\): give an object with 'text' or 'messages' per line"),
        ("[1]", r"data\.jsonl:2: expected a JSON object with 'text' or 'messages', one of them; found \[1\]"),
        ('{"t": 1}', r"data\.jsonl:2: expected a JSON object with 'text' or 'messages'"),
        ('{"text": "a", "messages": []}', r"data\.jsonl:2: expected a JSON object"),
        ('{"text": 3}', r"data\.jsonl:2: expected a text that is not empty; found 3"),
        ('{"text": " "}', r"data\.jsonl:2: expected a text that is not empty"),
        ('{"text": "\\ud800"}', r"data\.jsonl:2: .*half of a surrogate pair"),
        ('{"messages": []}', r"data\.jsonl:2: messages: expected a list of messages; found \[\]"),
        ('{"messages": [3]}', r"data\.jsonl:2: message 1: expected an object with role and content; found 3"),
        ('{"messages": [{"role": "user", "content": "a"}]}', r"data\.jsonl:2: no message has the role 'assistant'"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "data.jsonl").write_text('{"text": "fine"}\n' + line + "\n")
    with pytest.raises(InputError, match=message):
        documents(tmp_path).read(tmp_path / "data.jsonl")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, r"data\.jsonl:1: .*has no chat template"),
        ("{{ raise_exception('no') }}", r"data\.jsonl:1: .*the chat template refuses these messages: no"),
        (_ANEW, r"data\.jsonl:1: the chat template of .* renders turn 2 otherwise when others follow"),
    ],
)
def test_templates_that_do_not_serve_are_named(tmp_path: Path, template: str | None, message: str) -> None:
    messages = [turn("user", "a"), turn("assistant", "b"), turn("user", "c")]
    (tmp_path / "data.jsonl").write_text(json.dumps({"messages": messages}))
    with pytest.raises(InputError, match=message):
        documents(tmp_path, template).read(tmp_path / "data.jsonl")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"data=.*absent\.txt: cannot be read \(No such file or directory\)"),
        (b" \n", r"absent\.txt: is empty: give a file with data"),
        (b"a\nb\xff", r"absent\.txt:2: byte 3 of the file is no UTF-8"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "absent.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        documents(tmp_path).read(path)


def one(*ids: int, learned: bool = True) -> TrainingDocument:
    return TrainingDocument(np.array(ids, np.int32), np.full(len(ids), learned))


def test_every_token_but_the_first_is_predicted_once_a_round() -> None:
    windows = PackedWindows([one(*range(7)), one(*range(7, 12))], 4, 5)
    assert (windows.tokens, windows.learned, len(windows)) == (12, 12, 3)
    rounds = [[windows.batch(step, 1, 1) for step in range(start, start + 3)] for start in (0, 3, 6, 9)]
    for batches in rounds:
        predicted = [batch.token_ids[0, 0, 1:][batch.weights[0, 0] > 0].tolist() for batch in batches]
        assert sorted(functools.reduce(operator.iadd, predicted, [])) == list(range(1, 12))
    assert len({str([batch.token_ids.tolist() for batch in batches]) for batches in rounds}) > 1


def test_weights_of_a_step_sum_to_one() -> None:
    windows = PackedWindows([one(*range(9)), one(3, 4, 5, learned=False)], 4, 0)
    batch = windows.batch(3, 2, 3)
    assert batch.token_ids.shape == (2, 3, 5)
    assert batch.weights.shape == (2, 3, 4)
    assert batch.weights.sum() == pytest.approx(1)
    assert np.unique(batch.weights[batch.weights > 0]).size == 1


def test_the_order_is_the_seeds() -> None:
    drawn = [PackedWindows([one(*range(200))], 4, seed).batch(7, 1, 8).token_ids.tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_windows_without_anything_to_learn_are_left_out() -> None:
    windows = PackedWindows([one(*range(8), learned=False), one(*range(8))], 4, 0)
    assert len(windows) == 3  # of 4: the first has context alone
    with pytest.raises(InputError, match="data: have no token to learn"):
        PackedWindows([one(*range(8), learned=False)], 4, 0)


def test_data_shorter_than_a_window_are_refused() -> None:
    with pytest.raises(InputError, match=r"sequence=9: the data have 9 tokens, and a window is of 10: .* at most 8"):
        PackedWindows([one(*range(9))], 9, 0)
