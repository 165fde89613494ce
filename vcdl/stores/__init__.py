"""Weight stores: the shared weights, versioned, with each result applied exactly once."""

from vcdl.stores.base import Applied, Boundary, Fold, Unfit, WeightStore
from vcdl.stores.change import Change
from vcdl.stores.file import FileStore

__all__ = ["Applied", "Boundary", "Change", "FileStore", "Fold", "Unfit", "WeightStore"]
