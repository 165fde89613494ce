"""Restore a backup on a new machine, or rehearse that next to a live project.

A restore is an installation with additional steps in the middle: it restores the project's files and its database
before the web server is started. A new, empty project would tell a client to wait for an hour.
"""

import re
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from vcdl.boinc.grid.environment import read_environment
from vcdl.boinc.grid.project_folder import this_machine
from vcdl.boinc.project import files
from vcdl.boinc.server import system
from vcdl.boinc.server.backup import WORK, last_event, pipe
from vcdl.boinc.server.machine_steps import redis_password, set_redis_password
from vcdl.boinc.server.project_steps import install_steps, is_made, set_database_password
from vcdl.boinc.server.settings import ServerSettings, settings_file
from vcdl.boinc.server.steps import ServerStep
from vcdl.boinc.server.vault import MANIFEST, BackupManifest, Vault
from vcdl.errors import ServerError
from vcdl.files.atomic import file_sha256
from vcdl.files.children import python_command
from vcdl.stores.settings import PASSWORD_VARIABLE

_ARCHIVES = ("keys", "project", "staged", "runs")
"""Archives to unpack into the project's folder; each later one may replace files of the earlier ones."""

_EXTRACT = ["tar", "--extract", "--preserve-permissions", "--same-owner", "--numeric-owner", "--directory"]


@dataclass(frozen=True)
class Fetched:
    """A backup that was fetched to this machine and verified."""

    folder: Path
    manifest: BackupManifest
    identity: Path | None
    """The file with a private key of age; None for gpg, which has its own keyring."""

    def reader(self, name: str) -> list[list[str]]:
        """Return the pipeline of commands that prints a file of the backup, decrypted and unpacked.

        Raises ServerError.
        """
        found = [path for path in self.folder.iterdir() if path.name.startswith(f"{name}.")]
        if not found:
            raise ServerError(f"the backup lacks its {name}: restore another one with --backup NAME")
        path = found[0]
        if path.suffix == ".gpg":
            return [["gpg", "--batch", "--quiet", "--decrypt", str(path)], ["gunzip"]]
        if path.suffix == ".age":
            if self.identity is None:
                raise ServerError("the backup is encrypted with age: give the key's file with --identity")
            return [["age", "--decrypt", "--identity", str(self.identity), str(path)], ["gunzip"]]
        return [["gunzip", "--stdout", str(path)]]

    def unpack(self, name: str, target: Path) -> None:
        """Unpack an archive of the backup into a folder.

        Raises:
            ServerError: It is missing or damaged, or cannot be decrypted.
        """
        into = [*_EXTRACT, str(target)]
        pipe([*self.reader(name), into])


def fetch(vault: Vault, name: str, folder: Path, identity: Path | None) -> Fetched:
    """Download a backup into a folder unless it is there already, and verify its files against the manifest.

    Raises:
        ServerError: The backup is missing or damaged.
    """
    if not (folder / MANIFEST).exists():
        shutil.rmtree(folder, ignore_errors=True)
        half = folder.with_suffix(".half")
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(parents=True, mode=0o700)
        half.parent.chmod(0o700)
        vault.get(name, half)
        # Rename the folder when it is complete, so that a complete backup of gigabytes is not fetched again after a
        # kill.
        half.rename(folder)
    manifest = BackupManifest.from_json((folder / MANIFEST).read_text(), name)
    damaged = [
        each
        for each, digest in manifest.files.items()
        if not (folder / each).is_file() or file_sha256(folder / each) != digest
    ]
    if damaged:
        shutil.rmtree(folder, ignore_errors=True)
        raise ServerError(
            f"the backup {name} is damaged ({', '.join(damaged)}): restore another one with --backup NAME"
        )
    return Fetched(folder, manifest, identity)


@contextmanager
def fetch_temporarily(vault: Vault, name: str, identity: Path | None) -> Iterator[Fetched]:
    """Yield a fetched backup, which is removed from this machine at the end of the block.

    Raises:
        ServerError: It cannot be fetched.
    """
    WORK.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rehearsal-", dir=WORK) as folder:
        yield fetch(vault, name, Path(folder) / name, identity)


