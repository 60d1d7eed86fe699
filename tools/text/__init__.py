"""Text to token ids and back, for the command-line tools."""

from tools.text._chat import Chat
from tools.text._chat_template import ChatTemplate, Message
from tools.text._gguf_bpe import UnreadTokenizerError
from tools.text._gguf_tokenizer import gguf_tokenizer, write_gguf_tokenizer
from tools.text._ids import IdStream, parse_token_ids
from tools.text._stream import TextStream
from tools.text._tokenizer import TOKENIZER_FILES, Tokenizer, find_tokenizer

__all__ = [
    "TOKENIZER_FILES",
    "Chat",
    "ChatTemplate",
    "IdStream",
    "Message",
    "TextStream",
    "Tokenizer",
    "UnreadTokenizerError",
    "find_tokenizer",
    "gguf_tokenizer",
    "parse_token_ids",
    "write_gguf_tokenizer",
]
