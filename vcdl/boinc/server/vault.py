"""The places of backups: a folder, or a bucket of S3. A backup is a folder of files; its manifest comes last."""

import json
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vcdl.errors import ServerError

MANIFEST = "manifest.json"
_FORMAT = 1
_STAMP = "%Y%m%dT%H%M%SZ"
_NAME = re.compile(r"(?P<project>[a-z0-9_]+)-(?P<stamp>\d{8}T\d{6}Z)")
_NEWEST, _DAYS, _WEEKS, _MONTHS = 3, 7, 5, 12


@dataclass(frozen=True)
class BackupManifest:
    """The content of a backup."""

    project: str
    made: str
    vcdl: str
    files: dict[str, str] = field(default_factory=dict)
    """SHA-256 by name, of the files as they lie there."""
    runs: dict[str, int] = field(default_factory=dict)
    """The last event of each run's journal."""
    format: int = _FORMAT

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str) -> "BackupManifest":
        """Raises ServerError."""
        try:
            manifest = cls(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise ServerError(f"the {MANIFEST} of {where} cannot be read ({error}): take another backup") from None
        if manifest.format != _FORMAT:
            raise ServerError(f"{where} is a backup of format {manifest.format}: restore it with the vcdl that made it")
        return manifest


def backup_name(project: str, now: datetime) -> str:
    return f"{project}-{now.astimezone(UTC).strftime(_STAMP)}"


def to_remove(names: Collection[str]) -> list[str]:
    """The backups that are not needed any more.

    Kept are the newest three, the newest of each of the last 7 days, 5 weeks and 12 months that have any, and strange
    names.
    """
    times = {name: _time_of(name) for name in names if _NAME.fullmatch(name)}
    ordered = sorted(times, key=lambda name: times[name], reverse=True)
    kept = set(ordered[:_NEWEST])
    for form, count in (("%Y-%m-%d", _DAYS), ("%G-%V", _WEEKS), ("%Y-%m", _MONTHS)):
        newest: dict[str, str] = {}
        for name in ordered:
            newest.setdefault(times[name].strftime(form), name)
        kept.update(list(newest.values())[:count])
    return [name for name in ordered if name not in kept]


def _time_of(name: str) -> datetime:
    return datetime.strptime(name.rpartition("-")[2], _STAMP).replace(tzinfo=UTC)


class Vault(ABC):
    """A place with backups. Calls raise ServerError."""

    @abstractmethod
    def names(self) -> list[str]:
        """The whole backups, the oldest first."""

    @abstractmethod
    def put(self, folder: Path, name: str) -> None:
        """Take in a backup; it is there when its manifest is."""

    @abstractmethod
    def get(self, name: str, folder: Path) -> None:
        """Fetch a backup into an empty folder."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a backup, its manifest first."""

    def newest(self, project: str | None = None) -> str:
        """The newest backup, of a project. Raises ServerError when there is none."""
        names = [name for name in self.names() if project is None or name.rpartition("-")[0] == project]
        if not names:
            raise ServerError("there is no whole backup: `vcdl server backup --to PLACE` makes one")
        return names[-1]


class FolderVault(Vault):
    """A folder of this machine, or of one that is mounted here."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        found = [path.parent.name for path in self._folder.glob(f"*/{MANIFEST}")]
        return sorted(name for name in found if _NAME.fullmatch(name))

    def put(self, folder: Path, name: str) -> None:
        target = self._folder / name
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            target.mkdir(mode=0o700)
            for path in sorted(folder.iterdir(), key=_manifest_last):
                shutil.copyfile(path, target / f".{path.name}.tmp")
                (target / f".{path.name}.tmp").chmod(0o600)
                (target / f".{path.name}.tmp").rename(target / path.name)
        except OSError as error:
            shutil.rmtree(target, ignore_errors=True)
            raise ServerError(f"{self._folder} took no backup: {error.strerror or error}") from None

    def get(self, name: str, folder: Path) -> None:
        try:
            shutil.copytree(self._folder / name, folder, dirs_exist_ok=True)
        except OSError as error:
            raise ServerError(f"{self._folder / name} cannot be read: {error.strerror or error}") from None

    def remove(self, name: str) -> None:
        (self._folder / name / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(self._folder / name, ignore_errors=True)


class S3Vault(Vault):
    """A prefix of a bucket, by boto3 with the machine's own credentials."""

    def __init__(self, bucket: str, prefix: str, client: Any = None) -> None:
        self._bucket, self._prefix = bucket, f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._given = client

    @property
    def _client(self) -> Any:
        if self._given is None:
            import boto3

            self._given = boto3.client("s3")
        return self._given

    def names(self) -> list[str]:
        found = {key.split("/")[0] for key in self._keys("") if key.endswith(f"/{MANIFEST}")}
        return sorted(name for name in found if _NAME.fullmatch(name))

    def put(self, folder: Path, name: str) -> None:
        for path in sorted(folder.iterdir(), key=_manifest_last):
            self._call("upload_file", str(path), self._bucket, f"{self._prefix}{name}/{path.name}")

    def get(self, name: str, folder: Path) -> None:
        for key in self._keys(f"{name}/"):
            self._call("download_file", self._bucket, f"{self._prefix}{key}", str(folder / key.rpartition("/")[2]))

    def remove(self, name: str) -> None:
        for key in sorted(self._keys(f"{name}/"), key=lambda key: not key.endswith(MANIFEST)):
            self._call("delete_object", Bucket=self._bucket, Key=f"{self._prefix}{key}")

    def _keys(self, below: str) -> list[str]:
        """Keys below the prefix, without it."""
        found: list[str] = []
        more: dict[str, str] = {}
        while True:
            page = self._call("list_objects_v2", Bucket=self._bucket, Prefix=f"{self._prefix}{below}", **more)
            found += [each["Key"].removeprefix(self._prefix) for each in page.get("Contents", ())]
            if not page.get("IsTruncated"):
                return found
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def _call(self, name: str, *arguments: object, **named: object) -> Any:
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return getattr(self._client, name)(*arguments, **named)
        except (Boto3Error, BotoCoreError, ClientError, OSError) as error:
            raise ServerError(f"s3://{self._bucket}/{self._prefix}: {error}") from None


def _manifest_last(path: Path) -> tuple[bool, str]:
    return path.name == MANIFEST, path.name


def vault_at(place: str) -> Vault:
    """The vault of `s3://BUCKET/PREFIX`, or of a folder."""
    if place.startswith("s3://"):
        bucket, _, prefix = place.removeprefix("s3://").partition("/")
        return S3Vault(bucket, prefix)
    return FolderVault(Path(place).absolute())
