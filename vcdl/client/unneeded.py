"""Packages that Keras imports where they are and no training needs: a third of the time of a client's start."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

UNNEEDED = frozenset({"IPython", "matplotlib", "pandas", "PIL", "pydot", "sklearn", "tensorboard"})
"""Packages that Keras asks for in `try … except ImportError`. Not SciPy: JAX and a layer of Keras need it."""


class _ImportBlocker(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] in UNNEEDED:
            raise ModuleNotFoundError(f"No module named {fullname!r}: no training needs it", name=fullname)
        return None


@contextmanager
def unneeded_hidden() -> Iterator[None]:
    """Hide them while the block imports Keras: the process itself imports some of them later."""
    hidden = _ImportBlocker()
    sys.meta_path.insert(0, hidden)
    try:
        yield
    finally:
        sys.meta_path.remove(hidden)


@contextmanager
def unneeded_shown() -> Iterator[None]:
    """Let the block import some of them in a process that hid them."""
    hidden = [finder for finder in sys.meta_path if isinstance(finder, _ImportBlocker)]
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder not in hidden]
    try:
        yield
    finally:
        sys.meta_path[:0] = hidden


def hide_unneeded() -> None:
    """Hide them from this process; to be called before Keras is imported."""
    sys.meta_path.insert(0, _ImportBlocker())
