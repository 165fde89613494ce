"""Find the parts of a source by the names of folders: `train`, `validation`, `test`."""

from collections.abc import Mapping
from pathlib import Path

_NAMES = {"train": ("train",), "val": ("val", "validation", "valid"), "test": ("test",)}


def part_folders(path: Path) -> Mapping[str, Path]:
    """Return the folders below `path` that are parts of a source, by part; none if there is no training part."""
    found = {part: path / name for part, names in _NAMES.items() for name in names if (path / name).is_dir()}
    return found if "train" in found else {}
