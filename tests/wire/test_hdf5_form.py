"""The one form of a weights file: what any HDF5 tool opens, and what only these bytes are."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from vcdl.wire.hdf5_form import HEADER_LIMIT_BYTES, PREFIX_LIMIT_BYTES, _lookup3, header_of, prefix


def test_the_checksum_is_the_published_one() -> None:
    assert _lookup3(b"") == 0xDEADBEEF
    assert _lookup3(b"Four score and seven years ago") == 0x17770551


@pytest.mark.parametrize("length", [1, 5, 300, HEADER_LIMIT_BYTES])
@pytest.mark.parametrize("size", [0, 1, 7, 1000])
def test_an_hdf5_library_reads_it_and_adds_to_it(tmp_path: Path, length: int, size: int) -> None:
    header = "é".encode() * (length // 2) + b"x" * (length % 2)
    start = prefix(header, size)
    (tmp_path / "params.h5").write_bytes(start + np.arange(size, dtype="<f4").tobytes())
    with h5py.File(tmp_path / "params.h5", "r+") as file:
        assert file.attrs["header"] == header
        assert file["weights"].dtype == np.dtype("<f4")
        assert file["weights"].chunks is None
        assert np.array_equal(file["weights"], np.arange(size))
        assert list(file) == ["weights"]
        file["more"] = 5
    with h5py.File(tmp_path / "params.h5") as file:
        assert np.array_equal(file["weights"], np.arange(size))
    assert len(start) <= PREFIX_LIMIT_BYTES
    assert header_of(start) == header


@pytest.mark.parametrize("start", [b"", b"x" * 57, b"\xff" * 70_000, b"\x00" * 100, prefix(b"header", 5)[:60]])
def test_of_other_bytes_any_are_taken_for_the_header(start: bytes) -> None:
    assert len(header_of(start)) <= HEADER_LIMIT_BYTES
    assert not start.startswith(prefix(header_of(start), 5))
