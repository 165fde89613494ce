"""VCDL: train a Keras model on several machines that you cannot rely on.

    import vcdl
    run = vcdl.train(model, x, y, epochs=5).wait()
    run.history.history["val_accuracy"], run.model()

docs/python.md explains it. Nothing heavy is imported before it is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from vcdl.files.version import __version__

if TYPE_CHECKING:
    from vcdl import errors
    from vcdl.api.elsewhere import connect
    from vcdl.api.handle import RunHandle as Run
    from vcdl.api.history import History
    from vcdl.api.job import JobFile as Job
    from vcdl.api.training import train
    from vcdl.journal import events

    open = Run.open

__all__ = ["History", "Job", "Run", "__version__", "connect", "errors", "events", "open", "train"]

_PLACES = {
    "History": "vcdl.api.history:History",
    "Job": "vcdl.api.job:JobFile",
    "Run": "vcdl.api.handle:RunHandle",
    "connect": "vcdl.api.elsewhere:connect",
    "errors": "vcdl.errors",
    "events": "vcdl.journal.events",
    "open": "vcdl.api.handle:RunHandle.open",
    "train": "vcdl.api.training:train",
}
"""The place of each name, which is imported when it is asked for."""


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _PLACES[name].partition(":")
    found: Any = importlib.import_module(module)
    for part in filter(None, attribute.split(".")):
        found = getattr(found, part)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
