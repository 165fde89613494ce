"""Find the settings of a job that differ from the defaults."""

import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from vcdl.errors import without_passwords
from vcdl.job import Job


def own_settings(job: Job) -> dict[str, tuple[str, str]]:
    """Return the settings of a job that differ from their defaults.

    Returns:
        Key, such as `training.batch_size` → value and default as text, with passwords masked. None is an empty text.
    """
    return {key: (_format_value(value), _format_value(default)) for key, value, default in _differing(job, None, "")}


def _differing(section: BaseModel, usual: object, at: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield key, value and default of each setting of a section that differs.

    `usual` is the section's default, if its parent has one; `at` is the prefix of its keys.
    """
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        # The default of a section may differ from its class's, as the parent can set some of its keys.
        if isinstance(usual, type(section)):
            default = getattr(usual, name)
        else:
            default = None if field.is_required() else field.get_default(call_default_factory=True)
        if isinstance(value, BaseModel):
            yield from _differing(value, default, f"{at}{field.alias or name}.")
        elif value != default:
            yield f"{at}{field.alias or name}", value, default


def _format_value(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(to_jsonable_python(value), ensure_ascii=False)
    # The URL of a store or a data set may contain a password, and the result is shown on pages and sent to trackers.
    return without_passwords(text)
