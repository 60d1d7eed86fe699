"""Renders chat templates with transformers: data/chat.json.

Run outside of Bazel, with transformers installed:

    PYTHONPATH=. python tests/goldens/make_chat_goldens.py
"""

import json
import tempfile
from pathlib import Path
from typing import Final

import transformers
from tokenizers import Tokenizer, models

from tests.goldens.chat_templates import CONVERSATIONS, TEMPLATES, TOKENS

_OUTPUT: Final = Path(__file__).parent / "data" / "chat.json"


def _tokenizer() -> transformers.PreTrainedTokenizerFast:
    inner = Tokenizer(
        models.WordLevel({token: index for index, token in enumerate(TOKENS.values())}, unk_token="<unk>")
    )
    with tempfile.TemporaryDirectory() as directory:
        inner.save(f"{directory}/tokenizer.json")
        return transformers.PreTrainedTokenizerFast(tokenizer_file=f"{directory}/tokenizer.json", **TOKENS)


def main() -> None:
    """Writes the file."""
    tokenizer = _tokenizer()
    rows = []
    for template, text in TEMPLATES.items():
        for conversation, messages in CONVERSATIONS.items():
            for prompt in (True, False):
                row = {"template": template, "conversation": conversation, "add_generation_prompt": prompt}
                try:
                    rendered = tokenizer.apply_chat_template(
                        messages, chat_template=text, tokenize=False, add_generation_prompt=prompt
                    )
                    rows.append({**row, "rendered": rendered})
                except Exception as error:  # noqa: BLE001 (whatever the template raises)
                    rows.append({**row, "refused": str(error)})
    golden = {"made_by": "tests/goldens/make_chat_goldens.py", "transformers": transformers.__version__, "rows": rows}
    _OUTPUT.write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
