"""Signatures of the API's pages: an argument per line where one line is too long.

mkdocstrings has Black or Ruff do this, a process per signature, and does nothing where neither is installed.
"""

from mkdocstrings_handlers.python._internal import rendering

_OPENING, _CLOSING = "([{", ")]}"


def formatted(code: str, line_length: int) -> str:
    """Returns a signature, ``def name(a, b) -> c: pass``, with an argument per line if it is longer than a line.

    >>> print(formatted("def f(a: dict[str, int], *, b: int = 3) -> str: pass", 20))
    def f(
        a: dict[str, int],
        *,
        b: int = 3,
    ) -> str: pass
    """
    start = code.find("(")
    if len(code) <= line_length or not code.startswith("def ") or start < 0:
        return code
    end, commas = _marks(code, start)
    pieces = [code[a + 1 : b].strip() for a, b in zip([start, *commas], [*commas, end], strict=True)]
    lines = [f"    {piece}," for piece in pieces if piece]
    return "\n".join([code[: start + 1], *lines, code[end:]])


def _marks(code: str, start: int) -> tuple[int, list[int]]:
    """Returns where the bracket at ``start`` closes, and the commas between that no other bracket holds."""
    depth, commas = 0, list[int]()
    for place in range(start, len(code)):
        depth += (code[place] in _OPENING) - (code[place] in _CLOSING)
        if not depth:
            return place, commas
        if depth == 1 and code[place] == ",":
            commas.append(place)
    return len(code), commas


def use_own_formatter() -> None:
    """Has mkdocstrings take this module's formatter, whatever is installed."""
    rendering._get_formatter = lambda: formatted
