"""Folded states as JSON and back: dataclasses by their type hints, so nothing in the text can name code to run.

A dataclass becomes the list of its fields, a dict a list of pairs, a set or deque a list; an event gets its kind in
front. Numbers come back to the last bit, NaN and infinities too.
"""

import json
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from vcdl.journal.events import Event, decode

T = TypeVar("T")
_Turn = Callable[[Any], Any]

_PLAIN = (int, float, str, bool, NoneType)


def pack(state: Any) -> str:
    """The state, a dataclass, as JSON."""
    kind: Any = type(state)
    turn = _turns(kind, ()).pack
    return json.dumps(state if turn is None else turn(state), separators=(",", ":"))


def unpack(kind: type[T], text: str) -> T:
    """The state of a kind. Raises ValueError, TypeError, LookupError or JournalError for a text that is none."""
    hint: Any = kind
    turn, raw = _turns(hint, ()).unpack, json.loads(text)
    state: T = raw if turn is None else turn(raw)
    return state


def copy_of(state: T) -> T:
    """Another state that says the same and shares nothing."""
    return unpack(type(state), pack(state))


class _Turns:
    """How values of one type become JSON and come back; None: as they are."""

    def __init__(self, pack: _Turn | None, unpack: _Turn | None) -> None:
        self.pack = pack
        self.unpack = unpack


@cache
def _turns(hint: Any, bound: tuple[tuple[Any, Any], ...]) -> _Turns:
    """`bound`: the types that a generic dataclass's variables stand for."""
    hint = dict(bound).get(hint, hint)
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if hint in _PLAIN:
        return _Turns(None, None)
    if origin in (Union, UnionType):
        return _optional([one for one in arguments if one is not NoneType], bound)
    if isinstance(origin, type) and issubclass(origin, Event):
        return _Turns(_pack_event, _unpack_event)
    if is_dataclass(origin):
        return _of_dataclass(origin, tuple(zip(getattr(origin, "__parameters__", ()), arguments, strict=False)))
    if origin is Counter:
        return _of_dict(Counter, _turns(arguments[0], bound), _turns(int, ()))
    if origin is dict:
        return _of_dict(dict, *(_turns(one, bound) for one in arguments))
    if origin is deque:
        return _of_deque(_turns(arguments[0], bound))
    if origin is tuple and arguments[-1] is not Ellipsis:
        return _of_tuple([_turns(one, bound) for one in arguments])
    if origin in (list, set, tuple):
        return _of_items(origin, _turns(arguments[0], bound))
    if isinstance(origin, type) and issubclass(origin, str):  # an enumeration of words
        return _Turns(str, origin)
    raise TypeError(f"{hint} cannot be packed: this is a bug in vcdl")


def _optional(kinds: list[Any], bound: tuple[tuple[Any, Any], ...]) -> _Turns:
    turns = _turns(kinds[0], bound)  # of several kinds all are plain, or all are events
    pack, unpack = turns.pack, turns.unpack
    if pack is None or unpack is None:
        return turns
    return _Turns(
        lambda value: None if value is None else pack(value), lambda raw: None if raw is None else unpack(raw)
    )


def _pack_event(event: Event) -> Any:
    return [event.kind, vars(event)]


def _unpack_event(raw: Any) -> Event:
    return decode(*raw)


def _of_dataclass(kind: Any, bound: tuple[tuple[Any, Any], ...]) -> _Turns:
    hints = get_type_hints(kind)
    turns = [(field.name, _turns(hints[field.name], bound)) for field in fields(kind)]
    names = [name for name, _ in turns]
    packs = [(name, turn.pack) for name, turn in turns if turn.pack is not None]
    unpacks = [(place, turn.unpack) for place, (_, turn) in enumerate(turns) if turn.unpack is not None]

    def pack(value: Any) -> Any:
        own = dict(vars(value))
        for name, turn in packs:
            own[name] = turn(own[name])
        return [own[name] for name in names]

    def unpack(raw: Any) -> Any:
        for place, turn in unpacks:
            raw[place] = turn(raw[place])
        if len(raw) != len(names):
            raise ValueError(f"{kind.__name__} has {len(names)} fields, not {len(raw)}")
        return kind(*raw)

    return _Turns(pack, unpack)


def _same(value: Any) -> Any:
    return value


def _of_dict(kind: Any, key: _Turns, value: _Turns) -> _Turns:
    pack_key, pack_value = key.pack or _same, value.pack or _same
    unpack_key, unpack_value = key.unpack or _same, value.unpack or _same
    return _Turns(
        lambda pairs: [[pack_key(one), pack_value(other)] for one, other in pairs.items()],
        lambda raw: kind({unpack_key(one): unpack_value(other) for one, other in raw}),
    )


def _of_items(kind: Any, item: _Turns) -> _Turns:
    if item.pack is None or item.unpack is None:
        return _Turns(list, kind)
    pack, unpack = item.pack, item.unpack
    return _Turns(lambda items: [pack(one) for one in items], lambda raw: kind([unpack(one) for one in raw]))


def _of_tuple(items: list[_Turns]) -> _Turns:
    if all(item.pack is None for item in items):
        return _Turns(list, tuple)
    packs, unpacks = [item.pack or _same for item in items], [item.unpack or _same for item in items]
    return _Turns(
        lambda values: [turn(value) for turn, value in zip(packs, values, strict=True)],
        lambda raw: tuple(turn(value) for turn, value in zip(unpacks, raw, strict=True)),
    )


def _of_deque(item: _Turns) -> _Turns:
    pack, unpack = item.pack or _same, item.unpack or _same
    return _Turns(
        lambda items: [items.maxlen, [pack(one) for one in items]],
        lambda raw: deque((unpack(one) for one in raw[1]), raw[0]),
    )
