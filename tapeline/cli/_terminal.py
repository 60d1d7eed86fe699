"""Bars and colours of a terminal, drawn by rich; imported only if there is one."""

from typing import Final, TextIO

from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.theme import Theme

_THEME: Final = Theme(
    {"tapeline.heading": "bold", "tapeline.good": "green", "tapeline.bad": "red", "tapeline.size": "cyan"}
)


class _Facts(RegexHighlighter):
    """Colours of tables: headings, sizes, yes and no."""

    base_style = "tapeline."
    highlights = (
        r"(?m)^(?P<heading>[^\s:].*?):?$(?=\n  )",
        r"(?P<good>\b(?:yes|used)\b(?!:))",
        r"(?P<bad>\b(?:no|not used|damaged|missing)\b)",
        r"(?P<size>\b\d[\d,.]* (?:bytes|MiB|GiB)\b)",
    )


def bar(stream: TextIO) -> Progress:
    """Returns a bar of bytes with rate and remaining time."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    return Progress(*columns, TimeRemainingColumn(), console=Console(file=stream))


def steps_bar(stream: TextIO) -> Progress:
    """Returns a bar of steps; the field ``running`` of its task is shown beside it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, TextColumn("{task.fields[running]}", markup=False), console=Console(file=stream))


def clock(stream: TextIO) -> Progress:
    """Returns a line with the time that has passed."""
    columns = (SpinnerColumn(finished_text=" "), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    return Progress(*columns, console=Console(file=stream))


def print_error(text: str, stream: TextIO) -> None:
    """Prints an error with its first word in red."""
    console = Console(file=stream, highlight=False, soft_wrap=True)
    console.print("error:", style="bold red", end=" ", markup=False)
    console.print(text, markup=False, emoji=False)


def print_facts(text: str, stream: TextIO) -> None:
    """Prints tables with colours; each line stays as long as it is."""
    console = Console(file=stream, theme=_THEME, highlighter=_Facts(), soft_wrap=True)
    console.print(text, end="", markup=False, emoji=False)
