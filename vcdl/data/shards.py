"""Cut the training set into shard files, or reuse those that exist.

The manifest `shards.json` is written last. Where it is missing or differs from the job, the shards are cut again.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from vcdl.data.dataset import Dataset, content_sha256
from vcdl.data.npz_file import write_split
from vcdl.data.rows import Indices, Rows, in_memory
from vcdl.data.scatter import Target, scatter
from vcdl.data.split import dirichlet, iid, split_groups
from vcdl.errors import DataError, RunFolderError, folder_errors
from vcdl.files.atomic import atomic_write, file_sha256, sweep

if TYPE_CHECKING:
    from vcdl.job.data import DataSettings

MANIFEST = "shards.json"
_FORMAT = 1
"""Version of the manifest; shards of another version are cut again, so that a newer VCDL never misreads them."""


class DataFiles(Protocol):
    """The paths of a run's data: its shards and its held-out samples."""

    @property
    def shards(self) -> Path:
        """The folder of the shards."""

    @property
    def validation_file(self) -> Path: ...

    @property
    def test_file(self) -> Path: ...


@dataclass(frozen=True)
class ShardFile:
    """Facts about one shard file."""

    path: Path
    index: int
    samples: int
    size_bytes: int


def ensure_shards(folder: Path, dataset: Dataset, settings: "DataSettings", seed: int) -> tuple[ShardFile, ...]:
    """Return a job's shard files; cut data in memory into them unless they exist undamaged.

    They may be hard links to the shards of another run with the same data.

    Args:
        folder: Where the shards are stored.
        dataset: The data.
        settings: The job's section `data`.
        seed: The job's seed.

    Raises:
        DataError: The data cannot be cut as the job says.
        RunFolderError: The shards cannot be written.
    """
    fingerprint = _fingerprint(dataset, settings, seed)
    # Other runs in the same folder, such as those of a sweep, often have the same shards. Hard links take neither time
    # nor room.
    shards = _intact(folder, fingerprint) or _link_shards(folder, fingerprint)
    if shards is None:
        cut = cut_into_shards(dataset, settings, seed)
        try:
            shards = _write(folder, dataset, cut, fingerprint)
        except OSError as error:
            raise RunFolderError(
                f"cannot write the shards into {folder} ({error.strerror or error}): make room or choose another folder"
            ) from error
    return shards


def ensure_files(
    files: DataFiles,
    dataset: Dataset,
    settings: "DataSettings",
    seed: int,
    tell: Callable[[float], None] = lambda fraction: None,
) -> tuple[ShardFile, ...]:
    """Write a job's shards and held-out samples unless they exist, and return the shards.

    Args:
        files: Where they are stored.
        dataset: The data.
        settings: The job's section `data`.
        seed: The job's seed.
        tell: Called with the fraction that is written, but only for data that are not in memory.

    Raises:
        DataError: The data cannot be cut as the job says, or changed in the meantime.
        RunFolderError: A file cannot be written.
        FileUnavailable: The source cannot be read now.
    """
    x_train, x_test = dataset.x_train, dataset.x_test
    if not isinstance(x_train, Rows):
        shards = ensure_shards(files.shards, dataset, settings, seed)
        # Write held-out files at each start, because no manifest shows whether they are intact.
        _write_splits(files, dataset)
        return shards
    # The held-out files of a streamed source are written in the same pass as the shards, so the fingerprint must
    # include them.
    held_out = [x.content for x in (dataset.x_val, x_test) if isinstance(x, Rows)]
    fingerprint = _fingerprint(dataset, settings, seed, *held_out)
    names = files.validation_file.name, files.test_file.name
    found = _intact(files.shards, fingerprint) or _link_shards(files.shards, fingerprint, *names)
    is_there = files.validation_file.exists() and (x_test is None or files.test_file.exists())
    with folder_errors(files.shards):
        files.shards.mkdir(parents=True, exist_ok=True)
        if found is None or not is_there:
            found = _scatter_data(files, dataset, cut_into_shards(dataset, settings, seed), fingerprint, tell)
        sweep(files.shards)
        # A killed cut continues from these states, so remove them only once all files are complete.
        for state in files.shards.glob("cut_*.json"):
            state.unlink()
    return found


