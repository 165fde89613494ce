"""A model from the user's own Python function, which runs on the server only; volunteers get the resulting JSON."""

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vcdl.errors import ModelError
from vcdl.wire.inputs import InputShape, Outputs


def call_builder(name: str, input_shape: InputShape, outputs: Outputs, folder: Path | None) -> Any:
    """The keras.Model that `module:function` returns when called with `(input_shape, outputs)`, or with
    nothing.

    The module is looked up in `folder` first. Raises ModelError, with file and line when the user's code
    failed.
    """
    module_name, _, function_name = name.partition(":")
    with _importable(module_name, folder):
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise _failed(name, error) from error
            where = f"in {folder} or " if folder else ""
            raise ModelError(f"{name}: there is no module {error.name} {where}on the Python path") from error
        except (Exception, SystemExit) as error:  # the user's module may fail in any way
            raise _failed(name, error) from error
        function = getattr(module, function_name, None)
        if not callable(function):
            raise ModelError(f"{name}: {module_name} has no function {function_name!r}")
        arguments = (input_shape, outputs) if _takes_two(name, function) else ()
        try:
            model = function(*arguments)
        except (Exception, SystemExit) as error:  # the user's function may fail in any way
            raise _failed(name, error) from error
    import keras

    if not isinstance(model, keras.Model):
        raise ModelError(f"{name} returned {type(model).__name__}, expected a keras.Model")
    return model


def _takes_two(name: str, function: Callable[..., Any]) -> bool:
    signature = inspect.signature(function)
    for arguments in ((), ((1,), 1)):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return len(arguments) == 2
    raise ModelError(f"{name} takes {signature}, expected no arguments or (input_shape, outputs)")


def _failed(name: str, error: BaseException) -> ModelError:
    """The error with the innermost frame of the user's own code, not of Python, an installed package or VCDL."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else name
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename}:{error.lineno}"
    reason = " ".join(str(error).split())[:300]
    return ModelError(f"{where}: the model's function failed: {type(error).__name__}: {reason}")


def _is_users(filename: str) -> bool:
    ours = str(Path(__file__).parent.parent)
    return not (
        filename.startswith(("<", ours, sys.base_prefix)) or "site-packages" in filename or "dist-packages" in filename
    )


@contextmanager
def _importable(module_name: str, folder: Path | None) -> Iterator[None]:
    """Put `folder` first on the module path, as for `python FILE` in it.

    Its modules are imported anew and forgotten afterwards. One program may build jobs of several folders, each with a
    model.py, and the file may be edited meanwhile.
    """
    if folder is None:
        yield
        return
    path, modules = list(sys.path), dict(sys.modules)
    top = module_name.partition(".")[0]
    if (folder / top).is_dir() or (folder / f"{top}.py").is_file():
        for name in [name for name in modules if name.partition(".")[0] == top]:
            del sys.modules[name]
    sys.path.insert(0, str(folder))
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
