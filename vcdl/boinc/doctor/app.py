"""Check our app and its versions in the database and in download/, with their signatures."""

import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vcdl.boinc.doctor.finding import Finding, failed, ok, warning
from vcdl.boinc.doctor.installation import Installation
from vcdl.boinc.grid.project_folder import APP
from vcdl.boinc.project import files, rows
from vcdl.boinc.project.app_version import PublishedVersion
from vcdl.boinc.project.tools import run_tool
from vcdl.errors import GridError

_VERIFIER = "crypt_prog"


@dataclass(frozen=True)
class _File:
    name: str
    size_bytes: int
    signature: str


def check_app(installation: Installation) -> Iterator[Finding]:
    """Check that the database has our app with the required settings."""
    row = rows.app_row(installation.database)
    if row is None:
        yield failed(f"the database has no app {APP}", installation.install_command)
    elif row.settings != rows.APP_SETTINGS:
        wrong = ", ".join(
            f"{column} is {value}" for column, value in row.settings.items() if value != rows.APP_SETTINGS[column]
        )
        yield failed(f"{APP}: {wrong}", installation.install_command)
    else:
        yield ok(f"{APP} is in the database")


def check_app_version(installation: Installation) -> Iterator[Finding]:
    """Check the app versions offered to clients: files unchanged, with valid signatures."""
    row = rows.app_row(installation.database)
    published = rows.published_versions(installation.database, row) if row else []
    # Leave out deprecated versions, which only unfinished tasks need: their files may be missing.
    offered = [version for version in published if version.is_ours and not version.deprecated]
    if not offered:
        yield failed("none is offered to clients", installation.install_command)
    for version in offered:
        wrong = [reason for file in _files(version) if (reason := _wrong(installation, file))]
        if wrong:
            yield failed(
                f"{version.label}: {'; '.join(wrong)}",
                f"{installation.install_command}, which lays the files out again, and publishes another version "
                "after a renewal of the key",
            )
        else:
            yield ok(f"{version.label}, its files are unchanged and signed")


def _files(version: PublishedVersion) -> list[_File]:
    try:
        root = ElementTree.fromstring(f"<versions>{version.xml}</versions>")  # a fragment with several roots
        return [
            _File(
                info.findtext("name", "").strip(),
                # BOINC writes sizes as decimal fractions.
                int(float(info.findtext("nbytes", "0"))),
                info.findtext("file_signature", "").strip(),
            )
            for info in root.iterfind("file_info")
        ]
    except (ElementTree.ParseError, ValueError) as error:
        raise GridError(f"app version {version.label} has an unreadable description ({error}): deprecate it") from None


def _wrong(installation: Installation, file: _File) -> str:
    path = installation.project.download_dir / file.name
    # Compare sizes before signatures, to distinguish a truncated file from one that was changed or signed by another
    # key.
    content = files.read(path)
    if content is None:
        return f"{file.name} is missing"
    if len(content) != file.size_bytes:
        return f"{file.name} has {len(content)} bytes instead of {file.size_bytes}"
    if not (installation.project.bin / _VERIFIER).is_file():
        return f"{file.name} cannot be verified: bin/{_VERIFIER} is missing"
    with tempfile.TemporaryDirectory(prefix="vcdl-doctor-") as folder:
        signature = Path(folder) / "signature"
        signature.write_text(f"{file.signature}\n")
        try:
            # Verify with BOINC's own program, as its client does, because it defines what a valid signature is.
            run_tool(
                installation.path,
                _VERIFIER,
                "-verify",
                str(path),
                str(signature),
                str(installation.config.key_dir / "code_sign_public"),
            )
        except GridError:
            return f"{file.name} was changed, or was not signed with this project's key"
    return ""


def check_signing_key(installation: Installation) -> Iterator[Finding]:
    """Check that the private code signing key is elsewhere: its owner can run anything on volunteers' computers."""
    key = installation.config.key_dir / "code_sign_private"
    if key.is_file():
        yield warning(
            f"{installation.display_path(key)} is on this machine",
            "for a public project keep it on a machine without network: install says then what to sign there",
        )
    else:
        yield ok("not on this machine")


CHECKS = (check_app, check_app_version, check_signing_key)
