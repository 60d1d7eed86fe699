"""Pages of caches: which of them the rows of a server have, on the host.

It sees numbers alone: no model, no device, no tokens. A pool hands pages to rows as their sequences grow, lets rows
with the same beginning share whole pages, and says what has to be copied before a row may write.
"""

from tapeline.paging._pool import PageCopy, PagePool, PagesError

__all__ = ["PageCopy", "PagePool", "PagesError"]
