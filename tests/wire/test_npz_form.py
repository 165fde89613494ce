"""`.npz` files are read whole, or refused with NpzError before memory is taken; nothing in them is run."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from tests.hostile_npz import HOSTILE, write_hostile
from vcdl.wire.npz_form import NpzError, NpzObjectsError, open_npz

X = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
Y = np.arange(4)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_are_read_as_numpy_wrote_them(tmp_path: Path, save: "np.ufunc") -> None:
    arrays = {
        "x": X,
        "fortran": np.asfortranarray(X.reshape(4, 6)),
        "big_endian": Y.astype(">i8"),
        "flag": np.array([True, False]),
        "number": np.array(7),
        "none": np.zeros((0, 3)),
        "text": np.array(["a", "bc"]),
    }
    save(tmp_path / "a.npz", **arrays)
    with open_npz(tmp_path / "a.npz") as file:
        assert file.names == list(arrays)
        for name, array in arrays.items():
            read = file.read(name)
            assert (read.dtype, read.shape) == (array.dtype, array.shape)
            assert file.header(name).shape == array.shape
            np.testing.assert_array_equal(read, array)


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_numpy_does_not_write_is_refused_before_it_takes_memory(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.npz"
    write_hostile(path, {"x": X, "y": Y}, "x", kind)
    tracemalloc.start()
    with pytest.raises(NpzError) as refused, open_npz(path) as file:
        file.read("x")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert str(refused.value)
    assert "\n" not in str(refused.value)
    assert most < 2_000_000
    assert (kind == "Python objects") == isinstance(refused.value, NpzObjectsError)


def test_a_checksum_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=X)
    path.write_bytes(path.read_bytes().replace(X[3].tobytes(), X[2].tobytes()))
    with pytest.raises(NpzError, match="CRC"), open_npz(path) as file:
        file.read("x")
