"""Uploads that a rule must measure before it folds them in, from their files into a store."""

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.rules.updates import noise, replayed
from vcdl.checks import Refusal, UploadCheck
from vcdl.errors import FileUnavailable
from vcdl.loop.reference_file import ReferenceFile
from vcdl.loop.streamed_upload import FoldSettings, StreamedUpload, UploadFacts, UploadFiles
from vcdl.rules.base import Update
from vcdl.rules.centred_clipping import CentredClipping
from vcdl.rules.fedasync import Constant
from vcdl.rules.guarded import Guarded
from vcdl.rules.measuring import MeasuringRule
from vcdl.rules.statistics import StatisticsMean, on_statistics
from vcdl.rules.vc_asgd import VcAsgd
from vcdl.stores import FileStore, Fold, Unfit
from vcdl.stores.change import FOLD_BLOCK
from vcdl.wire.weights import Layout, Variable, Vector, write_weights

SIZE = FOLD_BLOCK + 7
LAYOUT = Layout((Variable("dense/kernel", (FOLD_BLOCK,), 0), Variable("norm/moving_variance", (7,), FOLD_BLOCK)))
CLIPS = Guarded(VcAsgd(0.5), 0.9, None)
JUDGES = Guarded(VcAsgd(0.5), 1.0, 0.5)


@dataclass
class Bench:
    """A store and the files of uploads that all began with version 0."""

    folder: Path
    rule: MeasuringRule

    def __post_init__(self) -> None:
        self.base, self.reference = noise(0, SIZE), self.folder / "reference_update.h5"
        self.whole = self.rule.state.begun(self.base.copy())
        write_weights(self.folder / "base.h5", self.base, "{}")
        self.store = FileStore(self.folder / "store", SIZE, self.rule.state)
        self.store.create(self.base)

    def fold(self, step: Vector, attempt: int = 0) -> float:
        """The upload B + step; returns the weight given."""
        number = self.store.version() + 1
        write_weights(self.folder / "update.h5", self.base + step, json.dumps({}))
        folded = Fold(f"s{number}", f"w{number}", 0, lambda staleness: self.upload(staleness, attempt))
        (record,) = self.store.fold([folded])
        return record.weight

    def upload(self, staleness: int, attempt: int = 0) -> StreamedUpload:
        check = UploadCheck("j", LAYOUT, (10,), 1, SIZE**0.5)
        facts = UploadFacts(epoch=1, staleness=staleness, samples=10, fraction=1.0, base_version=0, attempt=attempt)
        reference = ReferenceFile(self.reference, LAYOUT)
        files = UploadFiles(self.folder / "update.h5", self.folder / "base.h5", reference)
        return StreamedUpload(files, FoldSettings(LAYOUT, self.rule), facts, judge=check)

    def replay(self, step: Vector) -> float:
        """The same in memory, all of it at once, statistics measured as well: leave them alone."""
        number = self.store.version() + 1
        update = Update(
            weights=self.base + step,
            epoch=1,
            staleness=number - 1,
            samples=10,
            fraction=1.0,
            number=number,
            base=self.base,
        )
        statistics, mean = slice(FOLD_BLOCK, SIZE), on_statistics(self.rule)
        averaged = self.rule.state.rows(self.whole.copy())[..., statistics]
        weight = replayed(self.rule, self.whole, update)
        if isinstance(mean, StatisticsMean):
            mean.apply(averaged, update.part(statistics))
            self.rule.state.rows(self.whole)[:, statistics] = averaged
        return weight


def step(seed: int, length: float = 1.0) -> Vector:
    """A step in the trained weights alone."""
    made = np.float32(length) * noise(seed, SIZE)
    made[FOLD_BLOCK:] = 0.0
    return made


@pytest.mark.parametrize("rule", [CLIPS, CentredClipping(1.0, 2, 0.9, Constant())], ids=repr)
def test_block_by_block_from_the_file_comes_to_the_same_as_all_at_once(tmp_path: Path, rule: MeasuringRule) -> None:
    bench = Bench(tmp_path, rule)
    for number, length in enumerate((1.0, 0.5, 4.0, 0.1, 2.0), start=1):
        expected = bench.replay(step(number, length))
        assert bench.fold(step(number, length)) == expected
    assert bench.store.read_whole()[1].tobytes() == bench.whole.tobytes()


