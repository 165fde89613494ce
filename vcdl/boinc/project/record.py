"""The record of an install, PROJECT/vcdl/install/, from which uninstall restores the edited files.

record.json    for each edited file, digests of its content before, of the merged fragment, and of its content after
kept/DIGEST    the contents that the record names: each edited file without VCDL, and the fragment

The record is written before the files. A process killed between the two leaves a file unchanged, and both install and
uninstall recognise that.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Self

import msgspec

from vcdl.boinc.project import files
from vcdl.boinc.project.edited_files import Fragment
from vcdl.errors import GridError, first_fault

_FORMAT = 1
"""Format number of record.json, so that a later version can refuse or convert it."""
Digest = Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{64})?\Z")]


@dataclass(frozen=True)
class Edited:
    """Digests of an edited file: without VCDL, of the fragment, and with it. Hex SHA-256; "" for no file."""

    before: Digest
    fragment: Digest
    after: Digest


@dataclass(frozen=True)
class Edit:
    """A planned edit of a file; a content of None means that there is no file."""

    path: Path
    now: bytes | None
    before: bytes | None
    """Content of the file without VCDL."""
    fragment: Fragment
    after: bytes


@dataclass(frozen=True)
class Record:
    """The record of the files that install edited in one project."""

    folder: Path
    threads: int = 0
    """Cores of a CPU task, as last installed; 0: never installed."""
    edited: dict[str, Edited] = field(default_factory=dict)

    @classmethod
    def of(cls, project: Path) -> Self:
        """Read the project's record; empty if VCDL is not installed there.

        Raises:
            GridError: The record is damaged.
        """
        folder = project / "vcdl" / "install"
        content = files.read(folder / "record.json")
        if content is None:
            return cls(folder)
        try:
            stored = msgspec.json.decode(content, type=_Stored)
            if stored.format != _FORMAT:
                raise ValueError(f"format {stored.format}")
            return cls(folder, stored.threads, stored.edited)
        except ValueError as error:
            what = f"{folder / 'record.json'} is damaged or of another version ({first_fault(error)})"
            raise GridError(f"{what}: restore it from a backup") from None

    @property
    def installed(self) -> bool:
        return bool(self.edited)

    def without_us(self, path: Path, now: bytes | None) -> bytes | None:
        """Return the file as if VCDL had never been installed, or None if there is no file.

        Raises:
            GridError: A kept content is missing or damaged, or the file is not XML.
        """
        edited = self.edited.get(path.name)
        # Without a record, or if install was killed between record and edit, the file is unchanged.
        if edited is None or files.digest(now) == edited.before:
            return now
        before = self._read_copy(edited.before)
        # Restore the original byte for byte if the file is as install left it. If it was edited since, take out only
        # the fragment.
        if files.digest(now) == edited.after:
            return before
        return self._fragment(path.name, edited).remove_from(path, now, before)

    def plan(self, path: Path, fragment: Fragment) -> Edit:
        """Plan the edit after which a file contains the fragment. Nothing is written.

        Raises:
            GridError: The file cannot be read or is not XML.
        """
        now = files.read(path)
        before = self.without_us(path, now)
        edited = self.edited.get(path.name)
        # Take out the old fragment first, because that of a new version may lack some entries. Leave an unchanged
        # fragment, so that the operator's additions to our entries stay.
        same = edited is not None and self._fragment(path.name, edited).content == fragment.content
        return Edit(path, now, before, fragment, fragment.add_to(path, now if same else before))

    def write(self, threads: int, edits: Iterable[Edit]) -> None:
        """Write the record of all planned edits, with the contents needed to undo them.

        Raises:
            GridError: A file cannot be written.
        """
        edited: dict[str, Edited] = {}
        for edit in edits:
            contents = (edit.before, edit.fragment.content, edit.after)
            edited[edit.path.name] = Edited(*map(files.digest, contents))
            for content in (edit.before, edit.fragment.content):
                # Write contents before the record that names them, and delete them after it, so that a kill never
                # leaves a record without its contents.
                if content is not None and not self._file(files.digest(content)).exists():
                    # Secret: config.xml has a password.
                    files.write(self._file(files.digest(content)), content, files.SECRET_MODE)
        if (threads, edited) != (self.threads, self.edited):
            stored = asdict(_Stored(_FORMAT, threads, edited))
            files.write(self.folder / "record.json", json.dumps(stored, indent=2).encode() + b"\n")
        needed = {name for digests in edited.values() for name in (digests.before, digests.fragment)}
        for file in (self.folder / "kept").iterdir():
            if file.name not in needed:
                files.delete(file)

    def _fragment(self, name: str, edited: Edited) -> Fragment:
        return Fragment(name, self._read_copy(edited.fragment) or b"")

    def _read_copy(self, digest: str) -> bytes | None:
        if not digest:
            return None
        content = files.read(self._file(digest))
        if files.digest(content) != digest:
            raise GridError(f"{self._file(digest)} is missing or was changed: restore it from a backup")
        return content

    def _file(self, digest: str) -> Path:
        return self.folder / "kept" / digest


@dataclass(frozen=True)
class _Stored:
    """The content of record.json."""

    format: int
    threads: Annotated[int, msgspec.Meta(ge=0)]
    edited: dict[str, Edited]
