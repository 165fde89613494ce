"""The section `transport` of a job file: how weights travel. vcdl.codecs.choose makes the codecs."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import field_validator

from vcdl.job import values as kinds
from vcdl.job.section import Section, read_section
from vcdl.workunit import Named, Transport


class NoArguments(Section):
    """`float32`, `float16`, `bfloat16`: have none."""


class Int8Arguments(Section):
    """`{name: int8, …}`: whole numbers, scaled block by block."""

    levels: Annotated[int, kinds.whole(1, 127)] = 127
    """Steps from 0 to the largest number of a block."""


class TopKArguments(Section):
    """`up: {name: top_k, …}`: the largest differences alone."""

    share: Annotated[float, kinds.fraction(zero=False, one=True)] = 0.05
    """Of the differences, that travels."""


_DOWN: Mapping[str, type[Section]] = {
    "float32": NoArguments,
    "float16": NoArguments,
    "bfloat16": NoArguments,
    "int8": Int8Arguments,
}
_UP: Mapping[str, type[Section]] = {**_DOWN, "top_k": TopKArguments}


class TransportSettings(Section):
    """How weights go to the clients and come back."""

    down: Annotated[Named, kinds.NAMED_AS_YAML] = Named("float32")
    """The weights that a client starts from."""
    up: Annotated[Named, kinds.NAMED_AS_YAML] = Named("float32")
    """What it has changed of them; with `float32` the weights themselves."""
    compress: Annotated[bool, kinds.true_or_false()] = False
    """Without loss, what the codecs leave."""

    @field_validator("down", mode="plain")
    @classmethod
    def _goes_down(cls, raw: Any) -> Named:
        return _codec(raw, _DOWN)

    @field_validator("up", mode="plain")
    @classmethod
    def _goes_up(cls, raw: Any) -> Named:
        return _codec(raw, _UP)

    @property
    def told(self) -> Transport:
        """What clients are told."""
        return Transport(self.down, self.up, self.compress)

    @property
    def needs_bases(self) -> bool:
        """Whether an upload means nothing without the weights that its client started from."""
        return self.up.name != "float32"


def _codec(raw: Any, known: Mapping[str, type[Section]]) -> Named:
    value = kinds.named(raw)
    if value.name not in known:
        raise kinds.expected_one_of(tuple(known), value.name)
    arguments = read_section(known[value.name], value.arguments)
    return Named(value.name, arguments.model_dump(mode="json"))
