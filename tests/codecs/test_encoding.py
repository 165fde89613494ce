"""Vectors in files: what comes back is the same however it is read, statistics keep every bit, and nothing is
larger than announced.
"""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codecs.encodings import CODECS, LARGE, SHARE, SMALL, WITH_MOMENTS, changes, encoding, layout, same_bits
from tests.examples import examples
from vcdl.codecs.base import CHUNK
from vcdl.codecs.choose import up_encoding
from vcdl.codecs.encoding import Encoding
from vcdl.errors import WeightsFileError
from vcdl.wire.layout import Layout
from vcdl.wire.workunit import Named, Transport

HEADER = '{"some": "header"}'
WAYS = [pytest.param(name, compress, id=f"{name}{'+zlib' * compress}") for name in CODECS for compress in (False, True)]


@pytest.mark.parametrize(("name", "compress"), WAYS)
def test_another_header_leaves_every_byte_of_the_data(tmp_path: Path, name: str, compress: bool) -> None:
    way = encoding(CODECS[name], compress, WITH_MOMENTS)
    vector, path, expected = changes(WITH_MOMENTS.size), tmp_path / "update.h5", tmp_path / "expected.h5"
    way.write(path, vector, HEADER)
    longer = '{"a": "longer header than the first one"}'
    for old, new in ((HEADER, longer), (longer, "{}")):
        way.change_header(path, {old: new}.__getitem__)
        way.write(expected, vector, new)
        assert path.read_bytes() == expected.read_bytes(), "encoded once, however often its header is changed"


@pytest.mark.parametrize("of", [LARGE, WITH_MOMENTS], ids=["model", "moments"])
@pytest.mark.parametrize(("name", "compress"), WAYS)
def test_what_is_read_in_blocks_is_what_is_read_as_a_whole(
    tmp_path: Path, name: str, compress: bool, of: Layout
) -> None:
    way = encoding(CODECS[name], compress, of)
    vector, path = changes(of.size), tmp_path / "update.h5"
    way.write(path, vector, HEADER)
    whole, header = way.read(path)
    assert header == HEADER == way.read_header(path)
    assert np.isfinite(whole).all()
    for block in (1 << 18, 1 << 16, 1000, 65_537):
        with way.opened(path) as source:
            for _ in range(2):  # a second time from the begin on
                out = np.empty_like(vector)
                for begin in range(0, vector.size, block):
                    source.read(begin, out[begin : begin + block])
                assert same_bits(out, whole)


@pytest.mark.parametrize(("name", "compress"), WAYS)
def test_the_statistics_of_batch_normalisation_keep_every_bit(tmp_path: Path, name: str, compress: bool) -> None:
    way = encoding(CODECS[name], compress, LARGE)
    vector = changes(LARGE.size)
    assert len(LARGE.statistics) == 3
    for begin, end in LARGE.statistics:
        vector[begin:end] = np.float32(np.pi) * np.logspace(-30, 30, end - begin, dtype=np.float32)
    way.write(tmp_path / "update.h5", vector, HEADER)
    decoded, _ = way.read(tmp_path / "update.h5")
    for begin, end in LARGE.statistics:
        assert same_bits(decoded[begin:end], vector[begin:end])


@pytest.mark.parametrize(("name", "compress"), WAYS)
@pytest.mark.parametrize("of", [SMALL, LARGE, WITH_MOMENTS], ids=["small", "large", "moments"])
def test_no_file_is_larger_than_announced(tmp_path: Path, name: str, compress: bool, of: Layout) -> None:
    way = Encoding(encoding(CODECS[name], compress).codec, compress, of)
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2**32, way.layout.size, np.uint32).view(np.float32)  # nothing compresses these
    noise = np.where(np.isfinite(bits), np.clip(bits, -1e38, 1e38), np.float32(1.0))
    for vector in (noise, changes(way.layout.size), np.zeros(way.layout.size, np.float32)):
        way.write(tmp_path / "update.h5", vector, "x" * 60_000)
        assert (tmp_path / "update.h5").stat().st_size <= way.most_file_bytes
        way.read(tmp_path / "update.h5")


