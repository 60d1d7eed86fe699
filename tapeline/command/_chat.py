"""Talks with a model or a bundle; each line of stdin is a turn.

chat MODEL                          the model is exported into the cache first, unless it is there
chat BUNDLE                         the same with a bundle
chat MODEL --prompt TEXT            the answer to one turn
chat MODEL --prompt TEXT --image FILE    the same about a picture, with a model that sees

Between turns: /reset forgets what was said, /image FILE puts a picture before the next turn, /help lists these,
/quit or Ctrl-D ends. Ctrl-C stops an answer. Flags are those of generate. Answers are sampled as the model recommends;
--temperature=0 takes the likeliest token.
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
