"""Packages that Keras imports where they are and no training needs: a third of the time of a client's start.

`None` in `sys.modules` is Python's own mark for a module that is not there: an import raises ModuleNotFoundError, and
`importlib.util.find_spec` returns None. A finder that raises does for the former alone, and PyTorch asks the latter.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import cast

UNNEEDED = frozenset({"IPython", "matplotlib", "pandas", "PIL", "pydot", "sklearn", "tensorboard"})
"""Packages that Keras asks for in `try … except ImportError`. Not SciPy: JAX and a layer of Keras need it."""
_modules = cast(dict[str, ModuleType | None], sys.modules)


def hide_unneeded() -> set[str]:
    """Hide those that are not imported yet from this process, before it imports Keras; returns their names."""
    hidden = {name for name in UNNEEDED if name not in _modules}
    _modules.update(dict.fromkeys(hidden))
    return hidden


@contextmanager
def unneeded_hidden() -> Iterator[None]:
    """Hide them while the block imports Keras: the process itself imports some of them later."""
    hidden = hide_unneeded()
    try:
        yield
    finally:
        _show(hidden)


@contextmanager
def unneeded_shown() -> Iterator[None]:
    """Let the block import some of them in a process that hid them."""
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
