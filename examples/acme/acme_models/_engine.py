"""The engine ``acme-numpy``: the eager engine, with a count of calls by entry point.

A session has the methods of ``runtime.Session``, and need not derive from another one.
"""

from collections import Counter

from tapeline.backends import EagerSession, Engine, register_engine


class NumPySession(EagerSession):
    """Session that counts the calls of each entry point."""

    target = "acme-numpy"

    def __init__(self, bundle, device):
        super().__init__(bundle, device)
        self.calls = Counter()

    def run(self, name, values):
        """Counts a call and makes it."""
        self.calls[name] += 1
        return super().run(name, values)


def _open(bundle, place):
    return NumPySession(bundle, place.name)


ACME_NUMPY = register_engine(Engine("acme-numpy", ("host",), _open))
