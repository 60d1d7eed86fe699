"""Sentence embeddings with a bundle."""

from collections.abc import Callable, Sequence

from runtime import Session
from tapeline.bundle import Bundle
from tapeline.running._calls import TextCalls
from tapeline.running._prompts import Prompts
from tapeline.running._text_array import TextArray
from tapeline.text import EncodedText, Tokenizer


class SentenceEmbedder:
    """Bundle of a sentence-transformers model, in a session.

    Attributes:
        sequence: largest number of tokens of a sentence that the bundle takes, special ones included.
        max_tokens: largest number of tokens that the model reads; None if its files name none.
        similarity: name of the function that compares the model's vectors, such as ``cosine``.
    """

    def __init__(self, bundle: Bundle, session: Session, tokenizer: Tokenizer) -> None:
        """Checks that the bundle embeds sentences.

        Raises:
            InputError: the bundle does not embed sentences.
            ConfigError: its prompts or settings are damaged.
        """
        self._calls = TextCalls(
            bundle,
            session,
            ("sentence_embedding",),
            "embeds no sentences",
            "export a model that has modules.json of sentence-transformers beside its config.json",
        )
        self._prompts = Prompts.read(bundle.path)
        self._encoder = self._calls.encoder(tokenizer)
        self._skips_prompt = not bundle.config.model.get("pooling", {}).get("include_prompt", True)
        self.sequence = self._calls.sequence
        self.max_tokens = self._calls.max_tokens
        self.similarity = self._prompts.similarity

    def __call__(
        self,
        texts: Sequence[str],
        prompt_name: str | None = None,
        *,
        truncate: bool = True,
        check: Callable[[], object] = lambda: None,
    ) -> TextArray:
        """Returns one row f32 [D] for each text, with the prompt of that name, or the model's default, before it.

        Args:
            texts: the texts.
            prompt_name: name of a prompt; the model's default if None.
            truncate: whether texts that are longer than the model reads are truncated, and not refused.
            check: called before each text is encoded and each call of the model; its exceptions end the work.

        Raises:
            InputError: a text has more tokens than the bundle takes, or the prompt does not exist.
        """
        before, vocabulary = self._prompts.text(prompt_name), self._calls.vocabulary
        encoded: list[EncodedText] = []
        for text in texts:
            check()
            one = self._encoder.encode(f"{before}{text}", vocabulary)
            self._calls.check(text, one, truncate=truncate)
            encoded.append(self._calls.typed(one))
        skipped = self._encoder.prompt_tokens(before, vocabulary) if before and self._skips_prompt else 0
        return TextArray.of(self._calls(encoded, skipped, check), encoded)
