"""Writes the wheel of a py_wheel target.

Debian's bazel-rules-python leaves out //tools:wheelmaker, which py_wheel runs; bazel_from_debian.py puts
this in its place. It takes the arguments of rules_python 0.22's py_wheel, except those of stamping, and
writes the same bytes for the same input.
"""

import argparse
import base64
import hashlib
import re
import sys
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

# The oldest time that a zip file can hold.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def escape(segment: str) -> str:
    """A distribution's name or version as it stands in file names (PEP 427)."""
    return re.sub(r"[^\w.+]+", "_", segment)


def path_in_wheel(path: str, strip_prefixes: Iterable[str]) -> str:
    """``path`` without the first of ``strip_prefixes`` that it starts with."""
    for prefix in strip_prefixes:
        if path.startswith(prefix):
            return path[len(prefix) :]
    return path


class WheelFile:
    """A wheel that is being written: a zip file with a RECORD of what is in it."""

    def __init__(self, archive: zipfile.ZipFile, dist_info: str) -> None:
        self._archive = archive
        self._record_name = dist_info + "/RECORD"
        self._record: list[str] = []

    def add(self, name: str, data: bytes) -> None:
        """Adds the file ``name`` and its line in RECORD."""
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self._record.append(f"{name},sha256={digest},{len(data)}")
        self._write(name, data)

    def finish(self) -> None:
        """Adds RECORD itself."""
        self._write(self._record_name, "\n".join([*self._record, self._record_name + ",,", ""]).encode())

    def _write(self, name: str, data: bytes) -> None:
        item = zipfile.ZipInfo(name, _EPOCH)
        item.compress_type = zipfile.ZIP_DEFLATED
        item.external_attr = 0o100644 << 16
        self._archive.writestr(item, data)


def metadata(base: str, version: str, description: Path | None) -> str:
    """METADATA: py_wheel's ``base``, which lacks version and description, with both."""
    text = base + f"Version: {version}\n"
    if description is None:
        return text
    kind = "text/markdown" if description.suffix == ".md" else "text/x-rst"
    return text + f"Description-Content-Type: {kind}\n\n" + description.read_text()


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command line of py_wheel; `dest;source` pairs are left as they come."""
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    for name in ("name", "version", "python_tag", "abi", "platform"):
        parser.add_argument("--" + name, required=True)
    for name in ("out", "metadata_file"):
        parser.add_argument("--" + name, required=True, type=Path)
    for name in ("name_file", "input_file_list", "entry_points_file", "description_file"):
        parser.add_argument("--" + name, type=Path)
    for name in ("strip_path_prefix", "input_file", "extra_distinfo_file"):
        parser.add_argument("--" + name, action="append", default=[])
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> None:
    """Writes the wheel that ``argv`` describes."""
    args = parse(argv)
    dist_info = f"{escape(args.name)}-{escape(args.version)}.dist-info"
    listed = args.input_file_list.read_text().splitlines() if args.input_file_list else []
    with zipfile.ZipFile(args.out, "w", zipfile.ZIP_DEFLATED) as archive:
        wheel = WheelFile(archive, dist_info)
        for pair in sorted({*args.input_file, *filter(None, listed)}):
            destination, source = pair.split(";")
            wheel.add(path_in_wheel(destination, args.strip_path_prefix), Path(source).read_bytes())
        wheel.add(
            dist_info + "/WHEEL",
            "Wheel-Version: 1.0\n"
            "Generator: wheelmaker\n"
            f"Root-Is-Purelib: {'true' if args.platform == 'any' else 'false'}\n"
            f"Tag: {args.python_tag}-{args.abi}-{args.platform}\n".encode(),
        )
        text = metadata(args.metadata_file.read_text(), args.version, args.description_file)
        wheel.add(dist_info + "/METADATA", text.encode())
        if args.entry_points_file:
            wheel.add(dist_info + "/entry_points.txt", args.entry_points_file.read_bytes())
        for pair in args.extra_distinfo_file:
            destination, source = pair.split(";")
            wheel.add(f"{dist_info}/{destination}", Path(source).read_bytes())
        wheel.finish()
    if args.name_file:
        args.name_file.write_text(args.out.name)


if __name__ == "__main__":
    main(sys.argv[1:])
