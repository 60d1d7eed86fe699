"""Rows in registers, turned into columns."""

from collections.abc import Iterable, Sequence

from run_iree.kernels._text import listed


def turned(
    registers: Sequence[str], bits: Iterable[int], kind: str, prefix: str = "turn", lanes: int = 16
) -> tuple[list[str], list[str]]:
    """Exchanges lanes of vectors: a round for each bit, of a lane's number and a register's.

    After the rounds of bits 1, 2, 4 and 8 lane c of register r is what lane r of register c was. With half as many
    registers as lanes and without the last round the same is so within each half.

    Args:
        registers: their names.
        bits: of each round.
        kind: of the elements.
        prefix: of the new names.
        lanes: of a register.

    Returns:
        The new names, and the lines that make them.
    """
    lines: list[str] = []
    now = list(registers)
    vector = f"vector<{lanes}x{kind}>"
    for bit in bits:
        made = list(now)
        for i in range(len(now)):
            if i & bit:
                continue
            a, b = now[i], now[i | bit]
            # Lane c of the other operand is number lanes + c.
            low = [c if not c & bit else lanes + (c ^ bit) for c in range(lanes)]
            high = [(c | bit) if not c & bit else lanes + c for c in range(lanes)]
            for place, mask in ((i, low), (i | bit, high)):
                made[place] = f"%{prefix}{bit}_{place}"
                lines.append(f"{made[place]} = vector.shuffle {a}, {b} {listed(mask)} : {vector}, {vector}")
        now = made
    return now, lines
