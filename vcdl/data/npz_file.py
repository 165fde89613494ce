"""Read and write `.npz` files without pickles: the user's own data set, and the shards and splits that VCDL writes."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vcdl.client.memory import available_memory_bytes
from vcdl.data.dataset import DataSource, Facts, Part, make_part, name_labels, number_labels, outputs_of
from vcdl.data.outputs import make_part_with_outputs, number_output_labels
from vcdl.data.rows import Array, shape_of
from vcdl.errors import LOST_CURE, DataError, data_file_error
from vcdl.files.atomic import atomic_write
from vcdl.wire.inputs import array_name, format_shape, pack_inputs, sample_shape
from vcdl.wire.jpeg import ENDS, SHAPE, JpegSamples, read_inputs
from vcdl.wire.npz_form import ArrayHeader, NpzError, NpzFile, NpzObjectsError, open_npz
from vcdl.wire.task import HAS_CLASSES

if TYPE_CHECKING:
    from vcdl.job.data import DataSettings

_LARGEST_WEIGHT = 1e6
"""Largest weight of a sample, because larger ones would leave the others without effect in float32."""


def load(path: Path, settings: "DataSettings") -> DataSource:
    """Load and check the data set in a `.npz` file: the arrays x_train, y_train, and those of val and test that exist.

    For several inputs the arrays are x_train_NAME.

    Raises:
        DataError: The file is no valid data set.
        FileUnavailable: It cannot be read now.
    """
    with _open(path) as file:
        parts = {part: _part(file, part, settings, path) for part in _parts(file.names, settings, path)}
        weights = _weights(file, len(parts["train"]), path)
        groups = None if settings.by is None else _groups(file, settings.by, len(parts["train"]), path)
    train = parts["train"]
    for name, part in parts.items():
        # All parts must have the shape of the training samples, for which the model is built. Otherwise the evaluation
        # on the server would fail, much later.
        if shape_of(part.x) != shape_of(train.x) or sample_shape(part.y) != sample_shape(train.y):
            own, of_train = (
                f"{format_shape(shape_of(one.x))} → {format_shape(sample_shape(one.y))}" for one in (part, train)
            )
            raise DataError(
                f"{path.name}: a sample of {name} has shape {own}, one of train {of_train}: they must agree"
            )
    source = DataSource(replace(train, weights=weights, groups=groups), parts.get("val"), parts.get("test"))
    return _number_labels(source, settings, path)


def facts(path: Path, settings: "DataSettings") -> Facts:
    """Return the data set's shapes and counts, reading only the arrays' headers and the labels.

    Raises:
        DataError: The file is no valid data set.
        FileUnavailable: It cannot be read now.
    """
    task = settings.task
    with _open(path) as file:
        found = _parts(file.names, settings, path)
        # Large inputs stay on the disk, because `check` and `new` need only shapes and labels.
        stands_in = {part: _stand_in(file, part, path) for part in found}
        counts = {part: len(x) for part, x in stands_in.items()}
        if task == "autoencoder":
            parts = {part: Part(x, x) for part, x in stands_in.items()}
        else:
            parts = {part: _read_part(file, part, x, settings, path) for part, x in stands_in.items()}
    source = _number_labels(DataSource(parts["train"], parts.get("val"), parts.get("test")), settings, path)
    train = stands_in["train"]
    label_bytes = 0 if task == "autoencoder" else source.train.y[:1].nbytes
    return Facts(
        input_shape=sample_shape(train),
        outputs=outputs_of(source.train.y, source.classes, source.classes_by_output),
        train_samples=counts["train"],
        val_samples=counts.get("val", 0),
        test_samples=counts.get("test", 0),
        sample_bytes=train[:1].nbytes + label_bytes,
    )


def write_split(path: Path, x: Array, y: Array | None, weights: Array | None = None) -> None:
    """Write samples and labels into a compressed file, atomically.

    Args:
        path: The file.
        x: Samples.
        y: Labels; None: they are `x`, as for an autoencoder.
        weights: Weight of each sample; None: all equal.

    Raises:
        OSError: The file cannot be written.
    """
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        arrays = {"x": x, "y": y, "weights": weights}
        np.savez_compressed(file, allow_pickle=False, **{k: array for k, array in arrays.items() if array is not None})


def read_split(path: Path) -> tuple[Array, Array]:
    """Read `x` and `y` of a shard or of held-out samples into memory; without labels in the file, y is x.

    Raises:
        DataError: The file is damaged, or is not a shard.
        FileUnavailable: It cannot be read now.
    """
    with _open(path, LOST_CURE) as file:
        x = _inputs_of(file, path)
        y = _labels_in(file, path) if "y" in file.names else x
    if x.ndim == 0 or y.ndim == 0 or len(x) != len(y):
        raise DataError(f"{path.name}: x has shape {x.shape} and y {y.shape}: it is damaged, or not a shard")
    return x, y


def map_split(path: Path) -> tuple[Array | JpegSamples, Array | JpegSamples]:
    """Return `x` and `y` of a shard or of held-out samples; `x` is memory-mapped if it is not compressed.

    Without labels in the file, y is x.

    Raises:
        DataError, FileUnavailable: The file is damaged, or cannot be read now.
    """
    with _open(path) as file:
        try:
            x = file.map_array("x")
            # A compressed member cannot be mapped: VCDL writes data that were in memory in this form.
            if x is None:
                return read_split(path)
            is_jpeg = ENDS in file.names
            mapped = JpegSamples(x, file.read(ENDS), file.read(SHAPE)) if is_jpeg else x
        except NpzError as error:
            raise _damaged_error("x", path, error) from error
        y = _labels_in(file, path) if "y" in file.names else mapped
    if len(mapped) != len(y):
        raise DataError(f"{path.name}: x has shape {mapped.shape} and y {y.shape}: it is damaged, or not a shard")
    return mapped, y


def _labels_in(file: NpzFile, path: Path) -> Array:
    """Read the labels; class numbers are int32, although files store them in a smaller type."""
    y = _array(file, "y", path)
    return y.astype(np.int32) if y.dtype.kind in "iu" and y.dtype.itemsize < np.dtype(np.int32).itemsize else y


def _inputs_of(file: NpzFile, path: Path) -> Array:
    if ENDS not in file.names:
        return _array(file, "x", path)
    try:
        return read_inputs(file)
    except NpzError as error:
        raise _damaged_error("x", path, error) from error


def read_weights_of(path: Path) -> Array | None:
    """Return the weight of each sample of a shard or of held-out samples, or None if all are equal.

    Raises:
        DataError, FileUnavailable: The file is damaged, or cannot be read now.
    """
    with _open(path) as file:
        return _array(file, "weights", path) if "weights" in file.names else None


@contextmanager
def _open(path: Path, missing: str = "check the name and the folder") -> Iterator[NpzFile]:
    try:
        with open_npz(path) as file:
            yield file
    except NpzError as error:
        raise DataError(
            f"{path} is not a whole .npz file ({error}): write x_train and y_train with numpy.savez_compressed"
        ) from error
    except OSError as error:
        raise data_file_error(path, error, missing) from error


def _parts(names: list[str], settings: "DataSettings", path: Path) -> list[str]:
    """Return the parts (train, val, test) whose arrays exist in the file. Raises DataError if one is incomplete.

    A part needs x, and y unless x itself is predicted.
    """
    if "indptr" in names:
        raise DataError(f"{path.name} is a sparse matrix of SciPy: save x_train=matrix.toarray() with y_train")
    found = []
    for part in ("train", "val", "test"):
        x, labels = bool(_inputs(names, part)), _labels_of(part, settings)
        y = not {*labels}.isdisjoint(names) if labels else x
        missing = [name for name in labels if name not in names] if x else [f"x_{part}"]
        if (x or y or part == "train") and missing:
            raise DataError(f"{path.name} has no {missing[0]}: it holds {', '.join(sorted(names)) or 'nothing'}"[:500])
        if x:
            found.append(part)
    return found


def _inputs(names: list[str], part: str) -> dict[str, str]:
    """Return the names of the arrays of a part's inputs, keyed by input; "" is the key of a single one."""
    whole = f"x_{part}"
    if whole in names:
        return {"": whole}
    return {name.removeprefix(f"{whole}_"): name for name in sorted(names) if name.startswith(f"{whole}_")}


