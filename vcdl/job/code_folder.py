"""Read the Python files of a job's folder, which are sent with its model (vcdl.client.own_code)."""

import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vcdl.client.own_code import MOST_BYTES, MOST_FILES, OwnCode
from vcdl.errors import ModelError

_OF_EVERY_MODEL = ("self", "args", "kwargs", "name", "trainable", "dtype")


def read_code(folder: Path) -> OwnCode:
    """Read all Python files below a folder that can be imported, except links and hidden folders.

    Raises:
        ModelError: A file cannot be read; there are none, too many or too large ones; or one has the name of a module
            of Python.
    """
    files: dict[str, str] = {}
    left_bytes = MOST_BYTES
    # Files are read one by one and checked after each, so that a huge folder is refused before all of it is in memory.
    for path in _modules(folder):
        try:
            with path.open("rb") as file:
                # At most one byte above the limit is read, because the folder may be a whole project with large files
                # in it.
                content = file.read(left_bytes + 1)
            files[path.relative_to(folder).as_posix()] = content.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(f"model > code: {path} cannot be read ({error}): modules are in UTF-8") from error
        left_bytes -= len(content)
        if left_bytes < 0 or len(files) > MOST_FILES:
            raise ModelError(
                f"model > code: {folder} holds more than {MOST_FILES} Python files or {MOST_BYTES} bytes of them: "
                "give the job's modules a folder of their own"
            )
    if not files:
        raise ModelError(f"model > code: {folder} holds no Python file: give the folder of the job's modules")
    _refuse_names_of_python(folder, files)
    return OwnCode(files)


def _modules(folder: Path) -> Iterator[Path]:
    """Yield the paths of the Python files that can be imported, always in the same order for equal folders."""
    for where, folders, names in os.walk(folder):
        # The list is changed in place, so that os.walk follows this order: equal folders then give equal code.
        folders[:] = sorted(name for name in folders if name.isidentifier() and name != "__pycache__")
        for name in sorted(names):
            path = Path(where, name)
            if path.suffix == ".py" and path.stem.isidentifier() and path.is_file() and not path.is_symlink():
                yield path


def check_arguments(model: Any, code: OwnCode) -> None:
    """Refuse a model with a part, a Model class of the job's code, that Keras would recreate with default arguments.

    Args:
        model: The Keras model, whose nested models are checked too.
        code: The Python files that are sent with it; other classes are not checked.

    Raises:
        ModelError: A class has arguments in `__init__`, and no `get_config` of its own.
    """
    import keras

    for part in model._flatten_layers():
        kind = type(part)
        if not isinstance(part, keras.Model) or not code.brings(kind.__module__):
            continue
        arguments = [name for name in inspect.signature(kind.__init__).parameters if name not in _OF_EVERY_MODEL]
        # Keras' JSON has only the arguments that `get_config` returns: a client would build the model with the defaults
        # of the others, without an error.
        if "__init__" in vars(kind) and arguments and not any("get_config" in vars(one) for one in _own_classes(kind)):
            raise ModelError(
                f"{kind.__name__} takes {', '.join(arguments)}, and without get_config Keras recreates it with their "
                "defaults: define get_config, which returns {**super().get_config(), …} with these"
            )


def _own_classes(kind: type) -> Iterator[type]:
    return (one for one in kind.__mro__ if not one.__module__.startswith("keras.") and one is not object)


def _refuse_names_of_python(folder: Path, files: dict[str, str]) -> None:
    for path in files:
        top = path.partition("/")[0].removesuffix(".py")
        # On a client the job's folder comes first on the module path, so a `random.py` in it would break Keras itself.
        if top in sys.stdlib_module_names:
            raise ModelError(f"model > code: {folder / path} has the name of a module of Python, {top}: rename it")
