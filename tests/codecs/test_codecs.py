"""Each codec gives back what it promises: all bits, or numbers within its error."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.codecs.encodings import CODECS, changes, same_bits
from vcdl.codecs.base import CHUNK, SCALE_BLOCK, Codec, to_planes
from vcdl.codecs.bfloat16 import BFloat16
from vcdl.codecs.choose import _CODECS, up_encoding
from vcdl.codecs.float16 import Float16
from vcdl.codecs.float32 import Float32
from vcdl.codecs.int8 import Int8
from vcdl.codecs.logarithmic import Logarithmic
from vcdl.codecs.top_k import TopK
from vcdl.errors import WeightsFileError, WorkunitError
from vcdl.wire.layout import Layout, Vector
from vcdl.wire.workunit import Named, Transport

numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)
vectors = arrays(np.float32, st.integers(0, 700), elements=numbers)
usual = arrays(np.float32, st.integers(0, 700), elements=st.floats(-60_000, 60_000, width=32))


def there_and_back(codec: Codec, vector: Vector) -> Vector:
    data = codec.encode(vector)
    assert len(data) <= codec.most_bytes(vector.size)
    out = np.full(vector.size, np.nan, np.float32)
    codec.decode(memoryview(data), out)
    return out


@given(vectors)
def test_float32_gives_back_every_bit(vector: Vector) -> None:
    assert same_bits(there_and_back(Float32(), vector), vector)


@given(usual)
def test_float16_is_wrong_by_half_a_unit_in_its_last_place(vector: Vector) -> None:
    error = np.abs(there_and_back(Float16(), vector) - vector)
    assert np.all(error <= np.maximum(np.abs(vector) / 2048, 2.0**-25))


@given(vectors)
def test_float16_stays_finite_however_large_a_number_is(vector: Vector) -> None:
    decoded = there_and_back(Float16(), vector)
    assert np.isfinite(decoded).all()
    assert np.all(np.abs(decoded) <= 65504)


@given(vectors)
def test_bfloat16_is_wrong_by_half_a_unit_in_its_last_place_over_the_whole_range(vector: Vector) -> None:
    vector[np.abs(vector) > 3.38e38] = 0.0  # the largest bfloat16 is 3.39e38
    decoded = there_and_back(BFloat16(), vector)
    tiniest = 2.0**-134  # half of the smallest bfloat16
    assert np.all(
        np.abs(decoded.astype(np.float64) - vector) <= np.maximum(np.abs(vector.astype(float)) / 256, tiniest)
    )


def test_bfloat16_rounds_to_even_and_never_to_infinity() -> None:
    between = np.array([0x3F808000, 0x3F818000, 0xBF808001, 0x7F7FFFFF], np.uint32).view(np.float32)
    expected = np.array([0x3F800000, 0x3F820000, 0xBF810000, 0x7F7F0000], np.uint32).view(np.float32)
    assert same_bits(there_and_back(BFloat16(), between), expected)


@given(arrays(np.float32, st.integers(0, 700), elements=st.floats(-(2.0**99), 2.0**99, width=32)), st.integers(1, 127))
def test_int8_is_wrong_by_half_a_step_of_its_block(vector: Vector, levels: int) -> None:
    decoded = there_and_back(Int8(levels), vector)
    for begin in range(0, vector.size, SCALE_BLOCK):
        block, back = vector[begin : begin + SCALE_BLOCK].astype(np.float64), decoded[begin : begin + SCALE_BLOCK]
        step = np.abs(block).max(initial=0.0) / levels
        assert np.all(np.abs(block - back) <= 0.5001 * step + 1e-43)


def test_a_large_number_costs_only_its_own_block_precision() -> None:
    vector = changes(4 * SCALE_BLOCK)
    vector[5] = 1e6
    decoded = there_and_back(Int8(127), vector)
    error = np.abs(decoded - vector)
    assert error[:SCALE_BLOCK].max() > 0.01
    assert error[SCALE_BLOCK:].max() <= np.abs(vector[SCALE_BLOCK:]).max() / 254 * 1.001


@example(np.array([3.4027967e38, 0.5], np.float32))
@given(vectors)
def test_logarithms_are_wrong_by_half_a_step_of_the_octaves_in_their_block(vector: Vector) -> None:
    decoded = there_and_back(Logarithmic(), vector)
    assert np.array_equal(decoded == 0, vector == 0), "no moment that is not 0 becomes 0"
    for begin in range(0, vector.size, SCALE_BLOCK):
        block, back = (some[begin : begin + SCALE_BLOCK].astype(np.float64) for some in (vector, decoded))
        block, back = block[block != 0], back[back != 0]
        assert np.all(np.sign(block) == np.sign(back))
        logs = np.log2(np.abs(block))
        octaves = logs.max(initial=-np.inf) - logs.min(initial=np.inf)
        off = np.abs(np.log2(np.abs(back)) - logs)
        is_normal = np.abs(block) > 1e-36  # below, float32 itself has few bits
        assert np.all((off <= octaves / 252 + 1e-4)[is_normal])


@pytest.mark.parametrize("edges", [(0, np.inf), (0, np.nan), (np.nan, 0), (0, 1e30), (0, 128), (-150, 0), (1, 0)])
@pytest.mark.parametrize("code", [0, 127])
def test_logarithms_of_a_range_that_nobody_honest_sends_are_refused(edges: tuple[float, float], code: int) -> None:
    data = to_planes(np.array(edges, "<f4")) + bytes([code])
    with pytest.raises(WeightsFileError, match="a range of logarithms that no numbers have"):
        Logarithmic().decode(memoryview(data), np.zeros(1, np.float32))


def test_a_negative_zero_among_logarithms_is_refused() -> None:
    data = to_planes(np.zeros(2, "<f4")) + bytes([128])
    with pytest.raises(WeightsFileError, match="a negative zero"):
        Logarithmic().decode(memoryview(data), np.zeros(1, np.float32))


@pytest.mark.parametrize(("levels", "code"), [(127, -128), (15, 16), (15, -16), (1, 127)])
def test_int8_codes_beyond_the_levels_are_refused(levels: int, code: int) -> None:
    data = to_planes(np.ones(1, "<f4")) + np.int8(code).tobytes()
    with pytest.raises(WeightsFileError, match=f"beyond {levels} levels"):
        Int8(levels).decode(memoryview(data), np.zeros(1, np.float32))


@pytest.mark.parametrize("scale", [-1.0, -0.0, -np.inf])
def test_a_negative_scale_of_int8_is_refused(scale: float) -> None:
    data = to_planes(np.array([scale], "<f4")) + bytes([1])
    with pytest.raises(WeightsFileError, match="negative scale"):
        Int8().decode(memoryview(data), np.zeros(1, np.float32))


@given(usual, st.floats(0.001, 1.0))
def test_top_k_keeps_its_share_of_the_largest_and_rounds_them_as_float16(vector: Vector, share: float) -> None:
    codec = TopK(share)
    decoded = there_and_back(codec, codec.thinned(vector, []))
    kept = np.flatnonzero(decoded)
    assert len(kept) == min(math.ceil(share * vector.size), np.count_nonzero(np.abs(vector) >= 2.0**-24))
    if 0 < len(kept) < vector.size:
        assert np.abs(vector[kept]).min() >= np.abs(np.delete(vector, kept)).max() * (decoded[kept] != 0).all()
    assert np.all(np.abs(decoded[kept] - vector[kept]) <= np.maximum(np.abs(vector[kept]) / 2048, 2.0**-25))


def test_top_k_never_loses_what_is_not_a_number() -> None:
    """It would come to zero, and the server would take the update of a training that diverged."""
    codec = TopK(0.1)
    vector = np.array([1.0] * 9 + [np.nan] + [2.0] * 10, np.float32)
    assert np.isnan(there_and_back(codec, codec.thinned(vector, []))[9])


@pytest.mark.parametrize("places", [[0], [CHUNK - 1], [0, 254], [0, 255], [0, 256], [0, 511, 1000], [254, 509, 765]])
def test_top_k_finds_the_place_of_each_number_however_long_the_gap(places: list[int]) -> None:
    vector = np.zeros(CHUNK, np.float32)
    vector[places] = 1.5
    assert same_bits(there_and_back(TopK(0.01), vector), vector)


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("size", [0, 1, SCALE_BLOCK - 1, SCALE_BLOCK, SCALE_BLOCK + 1, CHUNK])
def test_no_chunk_is_longer_than_its_codec_says(name: str, size: int) -> None:
    codec = up_encoding(Transport(up=CODECS[name]), Layout(())).codec
    there_and_back(codec, codec.thinned(changes(size), []))
    there_and_back(codec, np.zeros(size, np.float32))
    there_and_back(codec, np.full(size, 7.0, np.float32))


DAMAGED: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda data: b"",
    "a byte less": lambda data: data[:-1],
    "a byte more": lambda data: data + b"\x00",
    "half of it": lambda data: data[: len(data) // 2],
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED.keys())
@pytest.mark.parametrize("name", CODECS)
def test_bytes_that_no_encoder_makes_are_refused(name: str, damage: Callable[[bytes], bytes]) -> None:
    codec = up_encoding(Transport(up=CODECS[name]), Layout(())).codec
    data = codec.encode(codec.thinned(changes(1000), []))
    with pytest.raises(WeightsFileError):
        codec.decode(memoryview(damage(data)), np.empty(1000, np.float32))


@pytest.mark.parametrize(
    "codec",
    [
        Named("gzip"),
        Named("int8", {"levels": 0}),
        Named("int8", {"levels": 128}),
        Named("int8", {"levels": "many"}),
        Named("top_k"),
        Named("top_k", {"share": 0.0}),
        Named("top_k", {"share": 1.5}),
        Named("float16", {"rounding": "up"}),
    ],
)
def test_a_codec_that_is_not_known_here_is_named(codec: Any) -> None:
    with pytest.raises(WorkunitError, match=rf"the codec '{codec.name}' .* client and server differ in version"):
        up_encoding(Transport(up=codec), Layout(()))


def test_what_holds_for_every_codec_is_tried_on_every_one() -> None:
    assert {codec.name for codec in CODECS.values()} == set(_CODECS)