def _write_splits(files: DataFiles, dataset: Dataset) -> None:
    once = dataset.predicts_itself
    write_split(files.validation_file, in_memory(dataset.x_val), None if once else dataset.y_val, dataset.weights_val)
    if dataset.x_test is not None:
        write_split(files.test_file, in_memory(dataset.x_test), None if once else dataset.y_test)


def _link_shards(folder: Path, fingerprint: str, *held_out: str) -> tuple[ShardFile, ...] | None:
    """Hard-link the shards of another run with the same data, and return them; None if there is none or links fail.

    Args:
        folder: Where the links go.
        fingerprint: Of the data and how they are cut.
        held_out: Further files to link.
    """
    folder = folder.absolute()
    for manifest in sorted(folder.parent.parent.parent.glob(f"*/{folder.parent.name}/{folder.name}/{MANIFEST}")):
        other = manifest.parent
        found = None if other == folder else _intact(other, fingerprint)
        if found is None:
            continue
        try:
            for path in folder.glob("shard_*.npz"):  # of another cut
                path.unlink()
            for path in (*(shard.path for shard in found), *(other.parent / name for name in held_out)):
                if not path.exists():
                    continue
                place = folder.parent / path.relative_to(other.parent)
                place.parent.mkdir(parents=True, exist_ok=True)
                # Remove a file of an interrupted attempt, because hardlink_to does not replace it.
                place.unlink(missing_ok=True)
                place.hardlink_to(path)
            # Write the manifest after its files: a folder whose linking was interrupted has none and counts as not cut.
            with atomic_write(folder / MANIFEST) as temporary:
                temporary.write_bytes(manifest.read_bytes())
        except OSError:  # another disk, or a file system without links: it is cut here
            return None
        return _intact(folder, fingerprint)
    return None


def _scatter_data(
    files: DataFiles, dataset: Dataset, cut: tuple[Indices, ...], fingerprint: str, tell: Callable[[float], None]
) -> tuple[ShardFile, ...]:
    """Write shards and held-out samples of data that are not in memory, reading each source once.

    Validation samples usually come from the source of the shards.
    """
    train, once = dataset.x_train, dataset.predicts_itself
    if not isinstance(train, Rows):
        raise TypeError("samples in memory are cut at once: this is a bug in vcdl")
    targets = []
    for index, members in enumerate(map(np.sort, cut)):
        weights = None if dataset.weights_train is None else dataset.weights_train[members]
        y = None if once else dataset.y_train[members]
        targets.append(Target(files.shards / f"shard_{index:03d}.npz", train.places[members], y, weights))
    shards = tuple(targets)
    held_out = (
        (files.validation_file, dataset.x_val, dataset.y_val, dataset.weights_val),
        (files.test_file, dataset.x_test, dataset.y_test, None),
    )
    passes = [(train, targets)]
    for path, x, y, weights in held_out:
        if isinstance(x, Rows):
            target = Target(path, x.places, None if once else y, weights)
            # The same function means the same source: these samples were taken from the training data, so one pass
            # writes both.
            if x.read is train.read:
                targets.append(target)
            else:
                passes.append((x, [target]))
    for number, (source, some) in enumerate(passes):
        scatter(source, some, files.shards / f"cut_{number}.json", fingerprint, tell)
    written = tuple(
        ShardFile(target.path, index, len(target.places), target.path.stat().st_size)
        for index, target in enumerate(shards)
    )
    _write_manifest(files.shards, written, fingerprint, checked=False)
    return written


