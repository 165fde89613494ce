"""Weight stores: the shared weights, versioned, with each result applied exactly once."""

from vcdl.stores.base import Applied, Boundary, Fold, WeightStore
from vcdl.stores.file import FileStore

__all__ = ["Applied", "Boundary", "FileStore", "Fold", "WeightStore"]
