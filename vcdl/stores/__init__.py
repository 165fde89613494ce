"""Weight stores: the shared weights, versioned, with each result applied exactly once."""

from vcdl.stores.base import Applied, Fold, WeightStore
from vcdl.stores.file import FileStore

__all__ = ["Applied", "FileStore", "Fold", "WeightStore"]
