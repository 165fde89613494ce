"""The report of a bug in vcdl: traceback and versions in a file, without passwords."""

import importlib.metadata
import platform
import sys
import tempfile
import traceback
from pathlib import Path

from vcdl.errors import without_passwords

_PACKAGES = "keras tensorflow-cpu tensorflow jax torch numpy h5py pydantic click rich"


def write_bug_report(error: BaseException) -> str:
    """Write the report to a new file in the temporary folder; returns its path, or says that there is none."""
    text = "\n".join(
        [
            "arguments: " + " ".join(map(without_passwords, sys.argv[1:])),
            f"python {platform.python_version()} on {platform.platform()}",
            *_versions(),
            "",
            *map(without_passwords, traceback.format_exception(error)),
        ]
    )
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="vcdl-bug-", suffix=".txt", delete=False, encoding="utf-8", errors="replace"
        ) as file:
            file.write(text)
    except OSError as unwritable:
        return f"the command you gave (no report could be written: {unwritable.strerror})"
    return str(Path(file.name))


def _versions() -> list[str]:
    versions = []
    for package in ("vcdl", *_PACKAGES.split()):
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
