"""Say in one line why a workunit could not be trained."""

from vcdl.errors import VcdlError

_OUT_OF_MEMORY = frozenset({"MemoryError", "_ArrayMemoryError", "ResourceExhaustedError", "OutOfMemoryError"})
"""Of Python, NumPy, TensorFlow and PyTorch (JAX: RESOURCE_EXHAUSTED); by name, since no backend is imported here."""
_LIMIT_CHARACTERS = 500


def describe(error: Exception) -> str:
    """What happened and, where that is known, what to do: one line, whatever the library behind it prints."""
    text = " ".join(str(error).split())[:_LIMIT_CHARACTERS]
    if type(error).__name__ in _OUT_OF_MEMORY or text.startswith("RESOURCE_EXHAUSTED"):
        return "out of memory: lower training.batch_size, or run fewer workers at a time"
    return text if isinstance(error, VcdlError) else f"{type(error).__name__}: {text}"