def test_statistics_of_batch_normalisation_do_not_count_for_the_length(tmp_path: Path) -> None:
    bench, far = Bench(tmp_path, CLIPS), step(2)
    bench.fold(step(1))
    far[FOLD_BLOCK:] = 100.0
    bench.fold(far)
    one, other = bench.rule.state.lengths_of(bench.rule.state.tail_of(bench.store.read_whole()[1]))[1:3]
    assert other == pytest.approx(one, rel=0.01)


@pytest.mark.parametrize(("direction", "is_refused"), [(1.0, False), (-1.0, True), (0.0, True)])
def test_an_upload_that_leads_elsewhere_than_the_reference_update_is_refused(
    tmp_path: Path, direction: float, is_refused: bool
) -> None:
    bench = Bench(tmp_path, JUDGES)
    write_weights(bench.reference, np.float32(direction) * step(1) + step(2, 0.1), "{}")
    before = bench.store.read_whole()[1]
    if is_refused:
        for attempt in (0, 1):
            with pytest.raises(Unfit) as unfit:
                bench.fold(step(1), attempt=attempt)
            (refused,) = unfit.value.refused.values()
            assert refused.refusal == Refusal.AGAINST_REFERENCE
            assert bench.store.read_whole()[1].tobytes() == before.tobytes()
        assert bench.fold(step(1), attempt=2) == 0.5, "the third opinion counts"
    else:
        assert bench.fold(step(1)) == 0.5


def test_without_a_reference_update_it_waits(tmp_path: Path) -> None:
    bench = Bench(tmp_path, JUDGES)
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
    bench = Bench(tmp_path, JUDGES)
    write_weights(tmp_path / "update.h5", bench.base, "{}")
    files = UploadFiles(tmp_path / "update.h5", tmp_path / "base.h5")
    StreamedUpload(files, FoldSettings(LAYOUT, JUDGES), UploadFacts(1, 0, 10, 1.0), judge=None).close()


@pytest.mark.parametrize("kept", [0, SIZE])
def test_a_file_that_is_changed_between_the_two_passes_is_refused_or_read_once(
    tmp_path: Path, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vcdl.loop.streamed_upload.KEPT_NUMBERS", kept)
    bench = Bench(tmp_path, CLIPS)

    class Changed(StreamedUpload):
        def first_pass_done(self, lengths: Vector) -> None:
            super().first_pass_done(lengths)
            with (tmp_path / "update.h5").open("r+b") as file:
                file.seek(-8, 2)
                file.write(b"\0\0\0\0")

    write_weights(tmp_path / "update.h5", bench.base, "{}")
    check = UploadCheck("j", LAYOUT, (10,), 1, SIZE**0.5)
    files = UploadFiles(tmp_path / "update.h5", tmp_path / "base.h5")
    change = Changed(files, FoldSettings(LAYOUT, CLIPS), UploadFacts(1, 0, 10, 1.0), judge=check)
    folded = Fold("s1", "w1", 0, lambda staleness: change)
    if kept:
        bench.store.fold([folded])
        assert bench.store.read()[1].tobytes() == bench.base.tobytes(), "what was looked at is what counts"
        return
    with pytest.raises(Unfit, match="changed while it was read"):
        bench.store.fold([folded])


@pytest.mark.parametrize("number", [np.nan, np.inf, 3e38])
def test_numbers_without_an_end_are_refused_as_such(tmp_path: Path, number: float) -> None:
    bench, bad = Bench(tmp_path, CLIPS), step(1)
    bad[5] = number
    with pytest.raises(Unfit) as unfit:
        bench.fold(bad)
    assert [refused.refusal for refused in unfit.value.refused.values()] == [Refusal.NOT_FINITE]


def test_a_client_that_learned_nothing_changes_no_measure(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CLIPS)
    assert bench.fold(np.zeros(SIZE, np.float32)) == 0.5
    assert bench.fold(step(1)) == 0.45, "the only length that is known is its own, and it is clipped to 0.9 of that"
