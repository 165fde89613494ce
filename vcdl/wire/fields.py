"""Strict decoding of a JSON object into a frozen dataclass, by the types of its fields. Standard library only.

Another machine wrote the text, so every deviation from the types raises WorkunitError. A field of the type
`Annotated[X, read]` is decoded by the function `read`, which gets the raw value and the field's name. A field marked
NEWER is unknown to older versions.
"""

import json
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from vcdl.errors import WorkunitError

FORMAT = 3
"""Format number of workunit.json and of an update's header; a reader refuses any other."""
NEWER = types.MappingProxyType({"newer": True})
"""Metadata of a field that was added without a new FORMAT. It is written only if it differs from its default, because
older readers refuse unknown keys; if it is missing, it has its default."""
_T = TypeVar("_T")


def read_object(cls: type[_T], content: str, what: str) -> _T:
    """Decode a text with a JSON object into a dataclass, after checking its `format`.

    Args:
        cls: The dataclass.
        content: The text.
        what: Its name in messages.

    Raises:
        WorkunitError: It is not such an object.
    """
    try:
        raw = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise WorkunitError(f"{what} is not JSON ({error}): it was cut short or overwritten") from error
    written = raw.get("format", FORMAT) if isinstance(raw, dict) else FORMAT
    if type(written) is not int or written != FORMAT:  # checked first: another format has other keys
        raise WorkunitError(f"{what} is of another format than {FORMAT}: client and server differ in version")
    try:
        return _decode(cls, raw, what, {"format"})
    except (RecursionError, TypeError, ValueError) as error:
        raise WorkunitError(f"{what}: {error}") from error


def to_raw(value: Any) -> Any:
    """Return a dataclass as dicts, lists and plain values that JSON can encode; return other values unchanged.

    Fields marked NEWER are omitted while they have their default, because older versions do not know them.
    """
    if isinstance(value, tuple):
        return [to_raw(one) for one in value]
    if not is_dataclass(value):
        return value
    known = ((each, getattr(value, each.name)) for each in fields(value))
    return {each.name: to_raw(it) for each, it in known if not (each.metadata.get("newer") and it == each.default)}


def positive(raw: Any, key: str) -> int:
    """Return a decoded whole number ≥ 1. Raises WorkunitError, which names the field `key`, for anything else."""
    if _count(raw, key) < 1:
        raise expected(key, "a whole number ≥ 1", raw)
    return int(raw)


@cache
def _types(cls: Any) -> Mapping[str, Any]:
    """Return field's name → its type, for a dataclass."""
    hints = get_type_hints(cls, include_extras=True)
    return {each.name: hints[each.name] for each in fields(cls)}


def _decode(cls: type[_T], raw: Any, what: str, extra_keys: set[str]) -> _T:
    """Decode an object into a dataclass.

    Args:
        cls: The dataclass.
        raw: The object.
        what: Its name in messages.
        extra_keys: Keys that the object may have in addition to the fields.

    Raises:
        WorkunitError: Keys or values are wrong.
    """
    kinds = _types(cls)  # type: ignore[arg-type]
    newer = {each.name: each.default for each in fields(cls) if each.metadata.get("newer")}  # type: ignore[arg-type]
    # Exactly these keys, because an unknown one may be a setting that this version would silently ignore.
    keys = kinds.keys() | extra_keys
    if not isinstance(raw, dict) or {*newer, *raw} != keys or not keys - newer.keys() <= raw.keys():
        got = sorted(raw) if isinstance(raw, dict) else type(raw).__name__
        raise WorkunitError(f"{what}: expected the keys {sorted(keys)}, got {str(got)[:500]}")
    return cls(**{name: _value(kind, raw[name], name) if name in raw else newer[name] for name, kind in kinds.items()})


def _value(kind: Any, raw: Any, key: str) -> Any:
    """Decode the value of a field of type `kind`; `key` names the field in messages."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return inner[1](raw, key)
    if origin in (Union, types.UnionType):  # X | None
        return None if raw is None else _value(inner[0], raw, key)
    if origin is tuple:
        pairs = isinstance(raw, list) and (inner[-1] is ... or len(raw) == len(inner))
        if not pairs:
            raise expected(key, "a list" if inner[-1] is ... else f"a list of {len(inner)}", raw)
        each = inner[:1] * len(raw) if inner[-1] is ... else inner
        return tuple(_value(one, value, key) for one, value in zip(each, raw, strict=True))
    if origin is Literal and not (isinstance(raw, str) and raw in inner):
        raise expected(key, f"one of {', '.join(inner)}", raw)
    if origin is Mapping:
        return {name: _value(inner[1], value, key) for name, value in _object(raw, key).items()}
    if is_dataclass(kind):
        return _decode(kind, raw, key, set())  # type: ignore[arg-type]
    return raw if origin is Literal else _SIMPLE[origin or kind](raw, key)


def text(raw: Any, key: str) -> str:
    """Return a decoded text of 1 to 300 characters; raise WorkunitError for anything else."""
    if not isinstance(raw, str) or not 0 < len(raw) <= 300:
        raise expected(key, "a short text", raw)
    return raw


def _count(raw: Any, key: str) -> int:
    # `True` is an int in Python, and JSON has integers of any length.
    if isinstance(raw, bool) or not isinstance(raw, int) or not 0 <= raw < 2**63:
        raise expected(key, "a whole number ≥ 0", raw)
    return raw


def _flag(raw: Any, key: str) -> bool:
    if not isinstance(raw, bool):
        raise expected(key, "true or false", raw)
    return raw


def _number(raw: Any, key: str) -> float:
    try:
        if not isinstance(raw, bool) and isinstance(raw, int | float) and math.isfinite(raw):
            return float(raw)
    except OverflowError:  # a whole number of hundreds of digits
        pass
    raise expected(key, "a finite number", raw)


def _object(raw: Any, key: str) -> Mapping[str, Any]:
    if not isinstance(raw, dict):
        raise expected(key, "an object", raw)
    return raw


def expected(key: str, what: str, got: Any) -> WorkunitError:
    """Return the error for a wrong value of the field `key`: `what` was expected, `got` was found."""
    return WorkunitError(f"{key}: expected {what}, got {str(got)[:100]!r}")


_SIMPLE: Mapping[Any, Callable[[Any, str], Any]] = {
    str: text, int: _count, bool: _flag, float: _number,
}  # fmt: skip
