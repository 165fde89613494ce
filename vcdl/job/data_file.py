"""Explain why a path cannot be used for `data > npz` or `data > from`."""

from pathlib import Path

_WRITE = 'numpy.savez_compressed("data.npz", x_train=…, y_train=…)'
_PICKLE = f"is a pickle, which may run code and is never loaded: write its arrays into a .npz, {_WRITE}"
_FORMATS = {
    ".npz": "is read by `data > npz`, without `from`",
    ".xls": "is a workbook: save its sheet as .csv",
    ".xlsx": "is a workbook: save its sheet as .csv",
    ".feather": "is a Feather file: write it as Parquet",
    ".h5": f"is an HDF5 file: write its arrays into a .npz, {_WRITE}",
    ".hdf5": f"is an HDF5 file: write its arrays into a .npz, {_WRITE}",
    ".pkl": _PICKLE,
    ".pickle": _PICKLE,
    ".tfrecord": f"is a file of TensorFlow's records: write its samples into a .npz, {_WRITE}",
    ".zip": "is an archive: unpack it, and name the folder",
    ".tar": "is an archive: unpack it, and name the folder",
    ".gz": "is an archive: unpack it, and name what was in it",
}
_READ_BY_FROM = frozenset({".csv", ".tsv", ".parquet", ".pq", ".npy", ".txt"})


def never_read(path: Path) -> str | None:
    """Return a sentence for users: why `data > from` cannot read a path and what to do. None if no reason is known."""
    what = _FORMATS.get(path.suffix.lower())
    return what and f"{path.name} {what}"


def not_an_npz(path: Path) -> str | None:
    """Return a sentence for users: why a path is no .npz file and what to write instead. None if it may be one."""
    if path.suffix.lower() in _READ_BY_FROM:
        return f"{path.name} is no .npz file: write `from: {path.name}` instead of npz"
    if path.suffix.lower() != ".npz" and (wrong := never_read(path)) is not None:
        return wrong
    try:
        is_folder = path.is_dir()
    except OSError:
        is_folder = False
    return f"{path.name or path} is a folder: write `from: {path.name or path}` instead of npz" if is_folder else None
