"""Every way an upload can be wrong, each as a real file; and whatever bytes come, at worst they are refused."""

import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.places import DOCS
from tests.uploads import read_upload
from vcdl.checks import UploadCheck
from vcdl.errors.refusal import Refusal, Refused
from vcdl.wire.fields import FORMAT
from vcdl.wire.layout import Layout, Variable, Vector
from vcdl.wire.weights import write_weights
from vcdl.wire.workunit import UpdateHeader

SIZE = 100
LAYOUT = Layout((Variable("dense/kernel", (9, 10), 0), Variable("dense/bias", (10,), 90)))
WORKUNIT = "digits_e0003_s001_a0_v000142"
HEADER = UpdateHeader("digits", WORKUNIT, 142, LAYOUT.fingerprint, samples=60, fraction=1.0, train_s=2.5, loss=0.4)


def new_check() -> UploadCheck:
    return UploadCheck("digits", LAYOUT, shard_samples=(20, 30, 40), local_epochs=2, initial_norm=10.0)


def vector(seed: int = 0) -> Vector:
    return np.random.default_rng(seed).normal(size=SIZE).astype(np.float32)


def refusal(path: Path, check: UploadCheck | None = None) -> Refusal:
    """Why an upload is refused; the detail must be one line that names something."""
    with pytest.raises(Refused) as raised:
        (check or new_check()).examine(path, WORKUNIT)
    assert raised.value.detail
    assert "\n" not in raised.value.detail
    return raised.value.refusal


@pytest.fixture
def upload(tmp_path: Path) -> Path:
    return tmp_path / "update.h5"


def test_a_good_upload_is_taken(upload: Path) -> None:
    write_weights(upload, vector(), HEADER.to_json())
    assert new_check().examine(upload, WORKUNIT) == HEADER
    assert read_upload(upload, new_check().up).tobytes() == vector().tobytes()


# -- the header

HEADERS: dict[str, tuple[dict[str, Any], Refusal]] = {
    "another job": ({"job": "other"}, Refusal.WRONG_JOB),
    "another job of a name full of tricks": ({"job": "\ud800\n\x00'; DROP TABLE"}, Refusal.WRONG_JOB),
    "another workunit": ({"workunit": "digits_e0003_s002_a0_v000142"}, Refusal.WRONG_WORKUNIT),
    "another attempt": ({"workunit": "digits_e0003_s001_a1_v000142"}, Refusal.WRONG_WORKUNIT),
    "no workunit at all": ({"workunit": "../../etc/passwd"}, Refusal.WRONG_WORKUNIT),
    "an older base": ({"base_version": 141}, Refusal.WRONG_BASE),
    "a base to come": ({"base_version": 2**62}, Refusal.WRONG_BASE),
    "another model": ({"layout": "0" * 16}, Refusal.WRONG_LAYOUT),
    "another codec": ({"codec": "int8(127)"}, Refusal.WRONG_CODEC),
    "no samples": ({"samples": 0}, Refusal.BAD_COUNTERS),
    "more samples than local epochs over the shard": ({"samples": 61}, Refusal.BAD_COUNTERS),
    "nothing trained": ({"fraction": 0.0}, Refusal.BAD_COUNTERS),
    "a negative fraction": ({"fraction": -1.0}, Refusal.BAD_COUNTERS),
    "more than all trained": ({"fraction": 1.0000001}, Refusal.BAD_COUNTERS),
    "all trained with one sample": ({"samples": 1}, Refusal.BAD_COUNTERS),
    "a part trained with all samples": ({"fraction": 0.5}, Refusal.BAD_COUNTERS),
    "a fraction that is almost that of the samples": ({"samples": 59, "fraction": 0.98}, Refusal.BAD_COUNTERS),
    "negative time": ({"train_s": -0.1}, Refusal.BAD_COUNTERS),
    "longer than anything takes": ({"train_s": 1e308}, Refusal.BAD_COUNTERS),
    "a loss beyond float32": ({"loss": -1e300}, Refusal.BAD_COUNTERS),
}


@pytest.mark.parametrize(("changed", "expected"), HEADERS.values(), ids=HEADERS.keys())
def test_a_header_that_does_not_fit_is_refused(upload: Path, changed: dict[str, Any], expected: Refusal) -> None:
    write_weights(upload, vector(), replace(HEADER, **changed).to_json())
    assert refusal(upload) == expected


