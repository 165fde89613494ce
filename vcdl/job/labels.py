"""Keys of labels: the classes of an output, and the masked label."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, PlainSerializer, PlainValidator, ValidationInfo

from vcdl.wire.task import NAMES_OUTPUTS
from vcdl.yaml_schema import values as kinds

_MOST_CLASSES = 1_000_000
"""Most classes of a job: more are a mistake, such as labels that are numbers to predict."""


def class_names(raw: Any) -> int | tuple[str | int, ...]:
    """Check `classes` of a job file and return it: a tuple of two or more distinct names, or a number of classes ≥ 2.

    Raises:
        ValueError: They are neither.
    """
    if isinstance(raw, int) and not isinstance(raw, bool) and 2 <= raw <= _MOST_CLASSES:
        return raw
    if isinstance(raw, list | tuple) and len(raw) >= 2 and all(_is_name(name) for name in raw):
        kinds_of_names = {type(name) for name in raw}
        # A mixture such as `[1, "2"]` is refused: quotes are most likely missing, and 1 and "1" would be two classes.
        if len(kinds_of_names) > 1:
            raise ValueError("expected all names as text, or all as whole numbers; put them in quotes")
        if (twice := first_duplicate(raw)) is not None:
            raise ValueError(f"holds {twice} twice; a class is named once")
        return tuple(raw)
    raise kinds.expected(
        "a list of two names or more, such as [cat, dog], or a number of classes from 2 to 1000000", raw
    )


def first_duplicate(names: Sequence[Any]) -> Any:
    """Return the first name that repeats an earlier one, or None if all differ."""
    return next((name for place, name in enumerate(names) if name in names[:place]), None)


def mask_label(raw: Any) -> str | int:
    """Check `mask` of a job file and return it: a label as a whole number or text.

    Raises:
        ValueError: It is neither.
    """
    if not _is_name(raw):
        raise kinds.expected("a label, a whole number or text", raw)
    return raw  # type: ignore[no-any-return]


def _plain(classes: Any) -> Any:
    return list(classes) if isinstance(classes, tuple) else classes


def _is_name(name: Any) -> bool:
    if isinstance(name, str):
        return 0 < len(name) <= 200
    return isinstance(name, int) and not isinstance(name, bool) and abs(name) < 2**31


def _of_the_task(classes: Any, info: ValidationInfo) -> Any:
    if info.data.get("task", "classification") not in NAMES_OUTPUTS:
        raise ValueError(f"{info.data['task']} has no classes; remove it")
    return classes


ClassNames = Annotated[
    int | tuple[str | int, ...], PlainValidator(class_names), AfterValidator(_of_the_task), PlainSerializer(_plain)
]
"""The names of the classes, in the order of the model's outputs; or their number."""
MaskLabel = Annotated[str | int, PlainValidator(mask_label), PlainSerializer(_plain)]
