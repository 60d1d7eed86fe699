"""Builds the site by MkDocs, into the folder of a version."""

import os
import tarfile
from pathlib import Path
from typing import Final, NamedTuple

from mkdocs.commands.build import build
from mkdocs.config import load_config

from tools.docs.site._hooks import SOURCE_URL
from tools.docs.site._versions import publish

_EPOCH: Final = "0"  # two builds of one source are the same bytes


class Site(NamedTuple):
    """A built site.

    Attributes:
        folder: with the folders of versions.
        version: that was built.
        pages: folder of its pages.
    """

    folder: Path
    version: str
    pages: Path


def build_site(root: Path, folder: Path, version: str, source_url: str | None = None) -> Site:
    """Builds the site of a source tree.

    Args:
        root: of the tree, with mkdocs.yml.
        folder: of the output; other versions in it stay.
        version: name of the folder of the pages.
        source_url: address of the repository's files, which ends in a slash.

    Raises:
        mkdocs.exceptions.Abort: a link, an anchor or a page's place is wrong; the log names it.
    """
    os.environ["NO_MKDOCS_2_WARNING"] = "1"
    os.environ["SOURCE_DATE_EPOCH"] = _EPOCH
    if source_url:
        os.environ[SOURCE_URL] = source_url
    pages = folder / version
    build(load_config(str(root / "mkdocs.yml"), site_dir=str(pages.absolute())))
    publish(folder, version)
    return Site(folder, version, pages)


def write_tar(site: Site, file: Path) -> None:
    """Writes a site as a tar file without times and owners."""
    with tarfile.open(file, "w") as archive:
        for path in sorted(site.folder.rglob("*")):
            if path.is_file():
                archive.add(path, path.relative_to(site.folder).as_posix(), filter=_plain)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    return member
