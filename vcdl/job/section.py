"""Sections of a job file, and keys that take one of several of them."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, PlainSerializer, PlainValidator, ValidationError

from vcdl.job import values as kinds
from vcdl.job.reading import Problem, ProblemsError, problems_of, show


class Section(BaseModel):
    """A part of the job file: frozen, and strict about its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


_Kind = TypeVar("_Kind", bound=Section)


def _as_yaml(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True) if isinstance(value, Section) else value


SECTION_AS_YAML = PlainSerializer(_as_yaml)
"""Of keys that take one of several sections."""


def read_section(kind: type[_Kind], raw: Any) -> _Kind:
    """Check a section's values inside a validator; raises ProblemsError whose places are relative to it."""
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        raise ProblemsError(problems_of(error, kind)) from None


def one_of_sections(key: str, known: Mapping[str, type[Section]], default: str | None = None) -> PlainValidator:
    """A section of the kind that its `key` names, or that name alone; without the key it is of the `default` kind."""

    def check(raw: Any) -> Section:
        if isinstance(raw, Section) and type(raw) in known.values():
            return raw
        fields = {key: raw} if isinstance(raw, str) else raw
        if not isinstance(fields, Mapping):
            raise ValueError(f"expected keys indented below it, got {show(raw)}")
        name = fields.get(key, default)
        if not isinstance(name, str) or name not in known:
            refusal = kinds.expected_one_of(tuple(known), name)
            raise ProblemsError([Problem(() if isinstance(raw, str) else (key,), str(refusal))])
        if key not in fields:
            _refuse_keys_of_others(name, fields)
        return read_section(known[name], fields)

    def _refuse_keys_of_others(meant: str, fields: Mapping[str, Any]) -> None:
        problems: list[Problem] = []
        for field in fields.keys() - known[meant].model_fields.keys():
            owners = [name for name, kind in known.items() if field in kind.model_fields]
            if owners:
                problems.append(
                    Problem(
                        (field,),
                        f"is not a key of {meant}, which is meant without `{key}`; add {key}: {' or '.join(owners)}",
                    )
                )
        if problems:
            raise ProblemsError(problems)

    return PlainValidator(check)


def list_of_sections(kind: type[Section]) -> PlainValidator:
    """A list of at least one section; problems are placed at `(index, key)`."""

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
    """A plain value, or a section in its place."""
    check_plain: Callable[[Any], Any] = plain.func  # type: ignore[assignment]

    def check(raw: Any) -> Any:
        if isinstance(raw, section):
            return raw
        return read_section(section, raw) if isinstance(raw, Mapping) else check_plain(raw)

    return PlainValidator(check)


def section_or_nothing(section: type[Section]) -> PlainValidator:
    """A section that may be left out."""

    def check(raw: Any) -> Any:
        if raw is None or isinstance(raw, section):
            return raw
        if not isinstance(raw, Mapping):
            raise ValueError(f"expected keys indented below it, got {show(raw)}")
        return read_section(section, raw)

    return PlainValidator(check)
