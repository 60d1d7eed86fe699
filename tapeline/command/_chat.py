"""Chats with a model or a bundle. Each line of stdin is a message.

chat MODEL                          a model, which is exported into the cache at first use
chat BUNDLE                         a bundle
chat MODEL --prompt TEXT            answers one message and ends
chat MODEL --prompt TEXT --image FILE    asks about an image, with a multimodal model

Commands: /reset clears the conversation, /image FILE adds an image to the next message, /help lists the commands,
/quit or Ctrl-D ends the chat. Ctrl-C stops an answer. The flags are those of generate. Answers are sampled as the
model recommends; --temperature=0 decodes greedily.
"""

from collections.abc import Sequence
from typing import Final

from tapeline.command import _generate

FLAGS: Final = _generate.FLAGS
OPERANDS: Final = _generate.OPERANDS
GIVEN: Final[Sequence[str]] = ("--chat",)


def main() -> None:
    """Answers turns of a conversation."""
    _generate.run(samples=True)
