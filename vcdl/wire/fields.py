"""The fields of a JSON object with type and range; what differs raises WorkunitError. Standard library only."""

import json
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from vcdl.errors import WorkunitError

FORMAT = 3
"""Format number of workunit.json and of an update's header; a client refuses any other."""


def read_object(
    content: str, what: str, keys: set[str], may_lack: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """The fields of a JSON object; `may_lack`: what keys stand for that older versions do not write."""
    try:
        raw = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise WorkunitError(f"{what} is not JSON ({error}): it was cut short or overwritten") from error
    written = raw.get("format", FORMAT) if isinstance(raw, dict) else FORMAT
    if type(written) is not int or written != FORMAT:  # checked first: another format has other keys
        raise WorkunitError(f"{what} is of another format than {FORMAT}: client and server differ in version")
    raw = checked_fields(raw, what, keys, may_lack)
    del raw["format"]
    return raw


def checked_fields(
    raw: Any, what: str, keys: set[str], may_lack: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """The fields of an object that has exactly these keys."""
    raw = {**may_lack, **raw} if isinstance(raw, dict) else raw
    if not isinstance(raw, dict) or set(raw) != keys:
        got = sorted(raw) if isinstance(raw, dict) else type(raw).__name__
        raise WorkunitError(f"{what}: expected the keys {sorted(keys)}, got {str(got)[:500]}")
    return dict(raw)


def text(raw: dict[str, Any], key: str) -> str:
    value = raw[key]
    if not isinstance(value, str) or not 0 < len(value) <= 300:
        raise WorkunitError(f"{key}: expected a short text, got {str(value)[:100]!r}")
    return value


def count(raw: dict[str, Any], key: str, at_least: int = 0) -> int:
    value = raw[key]
    if isinstance(value, bool) or not isinstance(value, int) or not at_least <= value < 2**63:
        raise WorkunitError(f"{key}: expected a whole number ≥ {at_least}, got {str(value)[:100]!r}")
    return value


def flag(raw: dict[str, Any], key: str) -> bool:
    if not isinstance(raw[key], bool):
        raise WorkunitError(f"{key}: expected true or false, got {str(raw[key])[:100]!r}")
    return bool(raw[key])


def number(raw: dict[str, Any], key: str) -> float:
    return finite(raw[key], key)


def finite(value: Any, key: str) -> float:
    try:
        if not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        pass
    raise WorkunitError(f"{key}: expected a finite number, got {str(value)[:100]!r}")


def numbers(raw: dict[str, Any], key: str) -> tuple[float, ...]:
    if not isinstance(raw[key], list):
        raise WorkunitError(f"{key}: expected a list of numbers, got {str(raw[key])[:100]!r}")
    return tuple(finite(value, key) for value in raw[key])
