"""Choose the encodings of downloads and uploads by the names of codecs in a workunit."""

from collections.abc import Callable, Mapping
from typing import Any

from vcdl.codecs.base import Codec
from vcdl.codecs.bfloat16 import BFloat16
from vcdl.codecs.encoding import Encoding
from vcdl.codecs.float16 import Float16
from vcdl.codecs.float32 import Float32
from vcdl.codecs.int8 import Int8
from vcdl.codecs.top_k import TopK
from vcdl.errors import WorkunitError
from vcdl.wire.layout import Layout
from vcdl.wire.workunit import Named, Transport

_CODECS: Mapping[str, Callable[..., Codec]] = {
    "float32": Float32,
    "float16": Float16,
    "bfloat16": BFloat16,
    "int8": Int8,
    "top_k": TopK,
}


def down_encoding(transport: Transport, layout: Layout) -> Encoding:
    """Return the encoding of the weights that clients download. Raises WorkunitError if the codec is unknown here."""
    return Encoding(_codec(transport.down), transport.compress, layout, transport.moment_block)


def up_encoding(transport: Transport, layout: Layout) -> Encoding:
    """Return the encoding of uploads. Raises WorkunitError if the codec is unknown here."""
    return Encoding(_codec(transport.up), transport.compress, layout, transport.moment_block)


def _codec(named: Named) -> Codec:
    """Return the codec with this name and these arguments. Raises WorkunitError if it is unknown here."""
    arguments: Mapping[str, Any] = named.arguments
    try:
        return _CODECS[named.name](**arguments)
    # A workunit comes from a server that may be of another version, so a wrong argument is no bug here.
    except (KeyError, TypeError, ValueError) as error:
        raise WorkunitError(
            f"transport: the codec {named.name!r} with {dict(arguments)} is not known here, only {', '.join(_CODECS)}: "
            "client and server differ in version"
        ) from error
