"""Changes to bytes, to JSON and to numbers that have shown faults: few at a time, mostly small."""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

_EDGES = (0, 1, 0x7F, 0x80, 0xFF)
_INTEGERS = (0, 1, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 0.0, -0.0, 0.5, 1.0000001, -1.0, 1e-320, 1e300, -1e300,
    float("inf"), float("-inf"), float("nan"), "", "a", "x" * 301, "\ud800", "\0", "\n", "../../etc/passwd", "é", [],
    [[]], {}, {"a": 1}, [0] * 50, [True], ["a"], [1e308],
)  # fmt: skip
_LONGEST = 1 << 17
"""No input grows beyond, whatever is put into it."""


def mutated(dice: random.Random, data: bytes, others: Sequence[bytes], words: Sequence[bytes] = ()) -> bytes:
    """`data` with one to four changes."""
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 4))):
        dice.choice(_CHANGES)(dice, changed, others, words)
    return bytes(changed[:_LONGEST])


def mutated_json(dice: random.Random, value: Any) -> Any:
    """A JSON value with one to three values replaced, keys removed, added, or named otherwise."""
    for _ in range(dice.choice((1, 1, 2, 3))):
        value = _with_change(dice, value)
    return value


def as_json(value: Any) -> bytes:
    """The value as JSON, with the NaN and Infinity that Python's parser takes."""
    return json.dumps(value).encode()


def odd_float32(dice: random.Random) -> bytes:
    """The bytes of a float32 that is special, or of any."""
    special = (0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F7FFFFF, 0xFF7FFFFF, 1, 0x80000000, 0x80000001, 0)
    return dice.choice((*special, dice.getrandbits(32))).to_bytes(4, "little")


def _with_change(dice: random.Random, value: Any) -> Any:
    if isinstance(value, dict) and value and dice.random() < 0.9:
        key = dice.choice(list(value))
        match dice.randrange(12):
            case 0:
                return {other: value[other] for other in value if other != key}
            case 1:
                return {**value, dice.choice(("more", "", key + "x", "\ud800")): dice.choice(_VALUES)}
            case _:
                return {**value, key: _with_change(dice, value[key])}
    if isinstance(value, list) and value and dice.random() < 0.8:
        place = dice.randrange(len(value))
        match dice.randrange(4):
            case 0:
                return value[:place] + value[place + 1 :]
            case 1:
                return [*value, value[place]]
            case _:
                return [*value[:place], _with_change(dice, value[place]), *value[place + 1 :]]
    if isinstance(value, int | float) and not isinstance(value, bool) and dice.random() < 0.4:
        third, as_float = (value / 3, float(value)) if abs(value) < 1e300 else (0.0, 1e300)
        return dice.choice((value + 1, value - 1, -value, value * 2, third, as_float, str(value)))
    if isinstance(value, str) and value and dice.random() < 0.4:
        place = dice.randrange(len(value))
        return value[:place] + dice.choice(("", "\0", "9", "_", " ", "\ud800", "é")) + value[place + 1 :]
    if dice.random() < 0.02:
        return _nested(dice.choice((10, 500, 20_000)))
    return dice.choice(_VALUES)


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(min(depth, 900)):  # json.dumps has a limit of its own
        value = [value]
    return value


# -- changes to bytes, in place


def _flip(dice: random.Random, data: bytearray, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    if data:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def _set(dice: random.Random, data: bytearray, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    if data:
        data[dice.randrange(len(data))] = dice.choice((*_EDGES, dice.randrange(256)))


def _integer(dice: random.Random, data: bytearray, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    width = dice.choice((2, 4, 8))
    if len(data) >= width:
        place = dice.randrange(len(data) - width + 1)
        number = dice.choice(_INTEGERS) % 2 ** (8 * width)
        data[place : place + width] = number.to_bytes(width, dice.choice(("little", "big")))


def _cut(dice: random.Random, data: bytearray, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    del data[dice.randrange(len(data) + 1) :]


def _remove(dice: random.Random, data: bytearray, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    place = dice.randrange(len(data) + 1)
    del data[place : place + dice.choice((1, 2, 4, 30))]


def _repeat(dice: random.Random, data: bytearray, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    place, length = dice.randrange(len(data) + 1), dice.choice((1, 4, 50))
    times = dice.choice((1, 2, 20, 1000))
    data[place:place] = bytes(data[place : place + length]) * times


def _insert(dice: random.Random, data: bytearray, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    place = dice.randrange(len(data) + 1)
    data[place:place] = dice.choice(words) if words and dice.random() < 0.7 else dice.randbytes(dice.choice((1, 4, 20)))


def _overwrite(dice: random.Random, data: bytearray, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    place = dice.randrange(len(data) + 1)
    word = dice.choice(words) if words and dice.random() < 0.7 else dice.randbytes(dice.choice((1, 4, 20)))
    data[place : place + len(word)] = word


def _cross(dice: random.Random, data: bytearray, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    other = dice.choice(others)
    data[dice.randrange(len(data) + 1) :] = other[dice.randrange(len(other) + 1) :]


def _replace(dice: random.Random, data: bytearray, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    """Put a word in the place of another one."""
    present = [word for word in words if word and word in data]
    if present:
        word = dice.choice(present)
        place = data.find(word)
        data[place : place + len(word)] = dice.choice(words)


_Change = Callable[[random.Random, bytearray, Sequence[bytes], Sequence[bytes]], None]
_CHANGES: tuple[_Change, ...] = (
    _flip, _flip, _set, _set, _integer, _cut, _remove, _repeat, _insert, _insert, _overwrite, _cross, _replace,
)  # fmt: skip
