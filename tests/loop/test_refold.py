"""How far a run's weights follow from its uploads: all of them, or those since a snapshot that is complete."""

from pathlib import Path

import pytest

from tests.loop.test_recovery import cut_short, served
from tests.served_run import ServedRun, noise
from vcdl.journal.events import EpochClosed
from vcdl.journal.lineage import Lineage
from vcdl.loop.refold import Proof, prove
from vcdl.run.folder import RunFolder
from vcdl.run.reading import events_of

WEIGHTS = 300


@pytest.fixture
def run(tmp_path: Path) -> ServedRun:
    """Six updates with a snapshot of each version, and an epoch's end at 3."""
    run = ServedRun.new(tmp_path / "run", noise(0, WEIGHTS), "")
    for number in range(6):
        run.bring(number, noise(number + 1, WEIGHTS))
        served(run).run_once()
        version = run.run.snapshots(run.store).keep_newest()
        if version == 3:
            run.run.journal().append(EpochClosed(1, version))
    return run


def proof_of(run: ServedRun) -> Proof:
    return prove(run.run, Lineage.of(events_of(run.folder, *Lineage.KINDS)))


def remove_upload(folder: RunFolder, version: int) -> None:
    (path,) = folder.kept_uploads.glob(f"v{version:06d}_*.h5")
    path.unlink()


def test_a_run_that_kept_all_is_proven_from_its_begin(run: ServedRun) -> None:
    assert proof_of(run) == Proof(updates=6, folded=6, begun=[0], equal=[1, 2, 3, 4, 5, 6])


def test_after_an_upload_that_is_gone_it_is_proven_from_the_next_complete_snapshot(run: ServedRun) -> None:
    remove_upload(run.folder, 2)
    proof = proof_of(run)
    assert (proof.folded, proof.begun, proof.equal, proof.unproven) == (4, [0, 3], [1, 4, 5, 6], [2])
    assert proof.why == "the upload of version 2 is not kept"


def test_a_snapshot_of_other_weights_or_a_damaged_one_is_named(run: ServedRun) -> None:
    run.run.snapshots(run.store).keep(4, noise(99, WEIGHTS))
    cut_short(run.folder.snapshot(5))
    proof = proof_of(run)
    assert (proof.equal, proof.differing, proof.damaged) == ([1, 2, 3, 6], [4], [5])


def test_a_snapshot_with_updates_that_have_no_row_proves_nothing(run: ServedRun) -> None:
    """Its server was killed before it wrote them."""
    run.run.snapshots(run.store).keep(8, noise(99, WEIGHTS))
    proof = proof_of(run)
    assert (proof.folded, proof.equal, proof.unproven) == (6, [1, 2, 3, 4, 5, 6], [8])


def test_an_eventual_store_proves_nothing(run: ServedRun, tmp_path: Path) -> None:
    store = run.job.store.model_copy(update={"consistency": "eventual"})
    eventual = ServedRun(
        type(run.run)(run.folder, run.job.model_copy(update={"store": store}), run.prepared),
        run.store,
        run.initial,
        run.alpha,
    )
    proof = proof_of(eventual)
    assert (proof.folded, proof.equal, proof.unproven) == (0, [], [0, 1, 2, 3, 4, 5, 6])
