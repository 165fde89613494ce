"""Fold a run's kept uploads again, and compare the result with its snapshots.

The journal records how each version was made. If a run has kept all its uploads, all versions follow from the first
one. If it keeps uploads only to restore its store, the versions since the last complete snapshot follow from that
snapshot. If an upload is missing, the versions after it are unproven until the next complete snapshot.
"""

from dataclasses import dataclass, field

from vcdl.errors import StoreError, WeightsFileError
from vcdl.journal.events import RolledBack, UpdateApplied
from vcdl.journal.lineage import Lineage
from vcdl.loop.recovery import fold_again, whole_of
from vcdl.run.run import Run
from vcdl.stores.settings import Consistency
from vcdl.wire.layout import Vector
from vcdl.wire.weights import read_weights


@dataclass
class Proof:
    """Which of a run's snapshots could be reproduced from its uploads. Lists of versions are ascending."""

    updates: int = 0
    """Number of updates in the journal."""
    folded: int = 0
    """Number of updates that could be applied again."""
    begun: list[int] = field(default_factory=list)
    """Complete versions whose snapshot served as a starting point, so that it was not compared."""
    equal: list[int] = field(default_factory=list)
    """Versions whose snapshot equals the reproduced weights to the last bit."""
    differing: list[int] = field(default_factory=list)
    """Versions whose snapshot differs from the reproduced weights."""
    damaged: list[int] = field(default_factory=list)
    """Versions whose snapshot cannot be read, or is not what was written."""
    unproven: list[int] = field(default_factory=list)
    """Versions whose snapshot cannot be compared, because an upload that leads to it is missing."""
    why: str = ""
    """Why the first version could not be reproduced, or "" if all could."""


def prove(run: Run, lineage: Lineage) -> Proof:
    """Apply a run's uploads again in memory as far as its files allow, and compare the weights with each snapshot.

    Nothing is written.

    Args:
        run: The run.
        lineage: The updates and rollbacks of its journal.

    Raises:
        FileUnavailable: A file cannot be read now.
        RunFolderError: The run's folder cannot be read.
    """
    proof = Proof(len(lineage.recorded))
    left = set(run.folder.snapshot_versions())
    # An eventual store overwrites updates in an order that no journal has, so nothing can be proven.
    is_lossy = run.job.store.consistency == Consistency.EVENTUAL.value
    refolding = Refolding(run, lineage, proof)
    # Go through the versions in order: each is made from the previous one, so one vector in memory is enough.
    for version in [] if is_lossy else sorted(left | refolding.steps.keys()):
        whole = refolding.come_to(version)
        if version in left:
            if refolding.may_begin_at(version):
                proof.begun.append(version)
            else:
                _compare(run, version, None if lineage.count_unrecorded(version) else whole, proof)
    if is_lossy:
        proof.unproven, proof.why = sorted(left), "an eventual store overwrites updates that the journal has"
    return proof


def _compare(run: Run, version: int, whole: Vector | None, proof: Proof) -> None:
    """Compare a version's snapshot with the reproduced vector, or None if there is none, and add it to `proof`."""
    try:
        kept, _ = read_weights(run.folder.snapshot(version), run.layout.size)
    except WeightsFileError:
        if run.folder.snapshot(version).exists():  # it is absent where a run that is under way has discarded it
            proof.damaged.append(version)
        return
    found = proof.unproven
    if whole is not None:
        found = proof.equal if run.state.weights(whole).tobytes() == kept.tobytes() else proof.differing
    found.append(version)


class Refolding:
    """Reproduces the versions of a run one after the other in memory, including its rollbacks.

    Call `come_to` for each version in ascending order, and `may_begin_at` where no vector is known.
    """

    def __init__(self, run: Run, lineage: Lineage, proof: Proof) -> None:
        self._run, self._lineage, self._proof = run, lineage, proof
        steps: list[UpdateApplied | RolledBack] = [*lineage.recorded, *lineage.rollbacks]
        self.steps = {step.version: step for step in steps}
        self._whole: Vector | None = None
        self._good: dict[int, Vector] = {}
        """Copies of the versions that a later rollback returns to."""

    def come_to(self, version: int) -> Vector | None:
        """Return the store's whole vector at a version, or None if a needed file is missing or damaged.

        The next call changes this vector in place. Failures are noted in the proof.
        """
        step = self.steps.get(version)
        if isinstance(step, RolledBack):
            good = self._good.get(step.to)
            # A copy, because folding changes it in place and a second rollback may go back to the same version.
            self._whole = None if good is None else good.copy()
            self._fold(self._lineage.refolded_updates(step))
        elif step is not None:
            self._fold([step])
            self._proof.folded += self._whole is not None
        self._note_good(version)
        return self._whole

    def may_begin_at(self, version: int) -> bool:
        """Start from a version's snapshot if no vector is known and the version is complete; return whether it did."""
        if self._whole is not None or version not in self._lineage.bases:
            return False
        try:
            self._whole = whole_of(version, self._run)
        except WeightsFileError as error:
            self._proof.why = self._proof.why or str(error)
        self._note_good(version)
        return self._whole is not None

    def _note_good(self, version: int) -> None:
        """Copy the vector if a later rollback goes back to this version."""
        if self._whole is not None and any(rolled.to == version for rolled in self._lineage.rollbacks):
            self._good[version] = self._whole.copy()

    def _fold(self, updates: list[UpdateApplied]) -> None:
        """Apply updates to the vector in place, or forget the vector if an upload is missing or damaged."""
        if self._whole is None:
            return
        try:
            for update in updates:
                fold_again(self._run, update, self._whole)
        except StoreError:
            kept = self._run.folder.kept_upload(update.version, update.workunit)
            what = "is damaged, or its base is gone" if kept.exists() else "is not kept"
            self._proof.why = self._proof.why or f"the upload of version {update.version} {what}"
            # Later versions would be wrong from here on. `may_begin_at` restarts from the next complete snapshot.
            self._whole = None
