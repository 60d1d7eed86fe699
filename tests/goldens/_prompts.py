"""Prompts without a tokenizer."""


def prompt(*lengths: int, vocab: int) -> tuple[tuple[int, ...], ...]:
    """Token ids ``[B][T]`` in ``0 .. vocab - 1``: scattered, with the first and the last id among them.

    Args:
        *lengths: the length T of each row.
        vocab: the size of the vocabulary V.
    """
    rows = []
    for row, length in enumerate(lengths):
        ids = [(11 + 17 * row + 31 * i + 7 * i * i) % vocab for i in range(length)]
        if length > 4:
            ids[2], ids[4] = vocab - 1 - row, row
        rows.append(tuple(ids))
    return tuple(rows)
