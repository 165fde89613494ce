"""Uploads that bounds measure before they are folded in, from their files into a store."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.codecs.encodings import CODECS
from tests.rules.updates import noise
from vcdl.checks import UploadCheck
from vcdl.client.residual import HostMemory, write_upload
from vcdl.codecs.choose import up_encoding
from vcdl.errors import FileUnavailable
from vcdl.errors.refusal import Refusal
from vcdl.loop.streamed_upload import FoldSettings, MeasuredUpload, StreamedUpload, open_fold
from vcdl.rules.vc_asgd import VcAsgd
from vcdl.stores import FileStore, Fold, Unfit
from vcdl.stores.change import FOLD_BLOCK
from vcdl.trust.bounds import Bounds
from vcdl.trust.contract import UploadFacts
from vcdl.trust.measuring_pass import MeasuringPass
from vcdl.trust.reference_file import ReferenceFile
from vcdl.trust.step import StepCheck
from vcdl.wire.hdf5_form import ENCODED
from vcdl.wire.layout import Layout, Variable, Vector
from vcdl.wire.taken import upload_mark
from vcdl.wire.weights import write_dataset, write_weights
from vcdl.wire.workunit import PLAIN, Named, Training, Transport, UpdateHeader, Workunit

SIZE = FOLD_BLOCK + 7
LAYOUT = Layout((Variable("dense/kernel", (FOLD_BLOCK,), 0), Variable("norm/moving_variance", (7,), FOLD_BLOCK)))
RULE = VcAsgd(alpha=0.5)
CLIP = 1.5
FEEDBACK = Transport(up=Named("top_k", {"share": 0.05}), feedback=True)


class Bench:
    """A bounded store and the files of uploads that all began with version 0."""

    def __init__(self, folder: Path, transport: Transport = PLAIN, passes: int = 1, fraction: float = 1.0) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.transport, self.passes, self.fraction = folder, transport, passes, fraction
        self.base, self.reference = noise(0, SIZE), folder / "reference_update.h5"
        self.base[FOLD_BLOCK:] = 1.0  # variances
        self.bounds = Bounds(
            LAYOUT, CLIP, tuple(Bounds(LAYOUT, CLIP, ()).row_of_step(self.base + step(9), self.base, 1))
        )
        state = self.bounds.state_of(RULE)
        write_weights(folder / "base.h5", self.base, "{}")
        write_weights(self.reference, step(1), "{}")
        self.store = FileStore(folder / "store", SIZE, state)
        self.store.create(self.base)

    def fold(self, step: Vector) -> float:
        """The upload B + step; returns the weight given."""
        write_weights(self.folder / "update.h5", self.base + step, json.dumps({}))
        return self.fold_file()

    def fold_file(self) -> float:
        """The upload that lies there; returns the weight given."""
        number = self.store.version() + 1
        (record,) = self.store.fold([Fold(f"s{number}", f"w{number}", 0, self.upload)])
        return record.weight

    def measurement(self, facts: UploadFacts, opened: ExitStack) -> MeasuringPass:
        return MeasuringPass(self.bounds, facts, ReferenceFile(self.reference, LAYOUT).open(opened), StepCheck())

    def upload(self, staleness: int) -> StreamedUpload:
        return open_fold(
            self.folder / "update.h5",
            self.folder / "base.h5",
            FoldSettings(LAYOUT, RULE, self.measurement, self.transport, self.passes),
            UploadFacts(epoch=1, staleness=staleness, samples=10, fraction=self.fraction),
            judge=UploadCheck("j", LAYOUT, (10,), 1, SIZE**0.5).judge,
        )


def step(seed: int, length: float = 1.0) -> Vector:
    """A step in the trained weights alone."""
    made = np.float32(length) * noise(seed, SIZE)
    made[FOLD_BLOCK:] = 0.0
    return made


@pytest.mark.parametrize("kept", [0, SIZE])
def test_a_long_step_is_shortened_whether_it_is_read_once_or_twice(
    tmp_path: Path, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vcdl.loop.streamed_upload.KEPT_NUMBERS", kept)
    bench = Bench(tmp_path)
    bench.fold(step(1, 3.0))  # twice as long as the limit, and not strange yet
    moved = bench.store.read()[1] - bench.base
    np.testing.assert_allclose(moved, 0.5 * step(1, CLIP), rtol=0.01, atol=1e-5)


def test_without_a_reference_update_it_waits(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.reference.unlink()
    with pytest.raises(FileUnavailable, match="the evaluator makes it"):
        bench.fold(step(1))
    write_weights(bench.reference, step(1), "{}")
    assert bench.fold(step(1)) == 0.5


@pytest.mark.parametrize("kept", [0, SIZE])
def test_a_newer_reference_update_takes_the_place_of_the_one_that_was_read(
    tmp_path: Path, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vcdl.trust.reference_file.KEPT_NUMBERS", kept)
    file = ReferenceFile(tmp_path / "reference_update.h5", LAYOUT)
    for seed in (1, 2):
        write_weights(tmp_path / "reference_update.h5", step(seed), "{}")
        for _ in range(2):
            with ExitStack() as opened:
                reference = file.open(opened)
                write_weights(tmp_path / "other.h5", step(9), "{}")
                (tmp_path / "other.h5").replace(tmp_path / "reference_update.h5")
                assert reference.block(5, 100).tobytes() == step(seed)[5:105].tobytes()
            write_weights(tmp_path / "reference_update.h5", step(seed), "{}")


def test_what_counts_already_is_folded_again_without_a_reference_update(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.reference.unlink()
    write_weights(tmp_path / "update.h5", bench.base, "{}")
    settings, facts = (
        FoldSettings(LAYOUT, RULE, lambda facts, _: MeasuringPass(bench.bounds, facts)),
        UploadFacts(1, 0, 10, 1.0),
    )
    open_fold(tmp_path / "update.h5", tmp_path / "base.h5", settings, facts, judge=None).close()


@pytest.mark.parametrize("kept", [0, SIZE])
def test_a_file_that_is_changed_between_the_two_passes_is_refused_or_read_once(
    tmp_path: Path, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vcdl.loop.streamed_upload.KEPT_NUMBERS", kept)
    bench = Bench(tmp_path)

    first_pass = MeasuredUpload.first_pass

    def changed(upload: MeasuredUpload, w: Vector, begin: int) -> None:
        first_pass(upload, w, begin)
        with (tmp_path / "update.h5").open("r+b") as file:
            file.seek(-4 * SIZE, 2)
            file.write(b"\0\0\0\0")

    monkeypatch.setattr(MeasuredUpload, "first_pass", changed)
    write_weights(tmp_path / "update.h5", bench.base, "{}")
    folded = Fold("s1", "w1", 0, bench.upload)
    if kept:
        bench.store.fold([folded])
        assert bench.store.read()[1].tobytes() == bench.base.tobytes(), "what was looked at is what counts"
        return
    with pytest.raises(Unfit, match="changed while it was being read"):
        bench.store.fold([folded])


@pytest.mark.parametrize(
    ("number", "refusal"),
    [(np.nan, Refusal.NOT_FINITE), (np.inf, Refusal.NOT_FINITE), (3e38, Refusal.STEP_TOO_LONG)],
)
def test_numbers_without_an_end_are_refused_as_such(tmp_path: Path, number: float, refusal: Refusal) -> None:
    bench, bad = Bench(tmp_path), step(1)
    bad[5] = number
    with pytest.raises(Unfit) as unfit:
        bench.fold(bad)
    assert [refused.refusal for refused in unfit.value.refused.values()] == [refusal]


def test_a_client_that_learned_nothing_changes_no_measure(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.fold(np.zeros(SIZE, np.float32)) == 0.5
    assert bench.fold(step(1)) == 0.5
    np.testing.assert_allclose(bench.store.read()[1] - bench.base, 0.5 * step(1), rtol=0.01, atol=1e-5)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [name for name in CODECS if name != "float32"])
@pytest.mark.parametrize(
    ("number", "length", "first"),
    [
        (0.0, 1.0, (0.5,)),
        (0.0, 3.0, (0.5,)),
        (0.0, 100.0, ([Refusal.STEP_TOO_LONG],)),
        (60_000.0, 1.0, ([Refusal.STEP_TOO_LONG],)),
        (np.inf, 1.0, ([Refusal.STEP_TOO_LONG], [Refusal.NOT_FINITE])),
        (np.nan, 1.0, ([Refusal.NOT_FINITE],)),
    ],
    ids=["honest", "long", "far too long", "one huge number", "infinite", "not a number"],
)
def test_uploads_with_feedback_are_bounded_like_plain_ones(
    tmp_path: Path, number: float, length: float, first: tuple[list[Refusal] | float, ...], name: str
) -> None:
    """By every codec that rounds; `float32` carries the weights themselves, and keeps nothing back."""
    transport = Transport(up=CODECS[name], feedback=True)
    up = up_encoding(transport, LAYOUT)
    plain, encoded = Bench(tmp_path / "plain"), Bench(tmp_path / "encoded", transport)
    host = HostMemory(tmp_path / "host")
    host.folder.mkdir()
    header = UpdateHeader("j", "j_e0001_s000_a0_v000000", 0, LAYOUT.fingerprint, 10, 1.0, 60.0, 0.5, codec=up.label)
    workunit = Workunit("j", 1, 0, 0, 0, 7, Training(Named("sgd"), 0.1, 8, 1, Named("mse")), transport)
    workunit = replace(workunit, taken=bytes([0, 0, 0, upload_mark(workunit.name, header.train_s)]).hex())
    for turn in range(3):  # each time a host that lies sends what it kept back before, too
        lie = step(1, length)
        lie[5] += number
        update = encoded.folder / "update.h5"
        with np.errstate(over="ignore", invalid="ignore"):
            write_upload(up, update, encoded.base + lie, encoded.base, header, workunit, host)
        sent = up.read(update)[0]
        outcomes = [outcome(encoded.fold_file), outcome(lambda sent=sent: plain.fold(sent))]  # type: ignore[misc]
        assert outcomes[0] == outcomes[1]
        assert turn or outcomes[0] in first
        assert encoded.store.read()[1].tobytes() == plain.store.read()[1].tobytes()


def outcome(fold: Callable[[], float]) -> list[Refusal] | float:
    """The weight given, or the refusals."""
    try:
        return fold()
    except Unfit as unfit:
        return [refused.refusal for refused in unfit.refused.values()]


@pytest.mark.parametrize(
    "gaps", [b"\xff" * 300 + b"\x00", b"\xff", b"", b"\x01\x01"], ids=["far away", "no end", "none", "too many"]
)
def test_numbers_for_places_that_the_model_has_not_are_refused(tmp_path: Path, gaps: bytes) -> None:
    bench = Bench(tmp_path, FEEDBACK)
    chunk = (1).to_bytes(4, "little") + np.float16(1.0).tobytes() + gaps
    write_dataset(tmp_path / "update.h5", ENCODED, [len(chunk).to_bytes(4, "little") + chunk], "{}")
    assert outcome(bench.fold_file) == [Refusal.UNREADABLE]
    assert bench.store.read()[1].tobytes() == bench.base.tobytes()


@pytest.mark.parametrize(
    ("passes", "fraction", "weight"), [(1, 0.1, 0.05), (10, 0.05, 0.25), (10, 0.1, 0.5), (10, 0.9, 0.5)]
)
def test_a_subtask_that_ends_by_time_counts_whole_from_a_pass_on(
    tmp_path: Path, passes: int, fraction: float, weight: float
) -> None:
    assert Bench(tmp_path, passes=passes, fraction=fraction).fold(step(1)) == pytest.approx(weight)
