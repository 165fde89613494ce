"""Validate the values of YAML files strictly (`true` is no number, `"5"` is not 5), and refuse them in sentences."""

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from pydantic import PlainValidator, ValidationInfo

from vcdl.errors import nearest, without_passwords
from vcdl.yaml_schema.reading import show

FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


def expected(what: str, value: Any) -> ValueError:
    """Return an error in the form of all validators: `expected a whole number ≥ 1, got "fifty"`."""
    return ValueError(f"expected {what}, got {show(value)}")


def whole(at_least: int, at_most: int | None = None, *words: str) -> PlainValidator:
    """Return a validator for a whole number in a range, both ends included, or one of the words.

    Args:
        at_least: The smallest number.
        at_most: The largest number; None: no limit.
        words: Texts that are valid too, such as `auto`.
    """
    limits = f"≥ {at_least}" if at_most is None else f"from {at_least} to {at_most}"
    what = " or ".join((f"a whole number {limits}", *words))

    def check(value: Any) -> Any:
        if isinstance(value, str) and value in words:
            return value
        if not _is_whole(value) or value < at_least or (at_most is not None and value > at_most):
            raise expected(what, value)
        return value

    return PlainValidator(check)


def above_zero(also: str = "") -> PlainValidator:
    """Return a validator for a finite number > 0, given as a float; `also` is another form of the key in messages."""
    return _number("a number > 0", lambda value: value > 0, also=also)


def any_number() -> PlainValidator:
    """Return a validator for a finite number."""
    return _number("a number", lambda value: True)


def at_least(limit: float, *words: str) -> PlainValidator:
    """Return a validator for a finite number ≥ `limit`, which gives a float, or for one of the words."""
    return _number(f"a number ≥ {limit:g}", lambda value: value >= limit, *words)


def between(least: float, most: float) -> PlainValidator:
    """Return a validator for a number in a range, both ends included."""
    return _number(f"a number from {least:g} to {most:g}", lambda value: least <= value <= most)


def fraction(*words: str, zero: bool, one: bool, also: str = "") -> PlainValidator:
    """Return a validator for a number between 0 and 1, which gives a float, or for one of the words.

    Args:
        words: Texts that are valid too.
        zero: Whether 0 is valid.
        one: Whether 1 is valid.
        also: Another form that the key may have, for messages.
    """
    out = " and ".join(name for name, included in (("0", zero), ("1", one)) if not included)
    what = "a number between 0 and 1" + (f" ({out} excluded)" if out else "")
    return _number(what, lambda v: 0 < v < 1 or (zero and v == 0) or (one and v == 1), *words, also=also)


def count_or_fraction() -> PlainValidator:
    """Return a validator for a whole number ≥ 1, or a number strictly between 0 and 1."""

    def check(value: Any) -> int | float:
        if _is_whole(value) and value >= 1:
            return int(value)
        # 1.0 is refused, because it may be meant as one sample or as all of them.
        if isinstance(value, float) and 0 < value < 1:
            return value
        raise expected("a whole number ≥ 1, or a fraction between 0 and 1 (both excluded)", value)

    return PlainValidator(check)


def true_or_false() -> PlainValidator:
    """Return a validator for `true` or `false`."""

    def check(value: Any) -> bool:
        if not isinstance(value, bool):
            raise expected("true or false", value)
        return value

    return PlainValidator(check)


def one_of(literal: Any) -> PlainValidator:
    """Return a validator for one of the words of a `Literal`."""
    known: tuple[str, ...] = get_args(literal)

    def check(value: Any) -> Any:
        if not isinstance(value, str) or value not in known:
            raise expected_one_of(known, value)
        return value

    return PlainValidator(check)


def expected_one_of(known: tuple[str, ...], value: Any) -> ValueError:
    """Return an error that lists the known words, and suggests the one that is similar to a text."""
    hint = nearest(value, known) if isinstance(value, str) else ""
    hint = f"; {hint}" if hint.startswith("did") else ""
    return ValueError(f"expected one of: {', '.join(known)}; got {show(value)}{hint}")


def text(pattern: str, what: str) -> PlainValidator:
    """Return a validator for text that matches a whole pattern.

    Args:
        pattern: The regular expression.
        what: What the pattern means, for messages: `the name of a part`.
    """
    compiled = re.compile(pattern, re.ASCII)

    def check(value: Any) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            raise expected(what, value)
        return value

    return PlainValidator(check)


