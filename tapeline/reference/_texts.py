"""Texts and conversations with which tokenizers are compared."""

from typing import Any, Final

TEXTS: Final = (
    "The quick brown fox jumps over the lazy dog.",
    "Hello, World! It's 3:45 p.m., isn't it?",
    "a  b   c    d",
    " leading and trailing spaces  ",
    "def add(a, b):\n    # two  spaces\n    return a + b\n\n\nclass C:\n\tpass\n",
    "for (int i = 0; i < 10; ++i) {\r\n  x[i] = y[i] * 2.5e-3f;\r\n}",
    '{"key": [1, 2.0, null, true], "nested": {"a": "b\\n"}}',
    "1234567890 3.14159 1,000,000 0x1F600 2024-01-31",
    "naïve café, Straße, façade, ÆØÅ, İstanbul",
    "Zażółć gęślą jaźń; Příliš žluťoučký kůň",
    "Съешь же ещё этих мягких французских булок",
    "我能吞下玻璃而不伤身体。東京都に住んでいます。",
    "안녕하세요 세계, 한국어 문장입니다.",
    "مرحبا بالعالم שלום עולם",
    "हिन्दी में लिखा हुआ वाक्य ภาษาไทยไม่มีวรรค",
    "😀👩‍👩‍👧‍👦🇩🇪 emoji e\u0301 combining \u00a0 \u200b \ufeff spaces",
    "<s> </s> <pad> <unk> [CLS] [SEP] [MASK] <bos> <eos>",
    "<|endoftext|><|im_start|>user\nhi<|im_end|><|eot_id|><|end|><start_of_turn>model",
    "iPhone15ProMax camelCaseWord snake_case_word UPPERCASE http://a.b/c?d=e&f=%20g",
    "\n\n\t \n   ...!!!??? --- === *** ```python\nprint('x')\n```",
)
"""Texts: prose, spaces, code, digits, scripts, combining characters, special tokens."""

CONVERSATIONS: Final[tuple[tuple[dict[str, Any], ...], ...]] = (
    ({"role": "user", "content": "  What is 2 + 2?\n"},),
    (
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": "Write  code:\n\n    x = 1"},
        {"role": "assistant", "content": "x = 1 "},
        {"role": "user", "content": "Danke schön 😀"},
    ),
)
"""Conversations: one turn, and several with a system message."""
