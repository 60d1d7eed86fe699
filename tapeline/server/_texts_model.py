"""Models that read whole texts, in one call at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from lang_core import InputError
from tapeline.server._errors import RequestError
from tapeline.server._paths import without_paths
from tapeline.server._turns import SerialExecutor
from tapeline.text import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class TextsModel:
    """Model that reads whole texts, for several threads: one call runs at a time.

    Attributes:
        name: name of the model.
        created: when its bundle was written, in seconds since 1970.
        context: maximum number of tokens that it reads at once.
    """

    name: str
    created: int
    context: int
    _turns: SerialExecutor = field(default_factory=SerialExecutor, repr=False)

    def fault(self, seconds: float) -> str | None:
        """Returns why the model cannot answer: a call does not make progress for some seconds; None if it can."""
        return self._turns.activity.fault(seconds)

    def drain(self, seconds: float) -> None:
        """Waits for the call that runs."""
        self._turns.drain(seconds)

    def stalled_seconds(self) -> float:
        """Returns the time since the last progress of the call that runs; 0 if none does."""
        return self._turns.activity.stalled_seconds()


def text_of_tokens(tokenizer: Tokenizer | None, tokens: Sequence[int], field: str) -> str:
    """Returns the text of these tokens.

    Args:
        tokenizer: tokenizer of the model; None if it has none.
        tokens: token ids of that tokenizer.
        field: field of the request that has them.

    Raises:
        RequestError: the tokenizer cannot make these tokens from a text.
    """
    if tokenizer is None:
        raise RequestError(f"{field}: the model has no tokenizer: send texts", param=field)
    try:
        text = tokenizer.decode(tokens)
        forms = [tokenizer.encode(text, special_tokens=special) for special in (True, False)]
    except InputError as error:
        raise RequestError(f"{field}: {without_paths(str(error))}", param=field) from error
    if list(tokens) not in forms:
        raise RequestError(
            f"{field}: the model's tokenizer makes these token ids of no text: send texts, or the ids of /tokenize "
            "(clients that tokenize by themselves use the vocabulary of another model)",
            param=field,
        )
    return text