def _samples(file: NpzFile, part: str, path: Path) -> Array:
    inputs = _inputs(file.names, part)
    arrays = {name: _array(file, array, path) for name, array in inputs.items()}
    lengths = {inputs[name]: x.shape[:1] for name, x in arrays.items()}
    if len(set(lengths.values())) > 1 or () in lengths.values():
        counted = ", ".join(f"{array} has {length[0] if length else 'no'}" for array, length in lengths.items())
        raise DataError(f"{path.name}: {counted} samples: the numbers must agree")
    return arrays[""] if "" in arrays else pack_inputs(arrays)


def _labels_of(part: str, settings: "DataSettings") -> list[str]:
    """Return the names of the arrays of a part's labels; none for an autoencoder."""
    if settings.task == "autoencoder":
        return []
    return [array_name(f"y_{part}", output.name) for output in settings.outputs or ()] or [f"y_{part}"]


def _part(file: NpzFile, part: str, settings: "DataSettings", path: Path) -> Part:
    x = _samples(file, part, path)
    if settings.task != "autoencoder":
        return _read_part(file, part, x, settings, path)
    with _naming(path):
        # An autoencoder has no labels: use constant ones, so that its inputs pass the same checks.
        make_part(part, x, np.broadcast_to(0.0, x.shape[:1]), settings.task)
    _refuse_several(x, path)
    return Part(x, x)


