"""Chat templates render what transformers renders (``tests/goldens/make_chat_goldens.py``)."""

import json
import re
from typing import Any

import pytest

from lang_core import InputError
from tapeline.text import ChatTemplate
from tests.goldens.chat_templates import CONVERSATIONS, TEMPLATES, TOKENS
from tests.goldens.golden_files import DATA

_ROWS: list[dict[str, Any]] = json.loads((DATA / "chat.json").read_text(encoding="utf-8"))["rows"]


def test_every_case_has_its_row() -> None:
    cases = {(row["template"], row["conversation"]) for row in _ROWS}
    assert cases == {(template, conversation) for template in TEMPLATES for conversation in CONVERSATIONS}


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: "-".join(map(str, [*row.values()][:3])))
def test_text_is_transformers(row: dict[str, Any]) -> None:
    template = ChatTemplate(TEMPLATES[row["template"]], "some/tokenizer_config.json", TOKENS)
    messages, prompt = CONVERSATIONS[row["conversation"]], row["add_generation_prompt"]
    if "refused" in row:
        wanted = f"some/tokenizer_config.json: the chat template refuses these messages: {row['refused']}"
        with pytest.raises(InputError, match=re.escape(wanted)):
            template.render(messages, add_generation_prompt=prompt)
    else:
        assert template.render(messages, add_generation_prompt=prompt) == row["rendered"]
