"""Parse a part of Keras or vcdl.codecs that a job file gives by name: `adam` or `{name: adam, beta_1: 0.8}`."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import PlainSerializer, PlainValidator

from vcdl.wire.workunit import Named
from vcdl.yaml_schema.reading import Problem, ProblemsError
from vcdl.yaml_schema.values import expected


def parse_named(raw: Any) -> Named:
    """Return a part of Keras or of vcdl.codecs, given as `adam` or `{name: adam, beta_1: 0.8}`, as a Named.

    Raises:
        ValueError: It has neither form, or an argument is not plain data that JSON can contain.
    """
    if isinstance(raw, Named):
        return raw
    fields = {"name": raw} if isinstance(raw, str) else raw
    if not isinstance(fields, Mapping):
        raise expected("a name, or {name: …} with its arguments", raw)
    if "name" not in fields:
        raise expected("a name, or {name: …} with its arguments", raw)
    name = fields["name"]
    if not isinstance(name, str) or not 0 < len(name) <= 100:
        raise expected("a name, such as adam", name)
    arguments = {key: value for key, value in fields.items() if key != "name"}
    try:
        # Arguments are sent to clients as JSON, which has no NaN and no Python objects.
        json.dumps(arguments, allow_nan=False)
    except (ValueError, TypeError) as error:
        raise ValueError("an argument is too large or is not plain data; write finite numbers") from error
    return Named(name, arguments)


def named_as_yaml(value: Named) -> Any:
    """Return a Named in the form of a job file: its name alone if it has no arguments, else a mapping."""
    return {"name": value.name, **value.arguments} if value.arguments else value.name


NAMED = PlainValidator(parse_named)
NAMED_AS_YAML = PlainSerializer(named_as_yaml)


def refuse_argument(value: Named, argument: str, message: str) -> Named:
    """Return a part of Keras unchanged if it lacks an argument that a job file may not set there.

    Args:
        value: The part with its arguments.
        argument: Name of the argument.
        message: The reason and what to do, for the error.

    Raises:
        ProblemsError: The argument is given.
    """
    if argument in value.arguments:
        raise ProblemsError([Problem((argument,), message)])
    return value
