"""Convert the labels of a data set to class numbers 0 … k−1, with names.

All classes must occur in training or be listed: otherwise one wrong label could give a model a million outputs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vcdl.errors import DataError
from vcdl.wire.task import MASKED

Array = npt.NDArray[Any]

_SHOWN = 8
"""Labels that a message lists, so that it stays short."""
_STRAY_FACTOR = 20
"""A label of fewer than one in this many samples counts as a mistake: it is more likely a typing error than a class."""
_MISSING_FACTOR = 10
"""Multiple of the classes that occur above which no message suggests a number of classes."""


@dataclass(frozen=True)
class Classes:
    """Number and names of the classes of a data set."""

    count: int
    names: tuple[str, ...] = ()
    """Names in the order of the class numbers; empty if classes have no names."""


Given = Sequence[str | int] | int | None
"""`data > classes`: names of the classes (or integers, where they do not begin at 0), or their number."""


def classes_of(
    labels: Mapping[str, Array], given: Given, mask: str | int | None = None
) -> tuple[dict[str, Array], Classes]:
    """Convert labels, numbers or texts, to class numbers.

    Args:
        labels: The labels, keyed by the name of their array, training first.
        given: The value of `data > classes`.
        mask: The label that becomes MASKED.

    Returns:
        The class numbers by array, and the classes.

    Raises:
        DataError: A label is no class, or the training labels leave their number open.
    """
    if mask is not None:
        return _number_unmasked(labels, given, mask)
    is_text = {name: y.dtype.kind in "US" for name, y in labels.items()}
    train = next(iter(labels))
    # NumPy would compare text with numbers without an error and find every label unknown.
    for name, text in is_text.items():
        if text != is_text[train]:
            odd, first = ("text", "numbers") if text else ("numbers", "text")
            raise DataError(f"{name} holds {odd} and {train} {first}: give both the same labels")
    if is_text[train]:
        return _of_text({name: _decode(name, y) for name, y in labels.items()}, given)
    return _of_numbers({name: _whole(name, y) for name, y in labels.items()}, given)


def _number_unmasked(labels: Mapping[str, Array], given: Given, mask: str | int) -> tuple[dict[str, Array], Classes]:
    """Convert the labels other than the mask to class numbers, and the mask to MASKED.

    A masked number stays a class if a higher label occurs, as the outputs are numbered by labels.
    """
    for name, y in labels.items():
        if (y.dtype.kind in "US") != isinstance(mask, str):
            kind = "text" if y.dtype.kind in "US" else "numbers"
            raise DataError(
                f"data > mask is {mask!r}, but the labels of {name} are {kind}: give the mask as one of these labels"
            )
    counted = {name: y[y != _as_in(mask, y)] for name, y in labels.items()}
    train = next(iter(counted))
    for name, y in counted.items():
        if not y.size:
            raise DataError(f"{name} holds nothing but the label {mask!r} of data > mask: there is nothing to learn")
    seen = counted[train]
    # A masked number below the highest label leaves a gap in the numbers, which _count would refuse. Set the count if
    # the remaining labels cover every other number.
    if given is None and isinstance(mask, int) and 0 <= mask < seen.max():
        given = int(seen.max()) + 1 if len(np.unique(seen)) >= seen.max() else None
    numbered, classes = classes_of(counted, given)
    whole = {}
    for name, y in labels.items():
        whole[name] = np.full(y.shape, MASKED, np.int32)
        whole[name][y != _as_in(mask, y)] = numbered[name]
    return whole, classes


def _as_in(mask: str | int, y: Array) -> Any:
    return mask.encode() if isinstance(mask, str) and y.dtype.kind == "S" else mask


def _of_text(labels: Mapping[str, Array], given: Given) -> tuple[dict[str, Array], Classes]:
    train, y_train = next(iter(labels.items()))
    found = [str(value) for value in np.unique(y_train)]
    if isinstance(given, int):
        raise DataError(f"data > classes is {given}, and {train} holds text: list the names, or remove it")
    names = found if given is None else [str(name) for name in given]
    _refuse_one_class(train, found)
    values = np.array(names)
    placed = {name: _places(name, y, values, train, given) for name, y in labels.items()}
    return placed, Classes(len(names), tuple(names))


def _of_numbers(labels: Mapping[str, Array], given: Given) -> tuple[dict[str, Array], Classes]:
    train, y_train = next(iter(labels.items()))
    found = [int(value) for value in np.unique(y_train)]
    _refuse_one_class(train, found)
    names: tuple[str, ...] = ()
    if given is None or isinstance(given, int):
        values = np.arange(_count(train, y_train, found) if given is None else given)
    elif all(isinstance(value, int) for value in given):
        values, names = np.array(given), tuple(str(value) for value in given)
    else:
        values, names = np.arange(len(given)), tuple(str(name) for name in given)
    for name, y in labels.items():
        _refuse_negative(name, y, values)
    placed = {name: _places(name, y, values, train, given) for name, y in labels.items()}
    return placed, Classes(len(values), names)


def _refuse_negative(name: str, y: Array, values: Array) -> None:
    if y.min() < 0 and not np.isin(y.min(), values):
        raise DataError(
            f"{name} holds the negative label {int(y.min())}: labels are 0, 1, …; give another one, "
            "or list all labels in data > classes"
        )


def _count(name: str, y: Array, found: list[int]) -> int:
    """Return the number of classes of labels 0, 1, … without a gap. Raises DataError with advice for other labels."""
    if found[0] < 0:
        raise DataError(f"{name} holds the negative label {found[0]}: labels are 0, 1, …; list them in data > classes")
    count = found[-1] + 1
    if len(found) == count:
        return count
    listed = f"[{', '.join(map(str, found))}]" if len(found) <= _SHOWN else "[…]"
    if found[0] == 1 and len(found) == count - 1:
        raise DataError(
            f"{name} holds the labels 1…{found[-1]}, and labels count from 0: "
            f"subtract 1, or set data > classes: {listed}"
        )
    before = next(place for place, value in enumerate(found) if value != place)
    stray = found[before]
    samples = int(np.count_nonzero(y == stray))
    cure = "correct it" if samples * _STRAY_FACTOR < y.size else "number them 0, 1, …"
    exist = f", or set data > classes: {count} if the others exist" if count <= _MISSING_FACTOR * len(found) else ""
    raise DataError(
        f"{name} holds the label {stray} ({samples} of {y.size}) but none of {_range(before, stray - 1)}: {cure}, "
        f"or list all labels in data > classes: {listed}{exist}"
    )


def _places(name: str, y: Array, values: Array, train: str, given: Given) -> Array:
    """Return the class number of each label, its position in `values`. Raises DataError for an unknown label."""
    order = np.argsort(values)
    at = np.minimum(np.searchsorted(values, y, sorter=order), len(values) - 1)
    places: Array = order[at].astype(np.int32)
    unknown = values[places] != y
    if unknown.any():
        label = y[unknown].flat[0]
        shown = repr(str(label)[:60]) if y.dtype.kind == "U" else str(label)
        samples = f"{name} holds the label {shown} ({int(np.count_nonzero(y == label))} of {y.size}), "
        if given is not None:
            raise DataError(f"{samples}which is not in data > classes: add it there, or take these samples out")
        listed = f"classes: {int(label) + 1}" if y.dtype.kind != "U" else "classes, with all names"
        raise DataError(
            f"{samples}and {train} does not: nothing can learn it; add samples of it to {train}, take these out, "
            f"or set data > {listed}"
        )
    return places


def _refuse_one_class(name: str, found: Sequence[Any]) -> None:
    if len(found) == 1:
        raise DataError(f"{name} holds one class only ({found[0]}): there is nothing to tell apart, check the labels")


def _decode(name: str, y: Array) -> Array:
    if y.dtype.kind == "U":
        return y
    try:
        return np.char.decode(y, "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{name} holds bytes that are no text in UTF-8: save the labels as text") from error


def _whole(name: str, y: Array) -> Array:
    if y.dtype.kind == "f" and np.any(y != np.floor(y)):
        raise DataError(f"{name} holds labels that are not whole numbers: for a regression set data > task: regression")
    if max(-int(y.min()), int(y.max())) >= 2**31:
        extreme = max(int(y.min()), int(y.max()), key=abs)
        raise DataError(f"{name} holds the label {extreme}: labels are 0, 1, … up to the number of classes")
    return y.astype(np.int64)


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}…{high}"
