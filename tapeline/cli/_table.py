"""Tables as text."""

from collections.abc import Sequence


def table(rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Returns lines with the cells of all rows in columns.

    >>> table([("a", "one"), ("long", "")])
    ['  a     one', '  long']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)] if rows else []
    return [indent + "  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)).rstrip() for row in rows]
