"""Define, read and check the sections of a YAML file, and report their mistakes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, PlainSerializer, PlainValidator, ValidationError

from vcdl.errors import PluginError, nearest
from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.file_kind import FileKind
from vcdl.yaml_schema.reading import (
    Document,
    Place,
    Problem,
    ProblemsError,
    read_document,
    replace_key,
    report,
    report_values,
    show,
)


class Section(BaseModel):
    """The base class of a part of a file: immutable, and unknown keys are refused with the nearest known one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    foreign_keys: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Key that users know from another program → what to write instead, for the error message."""


_Kind = TypeVar("_Kind", bound=Section)


def _as_yaml(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_as_yaml(each) for each in value]
    return value.model_dump(mode="json", by_alias=True, exclude_none=True) if isinstance(value, Section) else value


SECTION_AS_YAML = PlainSerializer(_as_yaml)
"""Serialises a field whose value is a section, or a tuple of sections, as mappings without empty keys."""


def load_section(
    schema: type[_Kind], kind: FileKind, path: Path | None, overrides: Sequence[str] = (), folder: Path | None = None
) -> _Kind:
    """Read a file, replace keys by settings of the command line, and check all of it by a schema.

    Args:
        schema: The section that the whole file is.
        kind: The kind of file.
        path: The file; None: all keys come from `overrides`.
        overrides: Keys to replace: `("stop.epochs=2",)`.
        folder: Where relative paths start; None: paths are not checked.

    Raises:
        JobError: Something in it is wrong; the message has a line for each problem.
    """
    document = Document(kind, values={}) if path is None else read_document(path, kind)
    for setting in overrides:
        replace_key(document, setting)
    problems = list(document.problems)
    try:
        section = schema.model_validate(document.values, context=folder)
    except ValidationError as error:
        # A value that could not be read is missing for the schema, which would report its place a second time.
        refused = {problem.at for problem in problems}
        problems += [problem for problem in _problems_of(error, schema) if problem.at not in refused]
    if problems:
        raise report(path or Path(kind.name), document, problems) from None
    return section


def section_of(schema: type[_Kind], values: Mapping[str, Any], origin: str) -> _Kind:
    """Check values that come from no file by a schema. Paths in them are not checked.

    Args:
        schema: The section that the values are.
        values: Key → value, as in a file.
        origin: Where they come from, which precedes each problem in the error.

    Raises:
        JobError: Something is wrong; the message has a line for each problem.
    """
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        raise report_values(origin, _problems_of(error, schema)) from None


def read_section(kind: type[_Kind], raw: Any) -> _Kind:
    """Check the values of a section inside a validator of another section.

    Raises:
        ProblemsError: Something is wrong; the places are relative to the section.
    """
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        raise ProblemsError(_problems_of(error, kind)) from None


def one_of_sections(
    key: str, known: Mapping[str, type[Section]], default: str | None = None, cure: str = ""
) -> PlainValidator:
    """Return a validator for a section whose `key` chooses its class; the name alone may stand for the whole section.

    Args:
        key: The key that names the kind, such as `rule`.
        known: Name of a kind → its section class.
        default: The kind of a section without that key; None: the key is required.
        cure: Advice that is added to the error for an unknown name.
    """

    def check(raw: Any) -> Section:
        if isinstance(raw, Section):
            return raw
        fields = {key: raw} if isinstance(raw, str) else raw
        if not isinstance(fields, Mapping):
            raise ValueError(f"expected keys indented below it, got {show(raw)}")
        name = fields.get(key, default)
        if not isinstance(name, str) or name not in known:
            refuse(raw, f"{kinds.expected_one_of(tuple(known), name)}{f'; {cure}' if cure else ''}")
        try:
            kind = known[name]
        except PluginError as error:
            refuse(raw, str(error))
        # If `key` is missing, a key that only another kind has shows that the user did not mean the default kind.
        if key not in fields:
            _refuse_keys_of_others(name, fields)
        return read_section(kind, fields)

    def refuse(raw: Any, why: str) -> NoReturn:
        raise ProblemsError([Problem(() if isinstance(raw, str) else (key,), why)])

    def _refuse_keys_of_others(meant: str, fields: Mapping[str, Any]) -> None:
        problems: list[Problem] = []
        usable: dict[str, type[Section]] = {}
        for name in known:
            # A kind whose package is broken is skipped, because it must not hide the user's mistake.
            with suppress(PluginError):
                usable[name] = known[name]
        for field in fields.keys() - known[meant].model_fields.keys():
            if owners := [name for name, kind in usable.items() if field in kind.model_fields]:
                need = f"add {key}: {' or '.join(owners)}"
                problems.append(Problem((field,), f"is not a key of {meant}, which is meant without `{key}`; {need}"))
        if problems:
            raise ProblemsError(problems)

    return PlainValidator(check)


def list_of_sections(kind: type[Section]) -> PlainValidator:
    """Return a validator for a list of one or more sections, which gives a tuple; problems are at `(index, key)`."""

    def check(raw: Any) -> tuple[Section, ...]:
        if not isinstance(raw, list | tuple) or not raw:
            raise kinds.expected("a list, each entry with its keys: - {key: value, …}", raw)
        sections, problems = [], []
        for index, entry in enumerate(raw):
            try:
                sections.append(entry if isinstance(entry, kind) else read_section(kind, entry))
            except ProblemsError as error:
                problems += [problem._replace(at=(index, *problem.at)) for problem in error.problems]
        if problems:
            raise ProblemsError(problems)
        return tuple(sections)

    return PlainValidator(check)


def plain_or_section(plain: PlainValidator, section: type[Section]) -> PlainValidator:
    """Return a validator for a key that takes either one value, checked by `plain`, or a section of further keys."""
    check_plain: Callable[[Any], Any] = plain.func  # type: ignore[assignment]

    def check(raw: Any) -> Any:
        if isinstance(raw, section):
            return raw
        return read_section(section, raw) if isinstance(raw, Mapping) else check_plain(raw)

    return PlainValidator(check)


def section_or_nothing(section: type[Section]) -> PlainValidator:
    """Return a validator for a section or None, where None means that the feature is not used."""

    def check(raw: Any) -> Any:
        if raw is None or isinstance(raw, section):
            return raw
        if not isinstance(raw, Mapping):
            raise ValueError(f"expected keys indented below it, got {show(raw)}")
        return read_section(section, raw)

    return PlainValidator(check)


def _problems_of(error: ValidationError, schema: type[Section]) -> Iterator[Problem]:
    """Yield the findings of pydantic as Problems with sentences for users and places from the top of `schema`.

    A ValueError of a validator contains the finished sentence, which is kept; pydantic's own findings are reworded.
    """
    for item in error.errors(include_url=False):
        at, cause = item["loc"], item.get("ctx", {}).get("error")
        # A ProblemsError has places inside its value, while pydantic knows the place of the value, so both are joined.
        if isinstance(cause, ProblemsError):
            for problem in cause.problems:
                yield problem._replace(at=at + problem.at)
        elif isinstance(cause, ValueError):
            yield Problem(at, str(cause))
        elif item["type"] == "extra_forbidden":
            yield _unknown(at, _section_at(schema, at[:-1]))
        elif item["type"] == "missing":
            yield Problem(at, "is missing; add it")
        elif item["type"] in ("model_type", "model_attributes_type"):
            yield Problem(at, f"expected keys indented below it, got {show(item['input'])}")
        elif item["type"] == "tuple_type":
            yield Problem(at, f"expected a list, such as [a, b], got {show(item['input'])}")
        else:
            yield Problem(at, f"{item['msg']}, got {show(item['input'])}")


def _unknown(at: Place, section: type[Section]) -> Problem:
    key = str(at[-1])
    if key in section.foreign_keys:
        return Problem(at, f"is no key of a job; {section.foreign_keys[key]}")
    return Problem(at, f"unknown key; {nearest(key, _fields(section))}")


def _section_at(schema: type[Section], at: Place) -> type[Section]:
    """Return the section class at a place in `schema`, by the types of keys and, at an index, of list entries."""
    for step in at:
        schema = get_args(schema)[0] if isinstance(step, int) else _fields(schema)[str(step)]
    return schema


def _fields(section: type[Section]) -> dict[str, Any]:
    """Return a mapping: key of a section, as the file spells it → its type."""
    return {field.alias or name: field.annotation for name, field in section.model_fields.items()}


def exactly_one(section: Section, *keys: str) -> None:
    """Check that exactly one of some keys of a section has a value.

    Args:
        section: The section.
        keys: The names of the fields.

    Raises:
        ValueError: None of them has one, or several have.
    """
    given = [key.rstrip("_") for key in keys if getattr(section, key) is not None]
    if len(given) != 1:
        known = ", ".join(key.rstrip("_") for key in keys)
        raise ValueError(f"expected exactly one of {known}; got {' and '.join(given) or 'none'}")
