"""Whatever a client uploads in place of encoded weights: it is refused or read, it never crashes or fills a server."""

import random
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codecs.encodings import CODECS, LARGE, SMALL, changes, encoding
from tests.examples import examples
from tests.uploads import header_of, read_upload
from vcdl.checks import UploadCheck
from vcdl.codecs.base import SCALE_BLOCK
from vcdl.errors import WeightsFileError
from vcdl.errors.refusal import Refusal, Refused
from vcdl.wire.hdf5_form import ENCODED
from vcdl.wire.params import ParamsHeader
from vcdl.wire.weights import open_dataset, write_dataset, write_weights
from vcdl.wire.workunit import PLAIN, Named, Transport

HEADER = "{}"
DEFLATED = 1 << 31
fuzz = examples(150)


def frame(data: bytes, length: int | None = None, *, deflated: bool = False) -> bytes:
    length = len(data) if length is None else length
    return (length | (DEFLATED if deflated else 0)).to_bytes(4, "little") + data


def is_read_or_refused(path: Path, name: str, compress: bool = True) -> bool:
    """Whether it was read."""
    try:
        vector, _ = encoding(CODECS[name], compress).read(path)
    except WeightsFileError:
        return False
    assert vector.shape == (SMALL.size,)
    return True


@fuzz
@given(st.binary(max_size=2000), st.sampled_from(list(CODECS)), st.booleans())
def test_any_bytes(tmp_path: Path, data: bytes, name: str, compress: bool) -> None:
    write_dataset(tmp_path / "update.h5", ENCODED, [data], HEADER)
    is_read_or_refused(tmp_path / "update.h5", name, compress)


@fuzz
@given(st.binary(max_size=6000), st.sampled_from(list(CODECS)), st.booleans())
def test_any_bytes_in_a_frame_that_is_right(tmp_path: Path, data: bytes, name: str, deflated: bool) -> None:
    chunk = zlib.compress(data) if deflated else data
    write_dataset(tmp_path / "update.h5", ENCODED, [frame(chunk, deflated=deflated)], HEADER)
    is_read_or_refused(tmp_path / "update.h5", name)


@fuzz
@given(st.integers(0, 2**32), st.sampled_from(list(CODECS)), st.booleans())
def test_an_honest_file_with_some_bytes_changed(tmp_path: Path, seed: int, name: str, compress: bool) -> None:
    path, chance = tmp_path / "update.h5", random.Random(seed)
    encoding(CODECS[name], compress).write(path, changes(SMALL.size), HEADER)
    data = bytearray(path.read_bytes())
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    if chance.random() < 0.3:
        del data[chance.randrange(len(data)) :]
    path.write_bytes(data)
    is_read_or_refused(path, name, compress)


def bomb(size_bytes: int) -> bytes:
    return frame(zlib.compress(bytes(size_bytes), 9), deflated=True)


HOSTILE: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "a byte": lambda: b"x",
    "a chunk that is longer than the file": lambda: frame(b"x" * 10, 1000),
    "a chunk of 2 GB": lambda: frame(b"x" * 10, DEFLATED - 1),
    "a chunk without an end": lambda: frame(zlib.compress(bytes(1000))[:-6], deflated=True),
    "a chunk that is no deflated one": lambda: frame(b"x" * 100, deflated=True),
    "a chunk with something behind it": lambda: frame(zlib.compress(bytes(1000)) + b"more", deflated=True),
    "a bomb": lambda: bomb(2_000_000),
    "a bomb in a bomb": lambda: bomb(200_000) + bomb(200_000),
    "another codec's chunk": lambda: frame(b"\xff" * 5000),
    "a gap without an end": lambda: frame((1).to_bytes(4, "little") + b"\x00\x3c" + b"\xff" * 9 + bytes(80)),
    "more numbers than there is room for": lambda: frame((2**32 - 1).to_bytes(4, "little") + bytes(200)),
}


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("name", CODECS)
def test_chunks_that_nobody_honest_sends(tmp_path: Path, name: str, make: Callable[[], bytes]) -> None:
    write_dataset(tmp_path / "update.h5", ENCODED, [make()], HEADER)
    assert not is_read_or_refused(tmp_path / "update.h5", name)


@pytest.mark.parametrize("name", CODECS)
def test_compressed_chunks_where_none_are_allowed_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "update.h5"
    encoding(CODECS[name], True).write(path, np.ones(SMALL.size, np.float32), HEADER)
    if encoding(CODECS[name], False).is_plain:
        return  # the form itself has no place for chunks
    assert is_read_or_refused(path, name)
    with pytest.raises(WeightsFileError, match="a compressed chunk, and `transport` compresses none"):
        encoding(CODECS[name], False).read(path)


def test_a_chunk_that_deflating_made_longer_is_refused(tmp_path: Path) -> None:
    raw = np.random.default_rng(1).bytes(5000)
    path, way = tmp_path / "update.h5", encoding(CODECS["float32"], True)
    write_dataset(path, ENCODED, [frame(zlib.compress(raw), deflated=True)], HEADER)
    with pytest.raises(WeightsFileError, match="of another length than it says"):
        way.read(path)


