"""The section `transport` of a job file: how weights are encoded. vcdl.codecs.choose creates the codecs from it."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import field_validator

from vcdl.job.named import NAMED_AS_YAML, parse_named
from vcdl.wire.workunit import Named, Transport
from vcdl.yaml_schema import values as kinds
from vcdl.yaml_schema.section import Section, read_section


class NoArguments(Section):
    """`float32`, `float16` and `bfloat16`, which have no arguments."""


class Int8Arguments(Section):
    """`{name: int8, …}`: whole numbers with a scale for each block."""

    levels: Annotated[int, kinds.whole(1, 127)] = 127
    """Steps from 0 to the largest absolute value of a block."""


class TopKArguments(Section):
    """`up: {name: top_k, …}`: only the largest differences are sent."""

    share: Annotated[float, kinds.fraction(zero=False, one=True)] = 0.05
    """The fraction of the differences that is sent."""
    two_bits: Annotated[bool, kinds.true_or_false()] = False
    """Whether each difference is sent as a sign and one of two sizes; the rounding error needs `feedback`."""


_DOWN: Mapping[str, type[Section]] = {
    "float32": NoArguments,
    "float16": NoArguments,
    "bfloat16": NoArguments,
    "int8": Int8Arguments,
}
_UP: Mapping[str, type[Section]] = {**_DOWN, "top_k": TopKArguments}


class TransportSettings(Section):
    """How weights are encoded for sending, in both directions."""

    down: Annotated[Named, NAMED_AS_YAML] = Named("float32")
    """The codec of the weights that a client starts from."""
    up: Annotated[Named, NAMED_AS_YAML] = Named("float32")
    """The codec of the client's change; `float32` sends the trained weights instead of the change."""
    compress: Annotated[bool, kinds.true_or_false()] = False
    """Whether the codecs' output is also compressed, without loss."""
    feedback: Annotated[bool, kinds.true_or_false()] = False
    """Whether a host keeps the residual of its codec, and adds it to its next upload of the job."""
    moment_block: Annotated[int, kinds.whole(1, 65536)] = 1
    """Number of neighbouring second moments that are sent as their mean, in both directions, where a codec rounds."""
    upload_share: Annotated[float, kinds.fraction(zero=False, one=True)] | None = None
    """The most seconds of sending, as a fraction of those of training: hosts with a slow link send less with `top_k`;
    None: no limit."""

    @field_validator("down", mode="plain")
    @classmethod
    def _goes_down(cls, raw: Any) -> Named:
        return _codec(raw, _DOWN)

    @field_validator("up", mode="plain")
    @classmethod
    def _goes_up(cls, raw: Any) -> Named:
        return _codec(raw, _UP)

    def to_wire(self) -> Transport:
        """Return the settings in the form that clients receive."""
        return Transport(**{name: getattr(self, name) for name in Transport.__dataclass_fields__})

    @property
    def needs_bases(self) -> bool:
        """Whether decoding an upload needs the weights that its client started from."""
        return self.up.name != "float32"


def _codec(raw: Any, known: Mapping[str, type[Section]]) -> Named:
    value = parse_named(raw)
    if value.name not in known:
        raise kinds.expected_one_of(tuple(known), value.name)
    # The defaults of all arguments are written out, because server and client may have versions with different
    # defaults.
    arguments = read_section(known[value.name], value.arguments)
    return Named(value.name, arguments.model_dump(mode="json"))
