"""Files of November 2026, in `golden/`, of each form that another version reads: they are read, and written again.

Clients, servers and runs of different versions meet in these files. Where a form has to change, its number changes
too (vcdl.wire.fields, vcdl.wire.params), and the old files stay here as what is refused by name.
"""

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vcdl.codecs.choose import up_encoding
from vcdl.codecs.encoding import Encoding
from vcdl.data.npz_file import read_split, write_split
from vcdl.wire.checksum import checksum_of
from vcdl.wire.layout import Layout, Variable, Vector
from vcdl.wire.params import ParamsHeader, write_params
from vcdl.wire.weights import read_weights
from vcdl.wire.workunit import Frozen, Named, Normalisation, Output, Training, Transport, UpdateHeader, Workunit

GOLDEN = Path(__file__).with_name("golden")
OLDER = GOLDEN / "without_base_checksum"
LAYOUT = Layout(
    (Variable("dense/kernel", (3, 4), 0), Variable("norm/moving_mean", (4,), 12), Variable("dense/bias", (4,), 16))
).with_moments([("0_iteration", ()), ("1_velocity", (16,))])
SIZE = LAYOUT.size
BASE: Vector = np.asarray((np.arange(SIZE) - 7) / 8, np.float32)
TRAINED: Vector = np.abs(BASE * np.float32(1.25) + np.float32(0.0625))
UPLOADS = {
    "update.h5": Transport(),
    "update_int8.h5": Transport(up=Named("int8", {"levels": 31})),
    "update_top_k.h5": Transport(
        up=Named("top_k", {"share": 0.5, "two_bits": True}), feedback=True, moment_block=4, upload_share=0.2
    ),
}
"""Not compressed: the bytes of zlib are those of its version."""
TRAINING = Training(
    optimizer=Named("adam", {"beta_1": 0.9}), learning_rate=0.001, batch_size=16, local_epochs=2,
    loss=Named("sparse_categorical_crossentropy"), metrics=(Named("accuracy"),),
    normalisation=Normalisation((0.5,), (-1.0,)), share_optimizer_state="second_moment",
    outputs=(Output("kind", Named("mse"), (Named("mae"),), 0.5),),
)  # fmt: skip
WORKUNITS = {
    "workunit.json": Workunit("demo", 3, 17, 1, 142, 7, TRAINING, frozen=Frozen(9, "ab" * 32), newest="https://a.b/n"),
    "workunit_feedback.json": Workunit(
        "demo", 3, 1, 1, 142, 7, replace(TRAINING, target_s=90.0), UPLOADS["update_top_k.h5"], begins=64,
        taken="00ff0017" * 2,
    ),
}  # fmt: skip
X, Y = np.arange(24, dtype=np.uint8).reshape(3, 2, 4), np.array([0, 2, 1])
WEIGHTS = np.array([1.0, 0.5, 2.0], np.float32)


def encoding(name: str) -> Encoding:
    return up_encoding(UPLOADS[name], LAYOUT)


def header(name: str) -> UpdateHeader:
    workunit, label = WORKUNITS["workunit.json"].name, encoding(name).label
    times_s, checksum = {"start": 1.5, "write": 0.25}, checksum_of(BASE)
    return UpdateHeader(
        "demo", workunit, 143, LAYOUT.fingerprint, 96, 0.75, 12.25, 0.5, label, "jax", times_s, checksum
    )


def write(folder: Path) -> None:
    """Write all of them as this version does. They were made so, in `GOLDEN`."""
    write_params(folder / "params.h5", BASE, ParamsHeader("demo", 142, LAYOUT.fingerprint))
    for name in UPLOADS:
        encoding(name).write_upload(folder / name, TRAINED, BASE, header(name).to_json())
    for name, workunit in WORKUNITS.items():
        (folder / name).write_text(workunit.to_json(), encoding="utf-8")
    write_split(folder / "shard.npz", X, Y, WEIGHTS)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    write(folder)
    return folder


@pytest.mark.parametrize("name", ["params.h5", *UPLOADS, *WORKUNITS])
def test_the_same_bytes_are_written(written: Path, name: str) -> None:
    """But for one step of a value that lies between two: processors round its logarithm in different ways."""
    ours, theirs = (np.frombuffer((folder / name).read_bytes(), np.uint8) for folder in (written, GOLDEN))
    assert len(ours) == len(theirs)
    steps = np.abs(ours.astype(int) - theirs.astype(int))
    assert steps.sum() <= ("top_k" in name)


def test_a_shard_has_the_same_arrays_byte_by_byte(written: Path) -> None:
    """And not the same file: it is compressed."""
    members = []
    for folder in (written, GOLDEN):
        with zipfile.ZipFile(folder / "shard.npz") as file:
            members.append([(entry.filename, entry.date_time, file.read(entry)) for entry in file.infolist()])
    assert members[0] == members[1]
    x, y = read_split(GOLDEN / "shard.npz")
    assert (x.tobytes(), x.dtype, y.tolist()) == (X.tobytes(), X.dtype, Y.tolist())


def test_weights_are_read() -> None:
    vector, text = read_weights(GOLDEN / "params.h5", SIZE)
    told = ParamsHeader.from_json(text)
    assert vector.tobytes() == BASE.tobytes()
    assert told == ParamsHeader("demo", 142, LAYOUT.fingerprint)
    assert told.checksum == checksum_of(vector)


@pytest.mark.parametrize(("name", "furthest"), [("update.h5", 0.0), ("update_int8.h5", 0.06), ("update_top_k.h5", 1.0)])
def test_uploads_are_read(name: str, furthest: float) -> None:
    """Also those of clients that do not say which weights they began with but by number."""
    for folder, expected in ((GOLDEN, header(name)), (OLDER, replace(header(name), base_checksum=""))):
        vector, text = encoding(name).read(folder / name)
        encoding(name).add_base(BASE, vector)
        assert np.abs(vector - TRAINED).max() <= furthest * np.abs(TRAINED - BASE).max()
        assert UpdateHeader.from_json(text) == expected


@pytest.mark.parametrize("name", WORKUNITS)
def test_workunits_are_read(name: str) -> None:
    assert Workunit.from_json((GOLDEN / name).read_text(encoding="utf-8")) == WORKUNITS[name]
