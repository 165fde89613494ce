"""Prepare a job for sending to a service: its keys, and the files that they name.

No code is sent: a model's Python function is called on this machine, and the model that it returns is sent.
"""

import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcdl.errors import JobError, unreadable
from vcdl.job import Job, load_job
from vcdl.yaml_schema.file_kind import JOB
from vcdl.yaml_schema.reading import read_document, replace_key

CHUNK_BYTES = 8 << 20
"""Bytes of a chunk, the most that a service accepts."""
_BUILT_HERE = ("python", "hub")
"""Prefixes of the keys of `model` that are replaced by the model that was built on this machine."""


@dataclass(frozen=True)
class ParcelFile:
    """A file of a job, as it is sent in chunks."""

    name: str
    """Name by which the job refers to the file."""
    path: Path
    """The file on this machine."""
    chunks: tuple[str, ...]
    """SHA-256 of each chunk, in order."""
    size_bytes: int

    @classmethod
    def of(cls, name: str, path: Path) -> "ParcelFile":
        """Read a whole file and compute the digests of its chunks.

        Args:
            name: Name by which the job refers to the file.
            path: The file.

        Raises:
            FileUnavailable: The file cannot be read.
        """
        pieces = [(hashlib.sha256(piece).hexdigest(), len(piece)) for piece in _pieces(path)]
        return cls(name, path, tuple(digest for digest, _ in pieces), sum(size for _, size in pieces))

    def read(self) -> Iterator[tuple[str, bytes]]:
        """Yield the digest and the content of each chunk, in order.

        Raises:
            FileUnavailable: The file cannot be read.
            JobError: The file has changed since its digests were computed.
        """
        # Compute the digests again, because another program may have written to the file since.
        for digest, piece in zip(self.chunks, _pieces(self.path), strict=False):
            if hashlib.sha256(piece).hexdigest() != digest:
                raise JobError(f"{self.path} changes while it is sent: submit again")
            yield digest, piece


@dataclass(frozen=True)
class Parcel:
    """A job in the form in which a service accepts it: its keys and its files."""

    job: str
    """Keys of the job file, as JSON."""
    files: tuple[ParcelFile, ...]


@contextmanager
def parcel_of(job_file: Path, overrides: Sequence[str] = ()) -> Iterator[Parcel]:
    """Check a job file, build its model if it comes from a function or a preset, and yield the parcel to send.

    The parcel's files exist until the end of the block: a model that was built is in a temporary folder.

    Args:
        job_file: The job file.
        overrides: Settings KEY=VALUE that replace keys of the job file.

    Raises:
        JobError: The job is invalid, or refers to something that cannot be sent.
        ModelError: The job's model cannot be built here.
        FileUnavailable: A file of the job cannot be read.
    """
    job = load_job(job_file, overrides)
    if job.model.from_run is not None or job.data.from_ is not None:
        key = "model > from" if job.model.from_run is not None else "data > from"
        raise JobError(f"{key} names a run or data here, which is not sent: give `model > keras` or `data > npz`")
    if job.model.code is not None:
        raise JobError("model > code: a service runs no code of yours: train it with `vcdl run` or `vcdl pool`")
    # Send the keys of the file and not those of the checked job, so that the service's own defaults apply to keys that
    # the file leaves out.
    document = read_document(job_file, JOB)
    for setting in overrides:
        replace_key(document, setting)
    values: dict[str, Any] = document.values
    with tempfile.TemporaryDirectory(prefix="vcdl-") as folder:
        files = [ParcelFile.of(name, path) for name, path in _files_of(job, values, Path(folder))]
        yield Parcel(json.dumps({**values, "name": job.name}, default=str), tuple(files))


def _files_of(job: Job, values: dict[str, Any], folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield each file that a job refers to, with its name in the parcel, and set the keys in `values` to those names.

    A model from a function or a preset is built first; `model > keras` then replaces its keys.

    Args:
        job: The checked job.
        values: The keys of the job file; changed in place.
        folder: Where a built model is written.
    """
    if job.model.python is not None or job.model.hub is not None:
        # Remove the keys of the function or preset: the model that it gave is sent instead.
        values["model"] = {key: value for key, value in values["model"].items() if not key.startswith(_BUILT_HERE)}
        values["model"]["keras"] = "model.keras"
        path, drawn_layers = _build_model(job, folder)
        if drawn_layers and job.model.lora is not None and job.model.train is None:
            # Name these layers, because the service cannot see which weights the preset lacked.
            values["model"]["train"] = list(drawn_layers)
        yield "model.keras", path
    for section, key, name in (
        ("model", "keras_json", "model.json"),
        ("model", "keras", "model.keras"),
        ("model", "weights", ""),
        ("data", "npz", "data.npz"),
    ):
        path = getattr(getattr(job, section), key)
        if path is not None:
            name = name or f"weights{''.join(path.suffixes[-2:]) if path.name.endswith('.weights.h5') else path.suffix}"
            values[section][key] = name
            yield name, path


def _build_model(job: Job, folder: Path) -> tuple[Path, tuple[str, ...]]:
    """Build the model of a job's function or preset, for the job's data, and write it as model.keras.

    Args:
        job: The checked job.
        folder: Where the file is written.

    Returns:
        The file; and the names of the layers for which the preset has no weights, so that they start from random ones.

    Raises:
        ModelError: The model cannot be built.
    """
    from vcdl.data import facts_of
    from vcdl.models.hub import preset_model
    from vcdl.models.model_classes import load_data_with_model_classes
    from vcdl.models.python_function import call_builder

    facts, path = load_data_with_model_classes(job, facts_of), folder / "model.keras"
    if job.model.hub is not None:
        preset = preset_model(job.model.hub, facts.input_shape, facts.outputs, job.data.task)
        preset.keras.save(path)
        return path, preset.drawn
    call_builder(str(job.model.python), facts.input_shape, facts.outputs, job.model.python_folder).save(path)
    return path, ()


def _pieces(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while piece := file.read(CHUNK_BYTES):
                yield piece
    except OSError as error:
        raise unreadable(path, error) from error
