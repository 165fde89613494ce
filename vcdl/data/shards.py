"""The training set, cut into shard files: made once, and reused while they match the job.

`shards.json` is written last and describes the files; if it is missing or differs, all files are made again.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vcdl.data.dataset import Dataset, content_sha256
from vcdl.data.npz_file import write_split
from vcdl.data.split import Indices, dirichlet, iid
from vcdl.errors import DataError, RunFolderError
from vcdl.files.atomic import atomic_write

if TYPE_CHECKING:
    from vcdl.job.data import DataSettings

MANIFEST = "shards.json"
_FORMAT = 1


@dataclass(frozen=True)
class ShardFile:
    """One shard on disk."""

    path: Path
    index: int
    samples: int
    size_bytes: int


def ensure_shards(folder: Path, dataset: Dataset, settings: "DataSettings", seed: int) -> tuple[ShardFile, ...]:
    """The shard files of a job in `folder`; made now unless they are there and intact.

    Raises DataError (too few samples) and RunFolderError (a full disk, a read-only folder), and then leaves no
    shard.
    """
    fingerprint = _fingerprint(dataset, settings, seed)
    shards = _intact(folder, fingerprint)
    if shards is None:
        cut = cut_into_shards(dataset, settings, seed)
        try:
            shards = _write(folder, dataset, cut, fingerprint)
        except OSError as error:
            raise RunFolderError(
                f"cannot write the shards into {folder} ({error.strerror or error}): make room or choose another folder"
            ) from error
    return shards


def cut_into_shards(dataset: Dataset, settings: "DataSettings", seed: int) -> tuple[Indices, ...]:
    """Indices of the training samples for each shard, determined by labels, settings and seed. Raises DataError."""
    rng = np.random.default_rng([seed, 2])
    labels = dataset.y_train
    classification = settings.task == "classification"
    if settings.split == "iid":
        return iid(labels, settings.shards, stratified=classification, rng=rng)
    if not classification:
        raise DataError(f"data > split: dirichlet cuts by class, and a {settings.task} has none for a sample: use iid")
    return dirichlet(labels, settings.shards, settings.concentration, rng)


def _fingerprint(dataset: Dataset, settings: "DataSettings", seed: int) -> str:
    concentration = settings.concentration if settings.split == "dirichlet" else None
    facts = [_FORMAT, seed, settings.task, settings.shards, settings.split, concentration]
    weights = () if dataset.weights_train is None else (dataset.weights_train,)
    content = content_sha256(dataset.x_train, dataset.y_train, *weights)
    return hashlib.sha256((json.dumps(facts) + content).encode()).hexdigest()


def _write(folder: Path, dataset: Dataset, cut: tuple[Indices, ...], fingerprint: str) -> tuple[ShardFile, ...]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    paths = [folder / f"shard_{index:03d}.npz" for index in range(len(cut))]
    for stale in set(folder.glob("shard_*.npz")) - set(paths):
        stale.unlink()
    try:
        for path, members in zip(paths, cut, strict=True):
            y = None if dataset.predicts_itself else dataset.y_train[members]
            weights = None if dataset.weights_train is None else dataset.weights_train[members]
            write_split(path, dataset.x_train[members], y, weights)
        shards = tuple(
            ShardFile(path, index, len(members), path.stat().st_size)
            for index, (path, members) in enumerate(zip(paths, cut, strict=True))
        )
        _write_manifest(folder, shards, fingerprint)
    except BaseException:
        for path in paths:
            path.unlink(missing_ok=True)
        raise
    return shards


def _write_manifest(folder: Path, shards: tuple[ShardFile, ...], fingerprint: str) -> None:
    entries = [
        {"file": s.path.name, "samples": s.samples, "size_bytes": s.size_bytes, "sha256": _sha256(s.path)}
        for s in shards
    ]
    manifest = {"format": _FORMAT, "fingerprint": fingerprint, "count": len(shards), "shards": entries}
    with atomic_write(folder / MANIFEST) as temporary:
        temporary.write_text(json.dumps(manifest, indent=1))


def _intact(folder: Path, fingerprint: str) -> tuple[ShardFile, ...] | None:
    """The shards of the manifest; None when they do not match the job exactly."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
        if manifest["format"] != _FORMAT or manifest["fingerprint"] != fingerprint:
            return None
        shards = []
        for index, entry in enumerate(manifest["shards"]):
            path = folder / f"shard_{index:03d}.npz"
            if entry["file"] != path.name or _sha256(path) != entry["sha256"]:
                return None
            shards.append(ShardFile(path, index, int(entry["samples"]), path.stat().st_size))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return tuple(shards) if len(shards) == manifest["count"] else None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
