"""Numbers of bytes for a person."""


def size_text(size: int) -> str:
    """Bytes, MiB or GiB.

    >>> size_text(1234), size_text(3 << 19), size_text(5 << 29)
    ('1234 bytes', '1.50 MiB', '2.50 GiB')
    """
    if size < 10_000:
        return f"{size} bytes"
    return f"{size / 2**20:.2f} MiB" if size < 2**30 else f"{size / 2**30:.2f} GiB"