def test_an_upload_is_the_difference_and_gives_the_weights_again(tmp_path: Path) -> None:
    base = np.random.default_rng(3).standard_normal(SMALL.size).astype(np.float32)
    weights = base + np.float32(0.01) * changes(SMALL.size)
    for (name, codec), compress in itertools.product(CODECS.items(), (False, True)):
        way = encoding(codec, compress)
        way.write_upload(tmp_path / "update.h5", weights, base, HEADER)
        decoded, _ = way.read(tmp_path / "update.h5")
        way.add_base(base, decoded)
        if name == "float32":
            assert same_bits(decoded, weights)
        elif not name.startswith("top_k"):
            assert np.abs(decoded - weights).max() < np.abs(weights - base).max() / 20
        else:
            assert np.count_nonzero(decoded != base) <= SHARE * SMALL.size + 22


@pytest.mark.parametrize(("name", "compress"), WAYS)
def test_moments_are_uploaded_as_they_are_and_stay_what_they_can_be(tmp_path: Path, name: str, compress: bool) -> None:
    way, model = encoding(CODECS[name], compress, WITH_MOMENTS), WITH_MOMENTS.model.size
    base, weights = np.abs(changes(WITH_MOMENTS.size, 1)), np.abs(changes(WITH_MOMENTS.size, 2))
    weights[model] = 12_345  # steps, beside moments that are millions of times smaller
    way.write_upload(tmp_path / "update.h5", weights, base, HEADER)
    decoded, _ = way.read(tmp_path / "update.h5")
    way.add_base(base, decoded)
    if name == "float32":
        assert same_bits(decoded, weights)
    assert (decoded[model:] > 0).all()
    np.testing.assert_allclose(decoded[model:], weights[model:], rtol=0.15)


@pytest.mark.parametrize("name", CODECS)
def test_a_file_of_another_model_is_refused(tmp_path: Path, name: str) -> None:
    encoding(CODECS[name], True, LARGE).write(tmp_path / "update.h5", changes(LARGE.size), HEADER)
    with pytest.raises(WeightsFileError):
        encoding(CODECS[name], True, SMALL).read(tmp_path / "update.h5")
    encoding(CODECS[name], True, SMALL).write(tmp_path / "update.h5", changes(SMALL.size), HEADER)
    with pytest.raises(WeightsFileError):
        encoding(CODECS[name], True, LARGE).read(tmp_path / "update.h5")


@examples(30)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=5), st.integers(0, 100), st.sampled_from(list(CODECS)))
def test_models_of_any_shape_come_back(tmp_path: Path, sizes: list[int], seed: int, name: str) -> None:
    of = layout(*sizes)
    vector = changes(of.size, seed)
    for compress in (False, True):
        way = encoding(CODECS[name], compress, of)
        way.write(tmp_path / "update.h5", vector, HEADER)
        once, _ = way.read(tmp_path / "update.h5")
        way.write(tmp_path / "again.h5", once, HEADER)
        twice, _ = way.read(tmp_path / "again.h5")
        np.testing.assert_allclose(once, twice, rtol=1e-6, atol=0)


@pytest.mark.parametrize("compress", [False, True])
def test_neighbouring_second_moments_travel_as_their_mean(tmp_path: Path, compress: bool) -> None:
    """Those of a variable's end, and at the end of a chunk, are fewer."""
    of = layout(700, CHUNK + 600).with_moments([("0_iteration", ()), ("1_velocity", (300, 401))])
    single, blocks = (
        up_encoding(Transport(up=Named("int8"), compress=compress, moment_block=block), of) for block in (1, 32)
    )
    vector = np.concatenate([changes(of.model.size), [1234.0], np.abs(changes(300 * 401)) + 1e-6]).astype(np.float32)
    for encoding_, name in ((single, "single"), (blocks, "blocks")):
        encoding_.write(tmp_path / name, vector, "{}")
    decoded, _ = blocks.read(tmp_path / "blocks")
    moments, exact = decoded[of.model.size + 1 :], vector[of.model.size + 1 :]
    assert moments.mean() == pytest.approx(exact.mean(), rel=0.05)
    assert np.unique(moments[:16]).size == 1 or np.unique(moments[:32]).size <= 2
    assert decoded[of.model.size] == pytest.approx(1234, rel=0.2)
    saved = (tmp_path / "single").stat().st_size - (tmp_path / "blocks").stat().st_size
    assert saved > 0.8 * 300 * 401 * (0.8 if compress else 1)
    assert blocks.label != single.label
    assert blocks.within(0.0).most_bytes <= blocks.most_bytes