def _refuse_several(x: Array, path: Path) -> None:
    """Refuse several inputs for an autoencoder. Raises DataError."""
    if x.dtype.names is not None:
        raise DataError(f"{path.name}: data > task: autoencoder takes one input, not {len(x.dtype.names)}")


def _weights(file: NpzFile, samples: int, path: Path) -> Array | None:
    if "weight_train" not in file.names:
        return None
    weights = _array(file, "weight_train", path)
    if weights.shape != (samples,) or weights.dtype.kind not in "iuf":
        raise DataError(
            f"{path.name}: weight_train has shape {weights.shape} of {weights.dtype}, expected one number for each of "
            f"the {samples} samples"
        )
    if not np.isfinite(weights).all() or weights.min() < 0 or weights.max() > _LARGEST_WEIGHT or not weights.any():
        raise DataError(
            f"{path.name}: weight_train goes from {weights.min():g} to {weights.max():g}, expected finite numbers ≥ 0, "
            "and not all of them 0"
        )
    return weights.astype(np.float32)


def _groups(file: NpzFile, by: str, samples: int, path: Path) -> Array:
    """Return the number of each training sample's group, in the order of the groups' values. Raises DataError."""
    name = f"{by}_train"
    if name not in file.names:
        raise DataError(f"{path.name} has no array {name}, by which data > by: {by} cuts the shards")
    values = _array(file, name, path)
    if values.shape != (samples,) or values.dtype.kind not in "biufUSM":
        raise DataError(
            f"{path.name}: {name} has shape {values.shape} of {values.dtype}, expected one number, text or time for "
            f"each of the {samples} samples"
        )
    groups: Array = np.unique(values, return_inverse=True)[1]
    return groups


def _stand_in(file: NpzFile, part: str, path: Path) -> Array:
    """Return zeros in the shape and type of a part's samples, without memory for them. Raises DataError.

    With them, labels can be checked without reading the samples.
    """
    headers = {name: _header(file, array, path) for name, array in _inputs(file.names, part).items()}
    if "" in headers:
        # Strides of 0 give the shape and type of any number of samples with the memory of one element.
        return np.broadcast_to(np.zeros((), headers[""].dtype), headers[""].shape)
    sample = np.zeros((), [(name, header.dtype, header.shape[1:]) for name, header in headers.items()])
    return np.broadcast_to(sample, (min(header.shape[0] for header in headers.values()),))


def _number_labels(source: DataSource, settings: "DataSettings", path: Path) -> DataSource:
    with _naming(path):
        if settings.outputs is not None:
            return number_output_labels(source, settings.outputs)
        if settings.task == "multi_label":
            return name_labels(source, settings.classes)
        return number_labels(source, settings.classes, settings.mask) if settings.task in HAS_CLASSES else source


def _read_part(file: NpzFile, part: str, x: Array, settings: "DataSettings", path: Path) -> Part:
    """Read the labels of a part, and return the checked part. Raises DataError."""
    labels = {name: _array(file, name, path) for name in _labels_of(part, settings)}
    with _naming(path):
        if settings.outputs is None:
            return make_part(part, x, labels[f"y_{part}"], settings.task)
        by_output = {output.name: labels[array_name(f"y_{part}", output.name)] for output in settings.outputs}
        return make_part_with_outputs(part, x, by_output, settings.outputs)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Prefix errors about the data with the name of the file."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path.name}: {error}") from error


def _array(file: NpzFile, name: str, path: Path) -> Array:
    """Read an array.

    Raises:
        DataError: The array is damaged, or larger than the free memory, so that Linux would kill this process.
    """
    try:
        header = file.header(name)
        needed_bytes = math.prod(header.shape) * header.dtype.itemsize
        # Compare with the free memory, because Linux overcommits: it would kill this process instead of raising a
        # MemoryError.
        free_bytes = available_memory_bytes()
        if free_bytes is not None and needed_bytes > free_bytes:
            raise MemoryError
        return file.read(name)
    except NpzError as error:
        raise _damaged_error(name, path, error) from error
    except MemoryError as error:
        gib = needed_bytes / 2**30
        raise DataError(
            f"{path.name}: {name} needs {gib:.1f} GiB of memory, more than is free: use fewer samples"
        ) from error


def _header(file: NpzFile, name: str, path: Path) -> ArrayHeader:
    try:
        header = file.header(name)
    except NpzError as error:
        raise _damaged_error(name, path, error) from error
    if len(header.shape) < 2:
        raise DataError(f"{path.name}: {name} has shape {header.shape}, expected (samples, …): one row for each sample")
    if 0 in header.shape:
        raise DataError(f"{path.name}: {name} is empty: it has shape {header.shape}")
    return header


def _damaged_error(name: str, path: Path, error: NpzError) -> DataError:
    if isinstance(error, NpzObjectsError):
        return DataError(f"{path.name}: {name} holds Python objects, expected numbers: save it as one plain array")
    return DataError(f"{path.name}: {name} cannot be read ({error}): the file is damaged, write it again")