def test_a_shard_that_the_job_does_not_have_is_refused(upload: Path) -> None:
    workunit = "digits_e0003_s003_a0_v000142"
    write_weights(upload, vector(), replace(HEADER, workunit=workunit).to_json())
    with pytest.raises(Refused, match="between 1 and 0 are possible"):
        new_check().examine(upload, workunit)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "{}",
        "[]",
        "null",
        HEADER.to_json()[:-1],
        HEADER.to_json().replace(f'"format": {FORMAT}', '"format": 1'),
        HEADER.to_json().replace('"samples": 60', '"samples": -60'),
        HEADER.to_json().replace('"samples": 60', '"samples": 6e1'),
        HEADER.to_json().replace('"samples": 60', '"samples": true'),
        HEADER.to_json().replace('"samples": 60', '"samples": 60, "more": 1'),
        HEADER.to_json().replace('"fraction": 1.0', '"fraction": NaN'),
        HEADER.to_json().replace('"fraction": 1.0', '"fraction": 1e999'),
        HEADER.to_json().replace('"fraction": 1.0', '"fraction": 1' + "0" * 400),
        HEADER.to_json().replace('"samples": 60', '"samples": 1' + "0" * 5000),
        HEADER.to_json().replace('"loss": 0.4', '"loss": Infinity'),
        HEADER.to_json().replace('"job": "digits"', '"job": ["digits"]'),
        HEADER.to_json().replace('"job": "digits"', '"job": "' + "x" * 301 + '"'),
        "[" * 30_000,
        '{"a":' * 10_000,
    ],
    ids=lambda text: text[:40] or "empty",
)
def test_a_header_that_is_no_header_is_refused(upload: Path, text: str) -> None:
    write_weights(upload, vector(), text)
    assert refusal(upload) == Refusal.BAD_HEADER


# -- the weights


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("place", [0, 50, SIZE - 1])
def test_weights_that_are_not_finite_are_refused(upload: Path, value: float, place: int) -> None:
    weights = vector()
    weights[place] = value
    write_weights(upload, weights, HEADER.to_json())
    assert refusal(upload) == Refusal.NOT_FINITE


def of_norm(norm: float) -> Vector:
    return np.full(SIZE, norm / np.sqrt(SIZE), np.float32)


def test_the_first_uploads_are_measured_by_the_initial_weights(upload: Path) -> None:
    write_weights(upload, of_norm(99.0), HEADER.to_json())
    new_check().examine(upload, WORKUNIT)
    write_weights(upload, of_norm(101.0), HEADER.to_json())
    assert refusal(upload) == Refusal.NORM_TOO_LARGE


def test_later_ones_by_those_accepted_lately(upload: Path) -> None:
    check = new_check()
    for norm in (20.0, 30.0, 40.0):
        write_weights(upload, of_norm(norm), HEADER.to_json())
        check.examine(upload, WORKUNIT)
    write_weights(upload, of_norm(310.0), HEADER.to_json())
    for _ in range(5):
        assert refusal(upload, check) == Refusal.NORM_TOO_LARGE, "the refused ones are no measure"
    write_weights(upload, of_norm(290.0), HEADER.to_json())
    check.examine(upload, WORKUNIT)


def test_a_model_that_begins_with_zeros_can_be_trained(upload: Path) -> None:
    check = replace(new_check(), initial_norm=0.0)
    write_weights(upload, of_norm(5.0), HEADER.to_json())
    check.examine(upload, WORKUNIT)


# -- the file


def plain(path: Path, data: Any = None, header: Any = None, **options: Any) -> None:
    """A file of any HDF5 library's making."""
    with h5py.File(path, "w") as file:
        file.attrs["header"] = HEADER.to_json() if header is None else header
        file.create_dataset("weights", data=vector() if data is None else data, **options)


def without(path: Path, *, header: bool = True, weights: bool = True) -> None:
    with h5py.File(path, "w") as file:
        if header:
            file.attrs["header"] = HEADER.to_json()
        if weights:
            file["weights"] = vector()


def external_link(path: Path) -> None:
    without(path.with_name("other.h5"))
    with h5py.File(path, "w") as file:
        file.attrs["header"] = HEADER.to_json()
        file["weights"] = h5py.ExternalLink("other.h5", "/weights")


