"""What ``--dump``, ``--dump_level`` and ``--dump_limit`` of tools:run and tools:generate ask for."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from lang_core import InputError
from run_iree.dump import LEVELS, Dumper, DumpLimits
from tapeline import cli
from tapeline.bundle import Bundle, dumping

_NO_LIMIT: Final = "none"


@contextmanager
def dumper_of(
    bundle: Bundle, device: str, directory: str | None, level: int | None, limit: str
) -> Iterator[Dumper | None]:
    """What a session of the bundle is to be opened with; None where nothing is to be dumped.

    Says at the end what was dumped, and what was dropped.

    Args:
        bundle: what is run.
        device: where.
        directory: of the dump, as the user wrote it; None where there is to be none.
        level: of the dump; 1 where None, and 0 is none.
        limit: ``TENSOR`` or ``TENSOR,TOTAL``.

    Raises:
        InputError: the flags contradict each other or the bundle, or the directory cannot be written.
    """
    if directory is None and level:
        raise InputError(f"dump_level={level}: name the directory of the dump with `dump`")
    limits = _limits(limit)
    if directory is None or level == 0:
        yield None
        return
    path = cli.user_path(directory)
    with dumping(bundle, path, device=device, level=LEVELS[0] if level is None else level, limits=limits) as dumper:
        yield dumper
    cli.say(f"dump: {dumper.totals.text()} in {path}")


def _limits(text: str) -> DumpLimits:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 2 or not all(parts):
        raise InputError(f"dump_limit={text}: expected TENSOR or TENSOR,TOTAL, such as 64MiB,4GiB; none is no limit")
    sizes = [None if part == _NO_LIMIT else cli.parse_size("dump_limit", part) for part in parts]
    return DumpLimits(*sizes)
