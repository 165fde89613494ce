"""Parse a job that a caller sends to the service, and refuse what would reach outside of the job.

A sent job may only name files that are sent with it. It may not set keys that refer to code, to other files or to other
machines, or that belong to the server. Nothing is written or started here (vcdl.web.submissions does that).
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from vcdl.errors import JobError
from vcdl.job.model import WEIGHTS_ENDINGS

_FILE = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}(\.[a-z0-9]{1,10}){1,3}")
JOB_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_REFUSED = (
    *(("model", "python"), ("model", "hub"), ("model", "code"), ("model", "from"), ("data", "from"), ("store", "url")),
    *(("grid", "workers"), ("grid", "servers"), ("boinc", "share")),
)
"""Keys that a submission may not set: they refer to something outside of the submission (code, files, another machine),
or are settings of the server."""
_FILES = {
    ("model", "keras_json"): (".json",),
    ("model", "keras"): (".keras",),
    ("model", "weights"): WEIGHTS_ENDINGS,
    ("data", "npz"): (".npz",),
}
"""Keys that name a file of the submission → allowed endings. Other files are refused: Python would import some."""
_MOST_FILES, _MOST_JOB_BYTES = 8, 200_000


@dataclass(frozen=True)
class SentFile:
    """A file of a submission."""

    name: Annotated[str, Field(max_length=100)]
    chunks: Annotated[tuple[str, ...], Field(max_length=10_000)]
    """Content of the file: the SHA-256 of its chunks, in order."""


def digest_of(text: str, files: list[SentFile]) -> str:
    """Return the SHA-256 of a submission, which differs for another job or other files under the same key."""
    sent = json.dumps([text, [[file.name, file.chunks] for file in files]])
    return hashlib.sha256(sent.encode(errors="replace")).hexdigest()


def parse_job_file(text: str, files: list[SentFile]) -> dict[str, Any]:
    """Parse the JSON of a job file, and check that it refers only to files that were sent with it.

    Raises:
        JobError: The text is no valid job file, or sets a key that a submission may not set.
    """
    if len(text) > _MOST_JOB_BYTES or len(files) > _MOST_FILES:
        raise JobError("the job file is too long, or names too many files")
    names = [file.name for file in files]
    if odd := [name for name in names if not _FILE.fullmatch(name) or names.count(name) > 1]:
        raise JobError(f"{odd[0][:60]!r} is not a valid name for a file of a job")
    values = _keys_in(text)
    if not isinstance(values.get("name"), str) or not JOB_NAME.fullmatch(values["name"]):
        raise JobError("name: 1 to 63 of a-z, 0-9, - and _ are a job's name, not beginning with - or _")
    sections = {section: inner for section, inner in values.items() if isinstance(inner, dict)}
    for section, key in _REFUSED:
        if sections.get(section, {}).get(key) is not None:
            raise JobError(
                f"{section} > {key} is not allowed here, because it is a setting of the server or refers to something "
                "outside of the job: remove it"
            )
    _check_named(sections, names)
    if isinstance(values.get("store"), str):
        raise JobError("store > url is not allowed here, because it is a setting of the server: remove it")
    return values


def _check_named(sections: Mapping[str, dict[str, Any]], names: list[str]) -> None:
    """Check that the keys in `_FILES` name only files that were sent, and that every file that was sent is named.

    Args:
        sections: Name of each section of the job file → its keys.
        names: The files that were sent.

    Raises:
        JobError: A key names another file, or a file is not named.
    """
    named = set()
    for (section, key), endings in _FILES.items():
        if (value := sections.get(section, {}).get(key)) is None:
            continue
        if not isinstance(value, str) or value not in names or not value.endswith(endings):
            raise JobError(f"{section} > {key} must name a file that is sent with the job, *{' or *'.join(endings)}")
        named.add(value)
    if unnamed := sorted({*names} - named):
        raise JobError(f"no key of the job uses the file {unnamed[0]!r}: do not send it")


def _keys_in(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise JobError(f"the job is not valid JSON ({str(error)[:100]}): `vcdl submit --server` sends one") from error
    if not isinstance(values, dict):
        raise JobError("the job is not a JSON object")
    return values


def paths_in(value: Any) -> Iterator[Path]:
    """Yield every path in the values of a job, in its sections and lists, too."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, BaseModel) or is_dataclass(value):
        yield from paths_in(vars(value))
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from paths_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from paths_in(inner)
