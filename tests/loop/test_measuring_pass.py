"""Uploads that bounds measure before they are folded in, from their files into a store."""

import json
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from tests.rules.updates import noise
from vcdl.checks import Refusal, UploadCheck
from vcdl.errors import FileUnavailable
from vcdl.loop.reference_file import ReferenceFile
from vcdl.loop.streamed_upload import FoldSettings, StreamedUpload, UploadFacts, UploadFiles
from vcdl.rules.bounds import Bounds
from vcdl.rules.vc_asgd import VcAsgd
from vcdl.stores import FileStore, Fold, Unfit
from vcdl.stores.change import FOLD_BLOCK
from vcdl.wire.weights import Layout, Variable, Vector, write_weights

SIZE = FOLD_BLOCK + 7
LAYOUT = Layout((Variable("dense/kernel", (FOLD_BLOCK,), 0), Variable("norm/moving_variance", (7,), FOLD_BLOCK)))
RULE = VcAsgd(alpha=0.5)
CLIP = 1.5


class Bench:
    """A bounded store and the files of uploads that all began with version 0."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.base, self.reference = noise(0, SIZE), folder / "reference_update.h5"
        self.base[FOLD_BLOCK:] = 1.0  # variances
        self.bounds = Bounds(
            LAYOUT, CLIP, tuple(Bounds(LAYOUT, CLIP, ()).lengths_of(self.base + step(9), self.base, 1))
        )
        state = self.bounds.state_of(RULE)
        write_weights(folder / "base.h5", self.base, "{}")
        write_weights(self.reference, step(1), "{}")
        self.store = FileStore(folder / "store", SIZE, state)
        self.store.create(self.base)

    def fold(self, step: Vector) -> float:
        """The upload B + step; returns the weight given."""
        number = self.store.version() + 1
        write_weights(self.folder / "update.h5", self.base + step, json.dumps({}))
        (record,) = self.store.fold([Fold(f"s{number}", f"w{number}", 0, self.upload)])
        return record.weight

    def upload(self, staleness: int, kind: type[StreamedUpload] = StreamedUpload) -> StreamedUpload:
        reference = ReferenceFile(self.reference, LAYOUT)
        return kind(
            UploadFiles(self.folder / "update.h5", self.folder / "base.h5", reference),
            FoldSettings(LAYOUT, RULE, self.bounds),
            UploadFacts(epoch=1, staleness=staleness, samples=10, fraction=1.0),
            judge=UploadCheck("j", LAYOUT, (10,), 1, SIZE**0.5),
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
    monkeypatch.setattr("vcdl.loop.reference_file.KEPT_NUMBERS", kept)
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
    reference = ReferenceFile(bench.reference, LAYOUT)
    files = UploadFiles(tmp_path / "update.h5", tmp_path / "base.h5", reference)
    settings = FoldSettings(LAYOUT, RULE, bench.bounds)
    StreamedUpload(files, settings, UploadFacts(1, 0, 10, 1.0), judge=None).close()


@pytest.mark.parametrize("kept", [0, SIZE])
def test_a_file_that_is_changed_between_the_two_passes_is_refused_or_read_once(
    tmp_path: Path, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vcdl.loop.streamed_upload.KEPT_NUMBERS", kept)
    bench = Bench(tmp_path)

    class Changed(StreamedUpload):
        def first_pass(self, w: Vector, begin: int) -> None:
            super().first_pass(w, begin)
            with (tmp_path / "update.h5").open("r+b") as file:
                file.seek(-4 * SIZE, 2)
                file.write(b"\0\0\0\0")

    write_weights(tmp_path / "update.h5", bench.base, "{}")
    folded = Fold("s1", "w1", 0, lambda staleness: bench.upload(staleness, Changed))
    if kept:
        bench.store.fold([folded])
        assert bench.store.read()[1].tobytes() == bench.base.tobytes(), "what was looked at is what counts"
        return
    with pytest.raises(Unfit, match="changed while it was read"):
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
