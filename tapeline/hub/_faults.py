"""Errors of huggingface_hub and of its transport, in words of our own."""

import contextlib
import errno
from collections.abc import Iterator
from typing import Final

from huggingface_hub.errors import (
    DisabledRepoError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import get_token

from lang_core import TapelineError
from tapeline.hub._listing import HubSettings
from tapeline.hub._names import HubError, HubName
from tapeline.hub._transfer import Cancelled

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED: Final = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
# Library below huggingface_hub, whose name changes with its versions (httpx, httpx2): what it raises is of the network.
_TRANSPORT: Final = "httpx"
_LOG_IN: Final = "log in with `hf auth login`, or set HF_TOKEN"


class UnreachableError(HubError):
    """The hub could not be asked, so that the cache may answer in its place."""


@contextlib.contextmanager
def explained(name: HubName, settings: HubSettings) -> Iterator[None]:
    """Turns errors of a question or a download into ``HubError``.

    Raises:
        UnreachableError: the connection fails or times out, or the answer is a server error of the hub.
        HubError: anything else that the hub or the file system refuses.
    """
    try:
        yield
    except (TapelineError, Cancelled):
        raise
    except Exception as error:
        raise _explanation(_root(error), name, settings) from error


def _root(error: Exception) -> Exception:
    """Returns the reason of an error that says only that a file is not in the cache either."""
    cause = error.__cause__
    return cause if isinstance(error, LocalEntryNotFoundError) and isinstance(cause, Exception) else error


def _explanation(error: Exception, name: HubName, settings: HubSettings) -> HubError:
    place = f"{settings.shown} has"
    account = "that the present login can read" if get_token() else f"that is public ({_LOG_IN} for others)"
    match error:
        case GatedRepoError():
            page = f"{settings.shown}/{name.repository}"
            return HubError(f"{name.repository} is gated: accept its conditions at {page}, and {_LOG_IN}")
        case RevisionNotFoundError():
            return HubError(f"{name.repository} has no revision {name.revision!r}: name a branch, a tag or a commit")
        case RemoteEntryNotFoundError():
            return HubError(f"{name.repository} at {name.revision} lacks a file that it lists: try again")
        case DisabledRepoError():
            return HubError(f"{name.repository} is disabled by the hub: take another repository")
        case RepositoryNotFoundError():
            return HubError(f"{place} no repository {name.repository} {account}: check the name")
        case HfHubHTTPError():
            return _of_status(error.response.status_code, error, name, settings)
        case OfflineModeIsEnabled():
            return UnreachableError("the hub is not asked, for HF_HUB_OFFLINE is set")
        case HFValidationError():
            return HubError(f"{name.repository} is no name that a repository can have: check it")
        case _ if type(error).__module__.startswith(_TRANSPORT):
            return UnreachableError(
                f"{settings.shown} cannot be reached ({_told(error)}): check the connection, a proxy's settings and "
                "HF_ENDPOINT"
            )
        case OSError():
            return _of_system(error, name, settings)
        case _:
            return HubError(f"{name.repository} could not be fetched ({_told(error)})")


def _of_status(status: int, error: HfHubHTTPError, name: HubName, settings: HubSettings) -> HubError:
    if status == 401:
        return HubError(f"{settings.shown} does not accept the login (401) for {name.repository}: {_LOG_IN} anew")
    if status == 403:
        return HubError(f"{settings.shown} forbids {name.repository} to this login (403): {_LOG_IN} with its rights")
    if status == 404:
        return HubError(f"{settings.shown} has no {name.repository} at {name.revision} (404): check the name")
    if status == 429:
        after = error.response.headers.get("Retry-After", "")
        when = f"in {after} s" if after.isdigit() else "later"
        return UnreachableError(
            f"{settings.shown} takes no more questions for now (429): try again {when}, or {_LOG_IN}"
        )
    kind = UnreachableError if status >= 500 else HubError
    return kind(f"{settings.shown} answers {name.repository} with {status}: try again later, or check HF_ENDPOINT")


def _of_system(error: OSError, name: HubName, settings: HubSettings) -> HubError:
    if error.errno in _FULL:
        return HubError(
            f"the disk of {settings.cache} is full ({error.strerror}): free some, or set HF_HUB_CACHE to another"
        )
    if error.errno in _REFUSED:
        return HubError(
            f"the hub's cache {settings.cache} cannot be written ({error.strerror}): set HF_HUB_CACHE to another"
        )
    if error.errno is None:  # huggingface_hub's own: a body of the wrong length, an answer without its headers
        return HubError(f"the download of {name.repository} is broken ({_told(error)}): try again")
    return UnreachableError(f"{settings.shown} cannot be reached ({error.strerror}): check the connection")


def _told(error: BaseException) -> str:
    """Returns the first line of an error, or its name if the text is empty."""
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:200]
