"""What to say of `data > npz` when it names something else than a .npz file."""

from pathlib import Path

_WRITE = 'numpy.savez_compressed("data.npz", x_train=…, y_train=…)'
_TABLES = frozenset({".csv", ".tsv", ".xls", ".xlsx", ".parquet", ".feather"})
_READ_TABLE = "is a table: read it once, as with pandas"
_FORMATS = {
    ".npy": f"is a single array: put x_train and y_train into one file, {_WRITE}",
    ".h5": f"is an HDF5 file: write its arrays into a .npz, {_WRITE}",
    ".hdf5": f"is an HDF5 file: write its arrays into a .npz, {_WRITE}",
    ".pkl": f"is a pickle, which may run code and is never loaded: write its arrays into a .npz, {_WRITE}",
    ".pickle": f"is a pickle, which may run code and is never loaded: write its arrays into a .npz, {_WRITE}",
    ".tfrecord": f"is a file of TensorFlow's records: write its samples into a .npz, {_WRITE}",
    ".zip": f"is an archive: write its samples into a .npz, {_WRITE}",
    ".tar": f"is an archive: write its samples into a .npz, {_WRITE}",
    ".gz": f"is an archive: write its samples into a .npz, {_WRITE}",
}


def not_an_npz(path: Path) -> str | None:
    """Why a path is no .npz file, with what to do; None: it may be one."""
    scheme = str(path).partition(":/")[0] if ":/" in str(path) else ""
    if scheme.isalnum() and not path.is_absolute():
        copy = {"s3": " (aws s3 cp)", "gs": " (gcloud storage cp)"}.get(scheme, "")
        return f"{scheme}:// is not read: copy the file to this machine first{copy}, and give its path"
    if path.suffix.lower() in _TABLES:
        return f"{path.name} {_READ_TABLE}, and write its columns as numbers: {_WRITE}"
    if path.suffix.lower() in _FORMATS:
        return f"{path.name} {_FORMATS[path.suffix.lower()]}"
    try:
        is_folder = path.is_dir()
    except OSError:
        is_folder = False
    if is_folder:
        return (
            f"{path.name or path} is a folder: read its files once (images: keras.utils.image_dataset_from_directory), "
            f"and write all samples into one file, {_WRITE}"
        )
    return None
