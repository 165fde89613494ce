"""Convert settings that a Python program gives as keyword arguments to those of a job file."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vcdl.errors import JobError


def plain(value: Any, at: str) -> Any:
    """Convert a value to what YAML can express: NumPy numbers and arrays become Python's, a path becomes text.

    Args:
        value: The value, or lists and dicts of values.
        at: The key that it is for, for messages.

    Raises:
        JobError: It has no form in YAML.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(inner, f"{at} > {key}") for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner, f"{at} > {number}") for number, inner in enumerate(value, 1)]
    if isinstance(value, Path):
        return str(value)
    # By attributes, so that NumPy need not be imported for plain settings.
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        return plain(value.tolist(), at)
    raise JobError(f"{at}: expected a number, a text, or lists and keys of them, got a {type(value).__name__}")


def as_overrides(sections: Mapping[str, Any]) -> tuple[str, ...]:
    """Return sections as settings of the command line: `{"stop": {"epochs": 2}}` becomes `stop.epochs=2`.

    Raises:
        JobError: A value has no form in YAML.
    """
    return tuple(_overrides(sections))


def _overrides(sections: Mapping[str, Any]) -> Iterator[str]:
    for section, value in sections.items():
        if isinstance(value, Mapping):
            for key, inner in value.items():
                yield f"{section}.{key}={json.dumps(plain(inner, f'{section} > {key}'))}"
        else:
            yield f"{section}={json.dumps(plain(value, section))}"