def read_backup_settings(fetched: Fetched, boinc: Path, python: Path) -> ServerSettings:
    """Return the settings of the server that made a backup, adapted to this machine.

    Args:
        fetched: The backup.
        boinc: BOINC's built server on this machine.
        python: The Python of this machine's VCDL.

    Raises:
        ServerError: The backup contains no settings, or damaged ones.
    """
    name = fetched.manifest.project
    with tempfile.TemporaryDirectory(prefix="vcdl-") as folder:
        fetched.unpack("machine", Path(folder))
        text = files.read(Path(folder) / settings_file(name).relative_to("/"))
    if text is None:
        raise ServerError(f"the backup of {name} has no settings: install first, with the options of that server")
    return replace(ServerSettings.from_json(text, name), boinc=boinc, python=python, python_before=None)


def restore_steps(settings: ServerSettings, fetched: Fetched) -> Iterator[ServerStep]:
    """Yield all steps of a restore.

    Raises:
        ServerError: A project that this restore has not made is in its place.
    """
    mark = _mark(settings)
    # The mark distinguishes a restore to continue from a project that must not be overwritten.
    if is_made(settings) and not mark.exists():
        raise ServerError(
            f"{settings.project} is there already: a restore would replace it. Take another machine, or remove it "
            f"first (`vcdl server uninstall --name {settings.name} --delete-project`)"
        )
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
    yield from install_steps(settings, between=_steps(settings, fetched))
    yield ServerStep("restored", lambda: not mark.exists(), lambda: _forget(settings, fetched))


def rehearse(fetched: Fetched) -> Iterator[str]:
    """Rehearse a restore: restore a backup next to everything else, check it, and remove it.

    Raises:
        ServerError: The restored project does not work.
    """
    manifest = fetched.manifest
    # Use another database: the rehearsal may run next to the live project.
    database = f"{manifest.project}_rehearsal"
    WORK.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rehearsal-", dir=WORK) as name:
        folder = Path(name)
        for archive in ("machine", *_ARCHIVES):
            fetched.unpack(archive, folder)
        yield f"files: all {len(manifest.files)} are what the manifest says, and can be read"
        kept = [folder / "keys" / key for key in ("upload_private", "upload_public", "code_sign_public")]
        if missing := [path.name for path in (*kept, folder / "config.xml") if not path.is_file()]:
            raise ServerError(
                f"the backup lacks {', '.join(missing)}: clients would refuse the restored project; use an older "
                "backup, or make a new one with `vcdl server backup`"
            )
        yield "keys and config.xml: there"
        try:
            _load_database(fetched, database)
            counted = system.sql("SELECT COUNT(*) FROM host; SELECT COUNT(*) FROM workunit", database).split()
        finally:
            system.sql(f"DROP DATABASE IF EXISTS `{database}`")
        yield f"database: comes up, with {counted[0]} hosts and {counted[1]} workunits"
        for job, last in manifest.runs.items():
            yield _check_run(folder / "vcdl/runs" / job, last)


def _steps(settings: ServerSettings, fetched: Fetched) -> Iterator[ServerStep]:
    project = settings.project
    yield _once(settings, "files", "files of the backup", lambda: _put_files(settings, fetched))
    yield _once(settings, "database", "database of the backup", lambda: _load_database(fetched, settings.name))
    yield ServerStep("config.xml names this machine", lambda: _names_machine(project), lambda: _name_machine(settings))
    yield _once(settings, "password", "database password of config.xml", lambda: set_database_password(settings))
    if settings.redis:
        kept = read_environment(project).get(PASSWORD_VARIABLE, "") if project.exists() else ""
        yield ServerStep(
            "Redis has the backup's password",
            lambda: redis_password() == kept or not kept,
            lambda: set_redis_password(kept),
        )
    yield _once(settings, "cancelled", "database follows the journals", lambda: _reconcile(settings, fetched))


