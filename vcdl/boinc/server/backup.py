"""Back up a project while jobs run: links of its files, then the database, then the runs.

This order makes a restore possible, because the database is older than the runs. A result that the restored database
reports as new is already in the journal, and so is applied only once. A workunit that the database lacks is created
again from the journal. See decision 082.
"""

import shlex
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from vcdl.boinc.server import system
from vcdl.boinc.server.cut import CUT
from vcdl.boinc.server.settings import ETC, LETS_ENCRYPT, ServerSettings, is_of_age
from vcdl.boinc.server.vault import MANIFEST, BackupManifest, Vault, backup_name, expired_backups, vault_at
from vcdl.files.atomic import file_sha256
from vcdl.files.children import python_command
from vcdl.files.lock import locked
from vcdl.files.version import __version__

WORK = Path("/var/lib/vcdl")
_DUMP = ("mariadb-dump", "--single-transaction", "--quick", "--skip-lock-tables", "--default-character-set=utf8mb4")
_GPG = ("gpg", "--batch", "--trust-model", "always", "--encrypt")
_PROJECT_FILES = (
    "apps",
    "templates",
    "html/project",
    "html/ops/.htpasswd",
    "html/stats",
    "html/user_profile",
    "archives",
)
"""Files that make_project does not create. A backup contains them, all XML files, and vcdl/ without the runs."""


def back_up(settings: ServerSettings, place: str, recipient: str = "") -> Iterator[str]:
    """Make a backup of a project at a place, and delete expired ones, yielding lines while the caller iterates.

    It waits for another backup of the project, for example the nightly one.

    Args:
        settings: The server's settings.
        place: A folder or s3://BUCKET/PREFIX.
        recipient: Comma-separated recipients of age or gpg; empty: the backup is not encrypted.

    Raises:
        ServerError: A step failed.
    """
    vault, folder = vault_at(place), WORK / "backup" / settings.name
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(folder.with_name(f"{settings.name}.lock")):
        yield f"{_make(settings, vault, folder, recipient)}, in {place}"
    # Delete old ones after the new one is complete, so that a place without space for it keeps them.
    for old in expired_backups([each for each in vault.names() if each.rpartition("-")[0] == settings.name]):
        vault.remove(old)
        yield f"removed {old}"


def _make(settings: ServerSettings, vault: Vault, folder: Path, recipient: str) -> str:
    """Make a backup in a local folder, store it in the vault, delete the folder, and return a line about the backup."""
    while (name := backup_name(settings.name, datetime.now(UTC))) in vault.names():
        time.sleep(0.1)  # the name has seconds, and a small project takes less
    shutil.rmtree(folder, ignore_errors=True)  # of a killed backup
    folder.mkdir(mode=0o700)
    folder.chmod(0o700)
    project = settings.project
    try:
        # Back up files, database and runs in this order (decision 082). In another one the database could report a
        # result as assimilated whose upload is deleted and whose journal row is missing.
        _cut(settings, "staged")
        _pipe([*_DUMP, settings.name], folder / "database.sql.gz", recipient)
        _cut(settings, "runs")
        (project / CUT / "vcdl/runs").mkdir(parents=True, exist_ok=True)
        # Count in the cut, because the live journals continue to grow.
        runs = _runs(project / CUT)
        _pack(folder / "runs.tar.gz", project / CUT, ["vcdl/runs"], recipient)
        _pack(folder / "staged.tar.gz", project / CUT, ["download", "upload"], recipient)
        _pack(folder / "keys.tar.gz", project, ["keys"], recipient)
        _pack(folder / "project.tar.gz", project, _project_files(project), recipient)
        _pack(folder / "machine.tar.gz", Path("/"), _machine_files(settings), recipient)
        digests = {path.name: file_sha256(path) for path in sorted(folder.iterdir())}
        made = datetime.now(UTC).isoformat(timespec="seconds")
        # Write the manifest last: a vault lists only backups with a manifest.
        (folder / MANIFEST).write_text(BackupManifest(settings.name, made, __version__, digests, runs).to_json())
        size = sum(path.stat().st_size for path in folder.iterdir())
        vault.put(folder, name)
        return f"{name}: {size / 1e6:.1f} MB, {len(runs)} jobs"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(project / CUT, ignore_errors=True)


def last_event(journal: Path) -> int:
    """Return the number of a journal's last event.

    Raises:
        sqlite3.Error: The journal cannot be read.
    """
    with closing(sqlite3.connect(f"{journal.as_uri()}?mode=ro", uri=True)) as connection:
        return int(connection.execute("SELECT COALESCE(MAX(id), 0) FROM events").fetchone()[0])


def _cut(settings: ServerSettings, what: str) -> None:
    command = python_command("vcdl.boinc.server.cut", settings.project, what, python=settings.python)
    system.run(*command, user=settings.user)


def _runs(cut: Path) -> dict[str, int]:
    return {path.parent.name: last_event(path) for path in sorted((cut / "vcdl/runs").glob("*/journal.db"))}


def _project_files(project: Path) -> list[str]:
    found = [path.name for path in sorted(project.glob("*.xml")) if not path.name.startswith("run_state")]
    found += [name for name in _PROJECT_FILES if (project / name).exists()]
    found += ["db_revision"] if (project / "db_revision").exists() else []
    # Leave out sockets, which tar refuses; the checker creates its socket again.
    ours = [path for path in sorted((project / "vcdl").glob("*")) if path.name not in ("runs", CUT.name)]
    return found + [str(path.relative_to(project)) for path in ours if not path.is_socket()]


def _machine_files(settings: ServerSettings) -> list[str]:
    paths = [settings.file, ETC / f"{settings.name}.operator"]
    if settings.tls != LETS_ENCRYPT:  # a new machine orders another one
        paths += [path for path in settings.certificate if settings.tls and path.is_file()]
    return [str(path.relative_to("/")) for path in paths if path.exists()]


def _pack(target: Path, folder: Path, names: list[str], recipient: str) -> None:
    _pipe(["tar", "--create", "--numeric-owner", "--directory", str(folder), *names], target, recipient)


def _pipe(command: list[str], target: Path, recipient: str) -> None:
    """Write the output of a command to a file, compressed, and encrypted if there is a recipient."""
    chain = [command, ["gzip", "--fast"]]
    if recipient:
        target = target.with_name(f"{target.name}.{'age' if is_of_age(recipient) else 'gpg'}")
        chain.append(_encrypting(recipient))
    # Create it with its mode before anything is written: the database dump has accounts and passwords.
    target.touch(0o600)
    pipe(chain, out=target)


def _encrypting(recipients: str) -> list[str]:
    """Return the command that encrypts for these recipients, each of whom can decrypt the backup alone."""
    each = [word for key in recipients.split(",") for word in ("--recipient", key)]
    return ["age", "--encrypt", *each] if is_of_age(recipients) else [*_GPG, *each]


def pipe(chain: list[list[str]], out: Path | None = None) -> None:
    """Run commands as a pipeline, the last one into a file.

    Raises:
        ServerError: Any of them fails.
    """
    words = " | ".join(shlex.join(command) for command in chain)
    # Use pipefail; otherwise a failed dump would count as a backup because gzip succeeded.
    system.run("bash", "-o", "pipefail", "-c", f"{words} > {shlex.quote(str(out))}" if out else words)
