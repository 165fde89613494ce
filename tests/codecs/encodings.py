"""Encodings over a small model with batch statistics, and vectors to send."""

from typing import Any

import numpy as np

from vcdl.codecs.base import CHUNK
from vcdl.codecs.choose import up_encoding
from vcdl.codecs.encoding import Encoding
from vcdl.wire.layout import Layout, Variable, Vector
from vcdl.wire.workunit import Named, Transport

SHARE = 0.05
CODECS: dict[str, Named] = {
    "float32": Named("float32"),
    "float16": Named("float16"),
    "bfloat16": Named("bfloat16"),
    "int8": Named("int8"),
    "int8 of few levels": Named("int8", {"levels": 15}),
    "top_k": Named("top_k", {"share": SHARE}),
    "top_k in two bits": Named("top_k", {"share": SHARE, "two_bits": True}),
}


def layout(*sizes: int) -> Layout:
    """Kernels of these sizes, each with batch statistics behind it."""
    variables: list[Variable] = []
    offset = 0
    for number, size in enumerate(sizes):
        for path, length in (("kernel", size), ("moving_mean", 5), ("moving_variance", 5)):
            variables.append(Variable(f"{number}/{path}", (length,), offset))
            offset += length
    return Layout(tuple(variables))


SMALL = layout(700, 600)
LARGE = layout(CHUNK - 7, 300, 2 * CHUNK)
"""The statistics of the first layer lie in two chunks."""
WITH_MOMENTS = layout(700, CHUNK + 600).with_moments([("0_iteration", ()), ("1_momentum", (300, 400))])
"""They begin in the second chunk and end in the third."""


def encoding(codec: Named, compress: bool, of: Layout = SMALL) -> Encoding:
    return up_encoding(Transport(up=codec, compress=compress), of)


def changes(size: int, seed: int = 0) -> Vector:
    """Like those that training makes: of very different sizes in different places."""
    rng = np.random.default_rng(seed)
    return np.asarray(rng.standard_normal(size) * np.exp(3 * rng.standard_normal(size) - 6), np.float32)


def same_bits(one: Any, other: Any) -> bool:
    return bool(np.asarray(one).tobytes() == np.asarray(other).tobytes())