def soft_link(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.attrs["header"] = HEADER.to_json()
        file["others"] = vector()
        file["weights"] = h5py.SoftLink("/others")


def link_to_itself(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.attrs["header"] = HEADER.to_json()
        file["weights"] = h5py.SoftLink("/weights")


def group(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.attrs["header"] = HEADER.to_json()
        file.create_group("weights")["weights"] = vector()


def external_storage(path: Path) -> None:
    path.with_name("secret.bin").write_bytes(vector().tobytes())
    with h5py.File(path, "w") as file:
        file.attrs["header"] = HEADER.to_json()
        file.create_dataset("weights", (SIZE,), "<f4", external=[(str(path.with_name("secret.bin")), 0, SIZE * 4)])


def virtual(path: Path) -> None:
    without(path.with_name("other.h5"))
    sources = h5py.VirtualLayout((SIZE,), "<f4")
    sources[:] = h5py.VirtualSource("other.h5", "weights", (SIZE,))
    with h5py.File(path, "w") as file:
        file.attrs["header"] = HEADER.to_json()
        file.create_virtual_dataset("weights", sources)


def of_a_type_numpy_does_not_know(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.attrs["header"] = HEADER.to_json()
        h5py.h5d.create(file.id, b"weights", h5py.h5t.UNIX_D32LE, h5py.h5s.create_simple((SIZE,)))


def header_of_a_type_numpy_does_not_know(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["weights"] = vector()
        h5py.h5a.create(file.id, b"header", h5py.h5t.UNIX_D32LE, h5py.h5s.create(h5py.h5s.SCALAR))


def header_of_10_mb(path: Path) -> None:
    with h5py.File(path, "w", libver="latest") as file:
        file.attrs["header"] = "x" * 10_000_000
        file["weights"] = vector()


def header_of_100_kb(path: Path) -> None:
    with h5py.File(path, "w", libver="latest") as file:
        file.attrs["header"] = HEADER.to_json() + " " * 100_000
        file["weights"] = vector()


def cut(path: Path) -> None:
    write_weights(path, vector(), HEADER.to_json())
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut_by_a_byte(path: Path) -> None:
    write_weights(path, vector(), HEADER.to_json())
    path.write_bytes(path.read_bytes()[:-1])


def zeros(path: Path) -> None:
    write_weights(path, vector(), HEADER.to_json())
    path.write_bytes(bytes(path.stat().st_size))


BAD_FILES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "empty": lambda path: path.write_bytes(b""),
    "a folder": lambda path: path.mkdir(),
    "text": lambda path: path.write_text("<html>404 Not Found</html>"),
    "the signature alone": lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n"),
    "zeros": zeros,
    "cut in half": cut,
    "cut by a byte": cut_by_a_byte,
    "compressed as a whole": lambda path: path.write_bytes(zlib.compress(vector().tobytes())),
    "no header": lambda path: without(path, header=False),
    "no weights": lambda path: without(path, weights=False),
    "a header that is a number": lambda path: plain(path, header=5),
    "a header that is an array": lambda path: plain(path, header=["a", "b"]),
    "a header without a value": lambda path: plain(path, header=h5py.Empty("f4")),
    "a header of bytes": lambda path: plain(path, header=np.bytes_(HEADER.to_json())),
    "a header of a type NumPy does not know": header_of_a_type_numpy_does_not_know,
    "a header of 10 MB": header_of_10_mb,
    "a header of 100 KB": header_of_100_kb,
    "one weight more": lambda path: plain(path, np.ones(SIZE + 1, "<f4")),
    "one weight less": lambda path: plain(path, np.ones(SIZE - 1, "<f4")),
    "a matrix of the right size": lambda path: plain(path, np.ones((10, 10), "<f4")),
    "a number": lambda path: plain(path, np.float32(1)),
    "nothing": lambda path: plain(path, h5py.Empty("<f4")),
    "float64": lambda path: plain(path, vector().astype("<f8")),
    "float16": lambda path: plain(path, vector().astype("<f2")),
    "big-endian": lambda path: plain(path, vector().astype(">f4")),
    "integers": lambda path: plain(path, np.ones(SIZE, "<i4")),
    "complex numbers": lambda path: plain(path, vector().astype("c8")),
    "texts": lambda path: plain(path, np.array([b"x"] * SIZE)),
    "objects": lambda path: plain(path, [b"x" * 10] * SIZE, dtype=h5py.special_dtype(vlen=bytes)),
    "records": lambda path: plain(path, np.zeros(SIZE, [("a", "<f4"), ("b", "<f4")])),
    "a type NumPy does not know": of_a_type_numpy_does_not_know,
    "chunks": lambda path: plain(path, chunks=(10,)),
    "a compressed bomb": lambda path: plain(path, np.zeros(50_000_000, "<f4"), chunks=(1_000_000,), compression="gzip"),
    "compression of the right size": lambda path: plain(path, compression="gzip"),
    "a checksum filter": lambda path: plain(path, fletcher32=True),
    "a growing dataset": lambda path: plain(path, maxshape=(None,)),
    "more than the model could need": lambda path: plain(path, np.ones(1_000_000, "<f4")),
    "a link out of the file": external_link,
    "a soft link": soft_link,
    "a link to itself": link_to_itself,
    "a group": group,
    "storage outside of the file": external_storage,
    "a virtual dataset": virtual,
}


@pytest.mark.parametrize("make", BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_file_that_is_not_plain_is_refused(upload: Path, make: Callable[[Path], object]) -> None:
    make(upload)
    assert refusal(upload) == Refusal.UNREADABLE


def test_every_refusal_has_been_seen_here() -> None:
    seen = {expected for _, expected in HEADERS.values()}
    seen |= {Refusal.UNREADABLE, Refusal.BAD_HEADER, Refusal.NOT_FINITE, Refusal.NORM_TOO_LARGE}
    elsewhere = {
        Refusal.STEP_TOO_LONG,  # tests/trust/test_step.py
        Refusal.AGAINST_OTHERS,
        Refusal.QUARANTINED,  # tests/trust/test_strangers.py
        Refusal.NO_ROOM,
        Refusal.UNFINISHED,
        Refusal.NO_FILE,  # tests/boinc/daemons/test_daemons.py
        Refusal.NEGATIVE_MOMENTS,  # tests/codecs/test_hostile_files.py
    }
    assert seen == set(Refusal) - elsewhere


# -- documents


def test_every_refusal_is_explained_to_operators() -> None:
    document = (DOCS / "uploads.md").read_text().partition("## The refusals")[2]
    explained = [line.split("`")[1] for line in document.splitlines() if line.startswith("| `")]
    assert explained == [refusal.value for refusal in Refusal], "one row each, in the order of the checks"


# -- whatever bytes come


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("good") / "update.h5"
    write_weights(path, vector(), HEADER.to_json())
    return path


def try_bytes(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    try:
        header = new_check().examine(path, WORKUNIT)
    except Refused:
        return
    assert header.workunit == WORKUNIT
    assert np.isfinite(read_upload(path, new_check().up)).all()


@examples(300)
@given(data=st.data())
def test_a_good_file_cut_anywhere_is_refused(good: Path, data: st.DataObject) -> None:
    whole = good.read_bytes()
    cut = good.with_name("other.h5")
    cut.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    assert refusal(cut) == Refusal.UNREADABLE


@examples(300)
@given(data=st.data())
def test_a_good_file_with_more_behind_it_is_refused(good: Path, data: st.DataObject) -> None:
    longer = good.with_name("other.h5")
    longer.write_bytes(good.read_bytes() + data.draw(st.binary(min_size=1, max_size=500)))
    assert refusal(longer) == Refusal.UNREADABLE


@examples(1000)
@given(data=st.data())
def test_flipped_bytes_are_refused_unless_they_change_nothing_but_a_weight(good: Path, data: st.DataObject) -> None:
    whole = bytearray(good.read_bytes())
    before = bytes(whole)
    for place in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=4)):
        whole[place] ^= data.draw(st.integers(1, 255))
    flipped = good.with_name("other.h5")
    try_bytes(flipped, bytes(whole))
    if whole[: -SIZE * 4] != before[: -SIZE * 4]:
        assert refusal(flipped) == Refusal.UNREADABLE


@pytest.mark.slow
def test_every_single_byte_before_the_weights_is_checked(good: Path) -> None:
    whole = good.read_bytes()
    other = good.with_name("other.h5")
    for place in range(len(whole) - SIZE * 4):
        other.write_bytes(whole[:place] + bytes((whole[place] ^ 0x01,)) + whole[place + 1 :])
        assert refusal(other) == Refusal.UNREADABLE, place
