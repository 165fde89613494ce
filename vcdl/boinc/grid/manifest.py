"""The manifest of each open job, PROJECT/vcdl/staged/<job>.json: the names of its staged files.

A file is listed from before it is staged until after it is removed, so that a kill leaves no unlisted file. A file that
several jobs share is removed with the last of them. Hold the lock to stage or remove files.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import msgspec

from vcdl.boinc.grid.download_folder import Content, writing
from vcdl.boinc.grid.project_folder import RUN_AS_USER, BoincProject, Identity, add_advice, identity_of
from vcdl.errors import GridError
from vcdl.files.atomic import sweep
from vcdl.files.lock import locked


@dataclass(frozen=True)
class Manifest:
    """The staged files of one job: shards are keyed by their number, weights (`params`) by version."""

    share: int
    """Share of the clients among the open jobs."""
    result_template: str
    """Name of the job's result template in templates/."""
    model: Content | None = None
    shards: Mapping[int, Content] = field(default_factory=dict)
    params: Mapping[int, Content] = field(default_factory=dict)
    frozen: Content | None = None
    account: int | None = None
    """The only account whose hosts may have the job's workunits; None: all hosts."""

    @property
    def sticky(self) -> set[str]:
        """Physical names of the files that clients keep between tasks."""
        return {content.name for content in (self.model, self.frozen, *self.shards.values()) if content is not None}

    @property
    def names(self) -> set[str]:
        """Names of all the job's files in download/."""
        return self.sticky | {content.name for content in self.params.values()}

    def to_json(self) -> str:
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Decode a manifest.

        Raises:
            ValueError: It is damaged.
        """
        text = text.replace('"priority"', '"share"', 1)  # the former name, in manifests of earlier releases
        return msgspec.json.decode(text, type=cls)

    def without_params(self, versions: set[int]) -> Self:
        return replace(self, params={v: content for v, content in self.params.items() if v not in versions})


class Manifests:
    """The manifests of all open jobs of a project, and the lock under which files are staged and removed.

    All calls may raise GridError.
    """

    def __init__(self, project: BoincProject) -> None:
        self._folder = project.manifests
        self._read: dict[str, tuple[Identity, Manifest]] = {}
        """Decoded manifests by job, each with its file's identity, because each subtask reads one."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock that lets one process at a time stage or remove files."""
        with add_advice(self._folder, RUN_AS_USER):
            self._folder.mkdir(parents=True, exist_ok=True)
            with locked(self._folder / "lock"):
                yield

    def jobs(self) -> set[str]:
        """Return the jobs that have staged files and were not cleared."""
        return {path.stem for path in self._folder.glob("*.json") if not path.name.startswith(".")}

    def read(self, job: str) -> Manifest | None:
        path = self._path(job)
        with add_advice(path, RUN_AS_USER):
            try:
                stamp = identity_of(path)
                # Reuse the decoded manifest, since one with 10 000 shards takes long to decode and each sent subtask
                # needs it. Other processes replace the file as a whole, so a change shows in its identity.
                if (known := self._read.get(job)) is not None and known[0] == stamp:
                    return known[1]
                manifest = Manifest.from_json(path.read_text())
            except FileNotFoundError:
                self._read.pop(job, None)
                return None
            except ValueError as error:
                what = " ".join(str(error).split())[:300]
                raise GridError(
                    f"{path} is damaged ({what}): remove it; vcdl_*.* files in download/ that no job needs may stay "
                    "behind"
                ) from error
        self._read[job] = stamp, manifest
        return manifest

    def write(self, job: str, manifest: Manifest) -> None:
        """Write a job's manifest; the caller must hold the lock."""
        # Remove temporary files of killed writers; under the lock no other process is writing one.
        sweep(self._folder)
        with writing(self._path(job)) as target:
            target.write_text(manifest.to_json())

    def remove(self, job: str) -> None:
        path = self._path(job)
        with add_advice(path, RUN_AS_USER):
            path.unlink(missing_ok=True)

    def others(self, job: str) -> dict[str, Manifest]:
        """Return the manifests of the other jobs."""
        # Leave out a job that is cleared between the listing and the read: it has no claim on shared files any more.
        read = {other: self.read(other) for other in sorted(self.jobs() - {job})}
        return {other: manifest for other, manifest in read.items() if manifest is not None}

    def _path(self, job: str) -> Path:
        return self._folder / f"{job}.json"
