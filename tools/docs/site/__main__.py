"""Builds the documentation site: ``bazel build //docs:site``, or ``python -m tools.docs.site --output=DIR``."""

import sys
import tempfile
from pathlib import Path
from typing import Final

from absl import app, flags
from mkdocs.exceptions import Abort

from tools.docs.site._build import build_site, write_tar
from tools.docs.site._versions import version_of

ROOT: Final = Path(__file__).absolute().parents[3]
OUTPUT: Final = flags.DEFINE_string("output", None, "folder of the site; other versions in it stay")
TAR: Final = flags.DEFINE_string("tar", None, "file that the site is written to, as a tar")
VERSION: Final = flags.DEFINE_string("version", None, "name of the version; by default that of CHANGELOG.md")
SOURCE_URL: Final = flags.DEFINE_string(
    "source_url", None, "address of the repository's files, such as https://.../blob/main/"
)


def main(argv: list[str]) -> None:
    """Builds, and writes the tar if one is asked for."""
    del argv
    version = VERSION.value or version_of((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as scratch:
        try:
            site = build_site(ROOT, Path(OUTPUT.value or scratch), version, SOURCE_URL.value)
        except Abort as abort:
            sys.exit(f"{abort.format_message()} The lines above name the pages.")
        if TAR.value:
            write_tar(site, Path(TAR.value))
    print(TAR.value or site.pages)


if __name__ == "__main__":
    app.run(main)
