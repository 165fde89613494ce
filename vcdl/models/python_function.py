"""A model from the user's own Python function, which runs on the server only; volunteers get the resulting JSON."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vcdl.errors import ModelError
from vcdl.job.users_function import user_code_error, users_function
from vcdl.wire.inputs import InputShape, Outputs


def call_builder(name: str, input_shape: InputShape, outputs: Outputs, folder: Path | None) -> Any:
    """Call the user's `module:function` and return its model. Raises ModelError, with file and line."""
    with users_function(name, folder, ModelError) as function:
        arguments = (input_shape, outputs) if _takes_two(name, function) else ()
        try:
            model = function(*arguments)
        except (Exception, SystemExit) as error:  # the user's function may fail in any way
            raise user_code_error(name, error, ModelError) from error
    import keras

    if not isinstance(model, keras.Model):
        raise ModelError(f"{name} returned {type(model).__name__}, expected a keras.Model")
    return model


def _takes_two(name: str, function: Callable[..., Any]) -> bool:
    signature = inspect.signature(function)
    # A function whose arguments all have defaults is called without any, since they need not mean shape and outputs.
    for arguments in ((), ((1,), 1)):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return len(arguments) == 2
    raise ModelError(f"{name} takes {signature}, expected no arguments or (input_shape, outputs)")
