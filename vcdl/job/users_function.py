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
    """Yield the function of `module:function`, which may import from `folder` inside the block.

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
            # The module exists, and something that it imports does not: the user needs to see where.
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
    """Return the error for an exception in a user's code, with its innermost frame outside Python, packages, VCDL."""
    # The innermost frame of the user's own code is where the fault is, whatever library raised.
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
    """Put `folder` first on the module path; its modules are imported anew and forgotten, as jobs may share names."""
    if folder is None:
        yield
        return
    path, modules = list(sys.path), dict(sys.modules)
    top = module_name.partition(".")[0]
    if (folder / top).is_dir() or (folder / f"{top}.py").is_file():
        # A module of this name from another job is still imported.
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