def names() -> PlainValidator:
    """Return a validator for a list of texts that are not blank, which gives a tuple."""

    def check(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list | tuple) or not all(isinstance(word, str) and word.strip() for word in value):
            raise expected("a list of names, such as [a, b]", value)
        return tuple(value)

    return PlainValidator(check)


def moment() -> PlainValidator:
    """Return a validator for a date with a time, which is UTC unless it names another time zone."""

    def check(value: Any) -> datetime:
        try:
            # YAML has read an unquoted time as a datetime already.
            found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        except (TypeError, ValueError):
            raise expected("a time such as 2026-12-01T08:00Z", value) from None
        return found if found.tzinfo else found.replace(tzinfo=UTC)

    return PlainValidator(check)


def function_path() -> PlainValidator:
    """Return a validator for text of the form `package.module:function`; whether the function exists is not checked."""
    return text(FUNCTION.pattern, "package.module:function")


def existing_file(misread: Callable[[Path], str | None] = lambda _: None) -> PlainValidator:
    """Return a validator for an existing file, which gives its absolute path.

    Relative paths start at the folder of the validation's context. Without a context the path is not checked.

    Args:
        misread: Returns advice for a path of a kind that the key does not take, or None.
    """

    def check(value: Any, info: ValidationInfo) -> Path:
        wrong = None
        if info.context is not None and isinstance(value, str | Path):
            wrong = misread(Path(value)) or misread(info.context / value)
        if wrong is not None:
            raise ValueError(wrong)
        return _existing(value, info.context, "file", Path.is_file)

    return PlainValidator(check)


def existing_folder() -> PlainValidator:
    """Return a validator for an existing folder, which gives its absolute path, as `existing_file` does."""
    return PlainValidator(lambda value, info: _existing(value, info.context, "folder", Path.is_dir))


def any_path() -> PlainValidator:
    """Return a validator for a path, which need not exist; a relative one starts at the folder of the context."""

    def check(value: Any, info: ValidationInfo) -> Path:
        if not isinstance(value, str | Path) or not str(value).strip():
            raise expected("the name of a file or folder", value)
        return (info.context / value).resolve() if info.context is not None else Path(value)

    return PlainValidator(check)


def existing_path(value: Any, job_folder: Path | None) -> Path:
    """Return the absolute path of an existing file or folder.

    Args:
        value: The path as the user gave it.
        job_folder: Where a relative path starts; None: the path is returned unchanged and not checked.

    Raises:
        ValueError: There is nothing at the path.
    """
    return _existing(value, job_folder, "file or folder", Path.exists)


def folder(raw: Any, job_folder: Path | None) -> Path | None:
    """Return the absolute path of an existing folder; None if both arguments are None.

    Args:
        raw: The path as the user gave it; None: `job_folder`.
        job_folder: Where a relative path starts; None: the path is returned unchanged and not checked.

    Raises:
        ValueError: There is no such folder.
    """
    if raw is None and job_folder is None:
        return None
    return _existing("." if raw is None else raw, job_folder, "folder", Path.is_dir)


def _existing(value: Any, job_folder: Path | None, what: str, is_there: Callable[[Path], bool]) -> Path:
    if not isinstance(value, str | Path) or not str(value).strip():
        raise expected(f"the name of a {what}", value)
    # Without a folder nothing is checked: a run's own job file is read on other machines and years later, where the
    # files that it names need not exist.
    if job_folder is None:
        return Path(value)
    path = job_folder / value
    if not _is(path, is_there):
        raise ValueError(f"there is no {what} {_display_path(path)}; a relative path starts at the job file's folder")
    return path.resolve()


def _is(path: Path, kind: Callable[[Path], bool]) -> bool:
    try:
        return kind(path)
    except OSError:  # a name that is too long, or a folder that may not be looked into
        return False


def _display_path(path: Path) -> str:
    text = without_passwords(str(path))
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= 300 else f"{text[:300]} …"


def _number(what: str, fits: Callable[[float], bool], *words: str, also: str = "") -> PlainValidator:
    what = " or ".join((what, *words, *((also,) if also else ())))

    def check(value: Any) -> Any:
        if isinstance(value, str) and value in words:
            return value
        # `true` is refused, because it is an int in Python.
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise expected(what, value)
        if not math.isfinite(value) or not fits(value):
            raise expected(what, value)
        # A whole number becomes a float, so that a job is equal to the one that is read back from its own file.
        return float(value)

    return PlainValidator(check)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
