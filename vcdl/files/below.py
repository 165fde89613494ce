"""Name paths in a folder: `job_file = Below("job.yaml")` is a path below its object's `path`, computed once."""

from pathlib import Path
from typing import Protocol


class HasPath(Protocol):
    """An object with the path of a folder."""

    @property
    def path(self) -> Path: ...


class Below:
    """A descriptor: an attribute that is a path below the object's `path`. It is computed once for each object."""

    def __init__(self, *parts: str | Path) -> None:
        self._parts = parts

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, folder: HasPath, _owner: type | None = None) -> Path:
        made: Path = folder.path.joinpath(*self._parts)
        folder.__dict__[self._name] = made  # later look-ups find it before this descriptor
        return made
