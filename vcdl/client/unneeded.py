"""Hide packages that Keras imports if installed although no training needs them: a third of a client's start time.

`None` in `sys.modules` is Python's own mark for a missing module: an import raises ModuleNotFoundError, and
`importlib.util.find_spec` returns None. A finder that raises would satisfy only the import, and PyTorch calls
`find_spec`.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import cast

UNNEEDED = frozenset({"IPython", "matplotlib", "pandas", "PIL", "pydot", "sklearn", "tensorboard"})
"""Packages that Keras imports in `try … except ImportError`. SciPy is not one: JAX and a layer of Keras need it."""
_modules = cast(dict[str, ModuleType | None], sys.modules)


def hide_unneeded() -> set[str]:
    """Hide those packages from this process that it has not imported yet, and return their names.

    Call it before Keras is imported.
    """
    hidden = {name for name in UNNEEDED if name not in _modules}
    _modules.update(dict.fromkeys(hidden))
    return hidden


@contextmanager
def unneeded_hidden() -> Iterator[None]:
    """Hide the packages within the block, which imports Keras: the process itself imports some of them later."""
    hidden = hide_unneeded()
    try:
        yield
    finally:
        _show(hidden)


@contextmanager
def unneeded_shown() -> Iterator[None]:
    """Make hidden packages importable within the block."""
    hidden = {name for name in UNNEEDED if name in _modules and _modules[name] is None}
    _show(hidden)
    try:
        yield
    finally:
        if hidden:
            hide_unneeded()


def _show(names: set[str]) -> None:
    for name in names:
        if _modules.get(name, name) is None:
            del _modules[name]