@pytest.mark.parametrize("transport", [PLAIN, Transport(up=Named("int8")), Transport(compress=True)])
@pytest.mark.parametrize("place", [-1, -50, -100])
def test_negative_second_moments_are_refused_by_name(tmp_path: Path, transport: Transport, place: int) -> None:
    layout = SMALL.with_moments([("0_momentum", (100,)), ("1_velocity", (100,))])
    started = np.full(layout.size, 0.5, np.float32)
    write_weights(tmp_path / "params.h5", started, ParamsHeader("digits", 142, layout.fingerprint).to_json())
    asked = replace(check(transport), layout=layout)
    header = header_of(WORKUNIT, layout.fingerprint, samples=60, codec=asked.up.label).to_json()
    for negative, refused in ((-101, False), (place, True)):
        trained = started.copy()
        trained[negative] = -1e-12
        asked.up.write_upload(tmp_path / "update.h5", trained, started, header)
        if refused:
            with pytest.raises(Refused, match="negative_moments"):
                asked.examine(tmp_path / "update.h5", WORKUNIT, tmp_path / "params.h5")
        else:
            asked.examine(tmp_path / "update.h5", WORKUNIT, tmp_path / "params.h5")


@pytest.mark.parametrize("name", CODECS)
def test_a_bomb_takes_no_more_memory_than_an_honest_upload(tmp_path: Path, name: str) -> None:
    path, way = tmp_path / "update.h5", encoding(CODECS[name], True, LARGE)
    write_dataset(path, ENCODED, [bomb(20_000_000)], HEADER)
    tracemalloc.start()
    words = r"of another length than it says|is not a plain file of at most"
    with pytest.raises(WeightsFileError, match=words), way.opened(path) as source:
        source.read(0, np.empty(1000, np.float32))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 3_000_000


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    way = encoding(CODECS["int8"], True)
    write_dataset(tmp_path / "update.h5", ENCODED, [bytes(way.most_bytes + 1)], HEADER)
    with pytest.raises(WeightsFileError, match=r"is not a plain file of at most \d+ bytes of encoded weights"):
        way.read_header(tmp_path / "update.h5")


# -- as uploads are checked

WORKUNIT = "digits_e0003_s001_a0_v000142"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    write_weights(
        tmp_path / "params.h5",
        np.full(SMALL.size, 0.5, np.float32),
        ParamsHeader("digits", 142, SMALL.fingerprint).to_json(),
    )
    return tmp_path / "params.h5"


def check(transport: Transport) -> UploadCheck:
    return UploadCheck("digits", SMALL, (30, 30), 2, initial_norm=10.0, transport=transport)


def send(path: Path, sent: Transport, size: float = 0.01) -> None:
    way = check(sent).up
    header = header_of(WORKUNIT, SMALL.fingerprint, samples=60, codec=way.label)
    started = np.full(SMALL.size, 0.5, np.float32)
    way.write_upload(path, started + np.float32(size), started, header.to_json())


def refusal(path: Path, asked: Transport, base: Path) -> Refusal:
    with pytest.raises(Refused) as refused:
        check(asked).examine(path, WORKUNIT, base)
    return refused.value.refusal


TRANSPORTS = [Transport(up=codec, compress=compress) for codec in CODECS.values() for compress in (False, True)]


@pytest.mark.parametrize("transport", TRANSPORTS, ids=lambda t: f"{t.up.name}{t.up.arguments}{t.compress}")
def test_an_honest_upload_is_taken(tmp_path: Path, base: Path, transport: Transport) -> None:
    send(tmp_path / "update.h5", transport)
    check(transport).examine(tmp_path / "update.h5", WORKUNIT, base)
    weights = read_upload(tmp_path / "update.h5", check(transport).up, base)
    assert np.abs(weights - 0.51).max() < (0.011 if transport.up.name == "top_k" else 0.001)


@pytest.mark.parametrize("transport", TRANSPORTS, ids=lambda t: f"{t.up.name}{t.up.arguments}{t.compress}")
def test_weights_that_travel_in_another_way_than_the_job_s_are_refused_by_name(
    tmp_path: Path, base: Path, transport: Transport
) -> None:
    send(tmp_path / "update.h5", transport)
    for asked in TRANSPORTS:
        if asked != transport:
            assert refusal(tmp_path / "update.h5", asked, base) == Refusal.WRONG_CODEC


def test_a_base_that_is_gone_is_refused_by_name(tmp_path: Path, base: Path) -> None:
    transport = Transport(up=Named("int8"), compress=True)
    send(tmp_path / "update.h5", transport)
    base.unlink()
    assert refusal(tmp_path / "update.h5", transport, base) == Refusal.WRONG_BASE


def test_the_norm_that_counts_is_that_of_the_weights(tmp_path: Path, base: Path) -> None:
    transport = Transport(up=Named("int8"), compress=True)
    send(tmp_path / "update.h5", transport, size=100.0)
    assert refusal(tmp_path / "update.h5", transport, base) == Refusal.NORM_TOO_LARGE


@pytest.mark.parametrize("scale", [np.nan, np.inf, 3e38])
def test_a_scale_that_is_not_finite_is_refused(tmp_path: Path, base: Path, scale: float) -> None:
    transport = Transport(up=Named("int8"), compress=False)
    path = tmp_path / "update.h5"
    send(path, transport)
    data = bytearray(path.read_bytes())
    header = check(transport).up.read_header(path)
    with open_dataset(path, ENCODED, range(10_000)) as opened:
        at = opened.data_at + 4  # behind the frame: the scales, a plane after the other
    scales = -(-(SMALL.size - 20) // SCALE_BLOCK)
    for plane, byte in enumerate(np.float32(scale).tobytes()):
        data[at + plane * scales] = byte
    path.write_bytes(data)
    assert check(transport).up.read_header(path) == header
    assert refusal(path, transport, base) in (Refusal.NOT_FINITE, Refusal.NORM_TOO_LARGE)
