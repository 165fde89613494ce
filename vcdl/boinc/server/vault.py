"""Store and fetch backups in a folder or in a bucket of S3.

A backup is a folder of files, whose manifest is written last.
"""

import json
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from vcdl.errors import ServerError

MANIFEST = "manifest.json"
_FORMAT = 1
"""Format number of a backup's manifest, so that a later version can refuse or convert it."""
_STAMP = "%Y%m%dT%H%M%SZ"
_NAME = re.compile(r"(?P<project>[a-z0-9_]+)-(?P<stamp>\d{8}T\d{6}Z)")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""Names that cannot lead out of a folder, and are safe in SQL statements."""
_NEWEST, _DAYS, _WEEKS, _MONTHS = 3, 7, 5, 12


@dataclass(frozen=True)
class BackupManifest:
    """The content of a backup: its files with their digests, and the project's runs."""

    project: str
    made: str
    vcdl: str
    files: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the stored files, by name."""
    runs: dict[str, int] = field(default_factory=dict)
    """The last event of each run's journal."""
    format: int = _FORMAT

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str) -> "BackupManifest":
        """Decode a manifest.

        Args:
            text: The manifest's text.
            where: Its place, for messages.

        Raises:
            ServerError: It is damaged, or a name in it is not safe.
        """
        try:
            manifest = cls(**json.loads(text))
            # Refuse unsafe names: others may be able to write to the place, and the manifest's names become paths and
            # SQL.
            if not all(map(_PLAIN.fullmatch, (manifest.project, *manifest.files, *manifest.runs))):
                raise ValueError("it contains an unsafe name")
        except (ValueError, TypeError, RecursionError) as error:
            raise ServerError(
                f"the {MANIFEST} of {where} cannot be read ({error}): choose another backup with --backup NAME"
            ) from None
        if manifest.format != _FORMAT:
            raise ServerError(f"{where} is a backup of format {manifest.format}: restore it with the vcdl that made it")
        return manifest


def backup_name(project: str, now: datetime) -> str:
    return f"{project}-{now.astimezone(UTC).strftime(_STAMP)}"


def expired_backups(names: Collection[str]) -> list[str]:
    """Return the backups that the retention policy deletes, newest first.

    The policy keeps the newest three, and the newest of each of the last 7 days, 5 weeks and 12 months that have a
    backup. Names that are not those of backups are never returned.
    """
    times = _times_of(names)
    ordered = list(reversed(times))
    kept = set(ordered[:_NEWEST])
    for form, count in (("%Y-%m-%d", _DAYS), ("%G-%V", _WEEKS), ("%Y-%m", _MONTHS)):
        newest: dict[str, str] = {}
        for name in ordered:
            newest.setdefault(times[name].strftime(form), name)
        kept.update(list(newest.values())[:count])
    return [name for name in ordered if name not in kept]


def _times_of(names: Iterable[str]) -> dict[str, datetime]:
    """Return the times of those names that are of backups, oldest first."""
    times = {}
    for name in filter(_NAME.fullmatch, names):
        with suppress(ValueError):  # others may write there, even a name with a 13th month
            times[name] = datetime.strptime(name.rpartition("-")[2], _STAMP).replace(tzinfo=UTC)
    return dict(sorted(times.items(), key=lambda item: item[1]))


class Vault(ABC):
    """A place that stores backups: a folder, or a bucket. Calls raise ServerError."""

    @abstractmethod
    def put(self, folder: Path, name: str) -> None:
        """Store a backup. Its manifest becomes visible last, so that a half-written backup is never listed."""

    @abstractmethod
    def get(self, name: str, folder: Path) -> None:
        """Fetch a backup into an empty folder."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a backup, its manifest first."""

    @abstractmethod
    def _with_manifest(self) -> Iterable[str]:
        """Return the names of all folders with a manifest."""

    def names(self) -> list[str]:
        """Return the names of the complete backups of all projects, oldest first."""
        return list(_times_of(self._with_manifest()))

    def newest(self, project: str | None = None) -> str:
        """Return the name of the newest complete backup, of one project if a name is given.

        Raises:
            ServerError: There is none.
        """
        names = [name for name in self.names() if project is None or name.rpartition("-")[0] == project]
        if not names:
            raise ServerError("there is no whole backup: `vcdl server backup --to PLACE` makes one")
        return names[-1]


class FolderVault(Vault):
    """A folder of this machine, or of one that is mounted here."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, folder: Path, name: str) -> None:
        target, half = self._folder / name, self._folder / f".{name}.tmp"
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Delete leftovers of killed backups: a backup runs under a lock, so no temporary folder of this project is
            # in use.
            for killed in self._folder.glob(f".{name.rpartition('-')[0]}-*.tmp"):
                shutil.rmtree(killed)
            half.mkdir(mode=0o700)
            shutil.copytree(folder, half, dirs_exist_ok=True)
            # One rename makes manifest and files visible together.
            half.rename(target)
        except OSError as error:
            shutil.rmtree(half, ignore_errors=True)
            raise ServerError(f"the backup cannot be stored in {self._folder}: {error.strerror or error}") from None

    def get(self, name: str, folder: Path) -> None:
        try:
            shutil.copytree(self._folder / name, folder, dirs_exist_ok=True)
        except OSError as error:
            raise ServerError(f"{self._folder / name} cannot be read: {error.strerror or error}") from None

    def remove(self, name: str) -> None:
        # Without its manifest a half-removed backup is not listed.
        (self._folder / name / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(self._folder / name, ignore_errors=True)

    def _with_manifest(self) -> Iterable[str]:
        return [path.parent.name for path in self._folder.glob(f"*/{MANIFEST}")]


class S3Vault(Vault):
    """A prefix of a bucket, by boto3 with the machine's own credentials."""

    def __init__(self, bucket: str, prefix: str) -> None:
        import boto3

        self._bucket = boto3.resource("s3").Bucket(bucket)
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def put(self, folder: Path, name: str) -> None:
        with self._errors():
            # Upload the manifest last, because a bucket has no rename.
            for path in sorted(folder.iterdir(), key=lambda path: path.name == MANIFEST):
                self._bucket.upload_file(str(path), f"{self._prefix}{name}/{path.name}")

    def get(self, name: str, folder: Path) -> None:
        with self._errors():
            for each in self._bucket.objects.filter(Prefix=f"{self._prefix}{name}/"):
                self._bucket.download_file(each.key, str(folder / each.key.rpartition("/")[2]))

    def remove(self, name: str) -> None:
        with self._errors():
            self._bucket.Object(f"{self._prefix}{name}/{MANIFEST}").delete()
            self._bucket.objects.filter(Prefix=f"{self._prefix}{name}/").delete()

    def _with_manifest(self) -> Iterable[str]:
        with self._errors():
            keys = [each.key for each in self._bucket.objects.filter(Prefix=self._prefix)]
        parts = [key.removeprefix(self._prefix).split("/") for key in keys]
        return [each[0] for each in parts if each[1:] == [MANIFEST]]

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (Boto3Error, BotoCoreError, ClientError, OSError) as error:
            raise ServerError(f"s3://{self._bucket.name}/{self._prefix}: {error}") from None


def vault_at(place: str) -> Vault:
    """Return the vault of `s3://BUCKET/PREFIX`, or of a folder."""
    if place.startswith("s3://"):
        bucket, _, prefix = place.removeprefix("s3://").partition("/")
        return S3Vault(bucket, prefix)
    return FolderVault(Path(place).absolute())
