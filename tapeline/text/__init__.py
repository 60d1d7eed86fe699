"""Text to token ids and back, and chat templates."""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from tapeline.text._assembly import TOKENIZER_FILE
    from tapeline.text._chat import Chat
    from tapeline.text._chat_template import ChatTemplate, Message, NoTemplateError
    from tapeline.text._ctc import CTC_TOKENIZERS
    from tapeline.text._gguf_bpe import UnreadTokenizerError
    from tapeline.text._gguf_fields import gguf_tokenizer_fields
    from tapeline.text._gguf_tokenizer import gguf_tokenizer, write_gguf_tokenizer
    from tapeline.text._ids import IdStream, check_ids, parse_token_ids
    from tapeline.text._infilling import InfillTokens
    from tapeline.text._languages import Translation
    from tapeline.text._spaces import without_spaces
    from tapeline.text._stop_text import StopText
    from tapeline.text._stream import TextStream
    from tapeline.text._text_encoder import EncodedText, TextEncoder, TextTokens
    from tapeline.text._tokenizer import Tokenizer, find_tokenizer, register_tokenizer, tokenizer_files

export_lazily(__name__)
