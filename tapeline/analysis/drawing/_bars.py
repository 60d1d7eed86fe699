"""Data of bar charts."""

from typing import NamedTuple

from lang_core import checked_choices


@checked_choices
class Candidate(NamedTuple):
    """Bar of a candidate.

    Attributes:
        name: configuration.
        seconds: time of a call; None if it was not timed.
        chosen: whether it is the chosen one.
        note: reason why it was not timed.
    """

    name: str
    seconds: float | None
    chosen: bool = False
    note: str = ""


@checked_choices
class Bar(NamedTuple):
    """Bar of a system.

    Attributes:
        name: name of the system.
        median: median over rounds.
        least: minimum over rounds.
        most: maximum over rounds.
        peer: whether it is another system than Tapeline.
    """

    name: str
    median: float
    least: float
    most: float
    peer: bool = False