def cut_into_shards(dataset: Dataset, settings: "DataSettings", seed: int) -> tuple[Indices, ...]:
    """Choose the samples of each shard, and return their indices. Nothing is written.

    With groups (`data > by`), only these decide. Otherwise the labels, `settings.split` and the seed do.

    Raises:
        DataError: The data cannot be split in this way, for example into more shards than there are samples.
    """
    # Use a random stream of its own (validation uses [seed, 1]), so that both choices can be repeated independently.
    rng = np.random.default_rng([seed, 2])
    labels = dataset.y_train
    if dataset.groups_train is not None:
        return split_groups(dataset.groups_train, settings.shards)
    classification = settings.task == "classification"
    if settings.split == "iid":
        return iid(labels, settings.shards, stratified=classification, rng=rng)
    if not classification:
        raise DataError(f"data > split: dirichlet cuts by class, and a {settings.task} has none for a sample: use iid")
    return dirichlet(labels, settings.shards, settings.concentration, rng)


def _fingerprint(dataset: Dataset, settings: "DataSettings", seed: int, *held_out: str) -> str:
    concentration = settings.concentration if settings.split == "dirichlet" else None
    facts = [_FORMAT, seed, settings.task, settings.shards, settings.split, concentration]
    x = dataset.x_train
    labels = [] if isinstance(x, Rows) and x.are_labels else [dataset.y_train]
    labels += [one for one in (dataset.weights_train, dataset.groups_train) if one is not None]
    content = x.content + content_sha256(*labels) if isinstance(x, Rows) else content_sha256(x, *labels)
    return hashlib.sha256((json.dumps(facts) + content + "".join(held_out)).encode()).hexdigest()


def _write(folder: Path, dataset: Dataset, cut: tuple[Indices, ...], fingerprint: str) -> tuple[ShardFile, ...]:
    folder.mkdir(parents=True, exist_ok=True)
    # Delete the old manifest first: until all files are replaced it would describe some of them wrongly.
    (folder / MANIFEST).unlink(missing_ok=True)
    paths = [folder / f"shard_{index:03d}.npz" for index in range(len(cut))]
    for stale in set(folder.glob("shard_*.npz")) - set(paths):
        stale.unlink()
    try:
        for path, members in zip(paths, cut, strict=True):
            y = None if dataset.predicts_itself else dataset.y_train[members]
            weights = None if dataset.weights_train is None else dataset.weights_train[members]
            write_split(path, in_memory(dataset.x_train)[members], y, weights)
        shards = tuple(
            ShardFile(path, index, len(members), path.stat().st_size)
            for index, (path, members) in enumerate(zip(paths, cut, strict=True))
        )
        _write_manifest(folder, shards, fingerprint)
    # Clean up after an interrupt by the user as well: half of a cut is useless, and the disk may be full.
    except BaseException:
        for path in paths:
            path.unlink(missing_ok=True)
        raise
    return shards


def _write_manifest(folder: Path, shards: tuple[ShardFile, ...], fingerprint: str, *, checked: bool = True) -> None:
    """Write shards.json.

    Args:
        folder: The shards' folder.
        shards: The shards.
        fingerprint: Of the data and how they are cut.
        checked: Record SHA-256 sums, so that shards are verified by content later and not only by size.
    """
    entries = [
        {
            "file": s.path.name,
            "samples": s.samples,
            "size_bytes": s.size_bytes,
            "sha256": file_sha256(s.path) if checked else None,
        }
        for s in shards
    ]
    manifest = {"format": _FORMAT, "fingerprint": fingerprint, "count": len(shards), "shards": entries}
    with atomic_write(folder / MANIFEST) as temporary:
        temporary.write_text(json.dumps(manifest, indent=1))


def _intact(folder: Path, fingerprint: str) -> tuple[ShardFile, ...] | None:
    """Return the shards of the manifest, or None when they do not match the job exactly."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
        if manifest["format"] != _FORMAT or manifest["fingerprint"] != fingerprint:
            return None
        shards = []
        for index, entry in enumerate(manifest["shards"]):
            path = folder / f"shard_{index:03d}.npz"
            if entry["file"] != path.name or path.stat().st_size != entry["size_bytes"]:
                return None
            # Shards of a streamed source have no sums, because they may be too large to be read at each start.
            if entry["sha256"] is not None and file_sha256(path) != entry["sha256"]:
                return None
            shards.append(ShardFile(path, index, int(entry["samples"]), path.stat().st_size))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return tuple(shards) if len(shards) == manifest["count"] else None
