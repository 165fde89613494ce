"""Load a user's function `module:function`; its module is searched in the job file's folder first."""

import importlib
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vcdl.errors import VcdlError


@contextmanager
def users_function(name: str, folder: Path | None, error_kind: type[VcdlError]) -> Iterator[Callable[..., Any]]:
    """Import a user's `module:function` and yield the function. Code in the block may import modules of `folder`.

    Afterwards the modules that lie in `folder` are forgotten, as another job may have modules of the same names.

    Args:
        name: `module:function`.
        folder: Where its module is searched first; None: only the Python path is searched.
        error_kind: The exception that is raised when the function is missing, or its module fails.
    """
    module_name, _, function_name = name.partition(":")
    with _importable(module_name, folder):
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            # If the module exists and one of its own imports is missing, the user needs to see the line of that import.
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise user_code_error(name, error, error_kind) from error
            where = f"in {folder} or " if folder else ""
            raise error_kind(f"{name}: there is no module {error.name} {where}on the Python path") from error
        except (Exception, SystemExit) as error:  # the user's module may fail in any way
            raise user_code_error(name, error, error_kind) from error
        function = getattr(module, function_name, None)
        if not callable(function):
            raise error_kind(f"{name}: {module_name} has no function {function_name!r}")
        yield function


def user_code_error(name: str, error: BaseException, error_kind: type[VcdlError]) -> VcdlError:
    """Return an error that names the place in the user's code where an exception was raised.

    The place is the innermost frame that is neither in Python, nor in an installed package, nor in VCDL.

    Args:
        name: `module:function`, which is named if no such frame exists.
        error: The exception.
        error_kind: The class of the returned error.
    """
    # Libraries often raise for a mistake in the user's code, so frames outside that code are skipped.
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else name
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename}:{error.lineno}"
    reason = " ".join(str(error).split())[:300]
    return error_kind(f"{where}: {name} failed: {type(error).__name__}: {reason}")


def _is_users(filename: str) -> bool:
    ours = str(Path(__file__).parent.parent)
    return not (
        filename.startswith(("<", ours, sys.base_prefix)) or "site-packages" in filename or "dist-packages" in filename
    )


@contextmanager
def _importable(module_name: str, folder: Path | None) -> Iterator[None]:
    """Put `folder` first on the module path for the block, and forget the modules imported from it afterwards.

    Modules with the name of `module_name`'s package are dropped before, as another job may have one of the same name.
    """
    if folder is None:
        yield
        return
    path, modules = list(sys.path), dict(sys.modules)
    top = module_name.partition(".")[0]
    if (folder / top).is_dir() or (folder / f"{top}.py").is_file():
        # A module of the same name from another job may still be imported, and Python would return it instead of this
        # job's.
        for name in [name for name in modules if name.partition(".")[0] == top]:
            del sys.modules[name]
    sys.path.insert(0, str(folder))
    # A recently written file may be missing in the importer's cache of the folder.
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = path
        for name in [name for name, module in sys.modules.items() if _lies_in(module, folder)]:
            del sys.modules[name]
        sys.modules.update({name: module for name, module in modules.items() if name not in sys.modules})


def _lies_in(module: Any, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and Path(file).is_relative_to(folder)
