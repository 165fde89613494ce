"""Modules that Keras and TensorFlow import and that no training needs: scikit-learn, plots, names of TensorFlow.

They would take half of the time and a tenth of the memory of a client's start.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import LazyLoader
from types import ModuleType

UNNEEDED = frozenset({"IPython", "matplotlib", "pandas", "PIL", "pydot", "sklearn", "tensorboard"})
"""Keras asks for each in `try … except ImportError`. Not SciPy: JAX and a layer of Keras need it."""
_NAMES = "tensorflow._api.v2."
"""Lists of TensorFlow's public names: a thousand modules are imported only to have theirs here."""
_KERAS_2 = "tensorflow.python.keras"
"""TensorFlow's own Keras 2, of which `tf.nn` names three classes that no training uses."""


class _ImportBlocker(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] in UNNEEDED:
            raise ModuleNotFoundError(f"No module named {fullname!r}: no training needs it", name=fullname)
        return None


class _NameDeferrer(MetaPathFinder):
    """Lists of names are executed when one of the names is used; those of Keras 2 are None."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if f"{fullname}.".startswith(f"{_KERAS_2}."):
            return ModuleSpec(fullname, _NoneLoader(), is_package=True)
        if not fullname.startswith(_NAMES):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = LazyLoader(spec.loader)
        return spec


class _NoneLoader(Loader):
    """A module in which every name is None."""

    def create_module(self, _spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__getattr__"] = lambda _name: None


@contextmanager
def unneeded_hidden() -> Iterator[None]:
    """Let Keras be imported without them in a process that needs some of them itself, later."""
    hidden = _ImportBlocker()
    sys.meta_path.insert(0, hidden)
    try:
        yield
    finally:
        sys.meta_path.remove(hidden)


def hide_unneeded() -> None:
    """Let this process do without them; to be called before Keras is imported."""
    sys.meta_path[:0] = [_ImportBlocker(), _NameDeferrer()]