def _once(settings: ServerSettings, name: str, what: str, do: Callable[[], None]) -> ServerStep:
    """Return a step that is done once: it writes a mark at its end, since nothing else shows that it was done."""
    mark = _mark(settings).with_suffix(f".{name}")

    def make_so() -> None:
        do()
        mark.touch()

    return ServerStep(what, mark.exists, make_so)


def _mark(settings: ServerSettings) -> Path:
    return WORK / "restore" / f"{settings.name}.begun"


def _forget(settings: ServerSettings, fetched: Fetched) -> None:
    shutil.rmtree(fetched.folder, ignore_errors=True)
    for mark in _mark(settings).parent.glob(f"{settings.name}.*"):
        mark.unlink(missing_ok=True)


def _put_files(settings: ServerSettings, fetched: Fetched) -> None:
    """Unpack the backup over the new project, and give all files to the project's user."""
    project = settings.project
    for archive in _ARCHIVES:
        fetched.unpack(archive, project)
    system.run("chown", "--recursive", "--no-dereference", f"{settings.user}:{settings.user}", project)
    upload = project / "upload"
    for number in range(1024):  # file_deleter treats a missing one as an error
        (upload / f"{number:x}").mkdir(exist_ok=True)
    for folder in (upload, *upload.iterdir()):
        if folder.is_dir():
            system.own(folder, settings.user, 0o2770)
    # Unpack this last, and then replace its settings, which name the old machine's Python and BOINC.
    fetched.unpack("machine", Path("/"))
    files.write(settings.file, settings.to_json())


def _load_database(fetched: Fetched, database: str) -> None:
    """Load the dump of the database, after dropping the database of a killed restore.

    Raises:
        ServerError: MariaDB refuses it.
    """
    system.sql(
        f"DROP DATABASE IF EXISTS `{database}`; "
        f"CREATE DATABASE `{database}` CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci"
    )
    pipe([*fetched.reader("database"), ["mariadb", "--database", database]])


def _names_machine(project: Path) -> bool:
    text = (files.read(project / "config.xml") or b"").decode()
    return bool(text) and text == _naming_machine(text) and (project / f"log_{this_machine()}").is_dir()


def _name_machine(settings: ServerSettings) -> None:
    path, log = settings.project / "config.xml", settings.project / f"log_{this_machine()}"
    files.write(path, _naming_machine(path.read_text()).encode())
    log.mkdir(exist_ok=True)
    system.own(log, settings.user, 0o2770)
    system.own(path, settings.user, 0o640)


def _naming_machine(text: str) -> str:
    """Return the text of config.xml with this machine as its host and in the name of its log folder."""
    found = re.search(r"<host>\s*([^<\s]*)\s*</host>", text)
    if found is None:
        raise ServerError("the config.xml of the backup has no <host>: restore another one with --backup NAME")
    logs = re.compile(rf"log_{re.escape(found[1])}\b")
    return logs.sub(f"log_{this_machine()}", text.replace(found[0], f"<host>{this_machine()}</host>", 1))


def _reconcile(settings: ServerSettings, fetched: Fetched) -> None:
    ago = datetime.now(UTC) - datetime.fromisoformat(fetched.manifest.made)
    seconds = str(round(ago.total_seconds()))
    command = python_command("vcdl.boinc.server.reconcile", settings.project, seconds, python=settings.python)
    system.run(*command, user=settings.user)


def _check_run(run: Path, last: int) -> str:
    """Check that a restored run can continue, and return a line about it.

    Raises:
        ServerError: Its journal is damaged or incomplete, or the run cannot be opened.
    """
    try:
        with closing(sqlite3.connect(run / "journal.db")) as journal:
            said = journal.execute("PRAGMA integrity_check").fetchone()[0]
        events = last_event(run / "journal.db")
    except sqlite3.Error as error:
        raise ServerError(f"{run.name}: its journal cannot be read: {error}") from None
    if (said, events) != ("ok", last):
        raise ServerError(f"{run.name}: its journal is damaged ({said}), or has {events} events in the place of {last}")
    done = subprocess.run(python_command("vcdl", "status", run, "--json"), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServerError(f"{run.name} cannot be opened: {' '.join(done.stderr.split())[-300:]}")
    return f"job {run.name}: opens, with {events} events"
