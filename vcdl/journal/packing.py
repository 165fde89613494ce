"""Serialise computed states as compressed MessagePack, and read them by the type hints of their dataclasses.

Reading never runs code that the bytes name. Numbers are preserved to the last bit, NaN and infinities too.
"""

import zlib
from collections import Counter, deque
from functools import partial
from typing import Any, TypeVar, get_args, get_origin

import msgspec

T = TypeVar("T")


def pack(state: Any) -> bytes:
    """Serialise a dataclass as compressed MessagePack; `unpack` restores it, also the maximum lengths of deques."""
    # Level 1, because the loop waits while a state is written, and higher levels save little.
    return zlib.compress(msgspec.msgpack.encode(state, enc_hook=_pack_deque), 1)


def unpack(kind: type[T], packed: bytes, without: int | None = None) -> T:
    """Deserialise a state.

    Args:
        kind: Its class.
        packed: What `pack` returned.
        without: Return deques with this maximum length as empty, to save memory. None: return everything.

    Raises:
        ValueError: The bytes are not such a state.
    """
    hook = partial(_unpack, without=without)
    try:
        return msgspec.msgpack.decode(zlib.decompress(packed), type=kind, dec_hook=hook)
    except (msgspec.MsgspecError, zlib.error, OverflowError, RecursionError) as error:
        raise ValueError(f"no {kind.__name__}: {error}") from error


def copy_of(state: T) -> T:
    """Return an equal copy of a state that shares no objects with it."""
    # Copy through the serialised form, which tests prove to be the whole state.
    packed = msgspec.msgpack.encode(state, enc_hook=_pack_deque)
    return msgspec.msgpack.decode(packed, type=type(state), dec_hook=_unpack)


def _pack_deque(value: Any) -> Any:
    """Encode a deque for msgspec as (maximum length, list of its items)."""
    # Store the maximum length, because without it a loaded deque would grow without bound.
    if isinstance(value, deque):
        return value.maxlen, list(value)
    raise TypeError(f"{type(value)} cannot be packed: this is a bug in vcdl")


def _unpack(hint: Any, raw: Any, without: int | None = None) -> Any:
    """Decode a value of a type that msgspec does not know: a Counter or a deque.

    Args:
        hint: The type.
        raw: The decoded MessagePack.
        without: As for `unpack`.

    Raises:
        ValueError, TypeError: The value is not of that type.
    """
    arguments = get_args(hint)
    # msgspec treats a Counter as an unknown type, although it writes it as a dict.
    if get_origin(hint) is Counter:
        return Counter(msgspec.convert(raw, dict[arguments[0], int]))  # type: ignore[valid-type]
    longest, items = msgspec.convert(raw, tuple[int | None, list[Any]])
    if longest is not None and longest == without:
        return deque(maxlen=longest)
    return deque(msgspec.convert(items, list[arguments[0]]), longest)  # type: ignore[valid-type]
