"""The interface by which a parameter server asks how much to trust clients' uploads.

For each upload the server asks whether and how much it counts (`admit`), and whether it must be measured before any of
it is applied (`measurement`). It reports what it has applied (`accept`). vcdl.trust.own implements this if clients are
the submitter's own, otherwise vcdl.trust.strangers does. The answers depend on the journal only, so any number of
servers may ask, and each may be killed at any moment.

The numbers that trust adds to the store, after W, are fixed when a job is prepared (`Prepared.own_step`).
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from vcdl.errors.refusal import Refused
from vcdl.journal.events import Recorded, RolledBack
from vcdl.rules.base import Update
from vcdl.run.staging import Uploaded
from vcdl.wire.layout import Vector
from vcdl.wire.workunit import UpdateHeader


@dataclass(frozen=True)
class Admission:
    """The weight of an upload, or its refusal, as decided before its weights are read."""

    host: str
    """The upload's host, or an empty string if unknown."""
    weight: float = 1.0
    """The factor by which the upload counts, from 0 to 1. Later uploads are compared only with those of weight 1."""
    refused: Refused | None = None
    """The reason for refusing it, or None if it is admitted."""
    is_part: bool = False
    """Whether it covers only a part of its subtask, whose other samples are then reissued."""
    usual_train_s: float | None = None
    """Seconds that its host usually takes for as many samples, or None if unknown."""
    rate: float = 1.0
    """The learning rate of its workunit, as a factor of the job's peak, or 1 if it is not needed."""


@dataclass(frozen=True)
class UploadFacts:
    """The facts about an upload that a rule gets in addition to its weights."""

    epoch: int
    staleness: int
    samples: int
    fraction: float
    """The part of its subtask that was trained."""
    base_version: int = 0
    """The version that the client started from."""
    updates: int = 0
    """Number of updates in the whole job, unless something ends it earlier."""
    trust: float = 1.0
    """The weight by trust: `Admission.weight`."""
    is_doubted: bool = False
    """Whether it was found suspicious, and gets a small weight instead of being refused again."""
    rate: float = 1.0
    """The rate of its workunit: `Admission.rate`."""

    @property
    def number(self) -> int:
        """The number of the update in the job, counted from 1, which is the version that it makes."""
        return self.base_version + self.staleness + 1


class Measurement(Protocol):
    """The measuring of one upload as a whole, before any of it is applied.

    Call `add` for each block in order, then `judge` once, then `hold` for each block. An upload is read twice.
    """

    cosine: float | None
    """Set by `judge`. Cosine of the applied step with the movement of the shared weights since its base, or None if
    they did not move."""
    reference_cosine: float | None
    """Set by `judge`. Cosine of the applied step with the reference update, or None if there is none."""

    def add(self, w: Vector, update: Update, begin: int) -> None:
        """Measure a block against the same block of W.

        Raises:
            FileUnavailable: The reference update cannot be read now.
        """
        ...

    def judge(self, tail: Vector) -> Refused | None:
        """Write the upload's step lengths into `tail`, in place, and return why the upload is refused, or None.

        Args:
            tail: The numbers after W in the store: the table of step lengths (vcdl.trust.bounds).
        """
        ...

    def hold(self, weights: Vector, base: Vector, begin: int) -> None:
        """Limit the changes in a block of an upload, in place, before it is applied. Call `judge` first.

        Args:
            weights: The block, shape (m,); overwritten.
            base: The same block of the weights that the client started from.
            begin: The number of the block's first weight.
        """
        ...


Measuring = Callable[[UploadFacts, ExitStack], Measurement | None]
"""`Trust.measurement`, or `refolded`, which never refuses, when uploads that were applied before are applied again."""


class Trust(Protocol):
    """Decides which uploads of a run count, and how much, from the journal as far as `catch_up` has read it."""

    def measurement(self, facts: UploadFacts, opened: ExitStack) -> Measurement | None:
        """Start measuring an upload. Return None if one pass over it is enough.

        Args:
            facts: The facts about the upload, with the fraction that a rule counts.
            opened: Receives the files that the measuring opens; the caller closes it after the upload.

        Raises:
            FileUnavailable: The reference update does not exist yet.
        """
        ...

    def catch_up(self) -> None:
        """Apply the journal's new events.

        Raises:
            JournalError: The journal cannot be read.
        """
        ...

    def host_of(self, upload: Uploaded) -> str:
        """Return the host of an upload, or "" if it is unknown."""
        ...

    def key_of(self, upload: Uploaded) -> str:
        """Return the key by which uploads are serialized: with equal keys, each may change how the next one counts.

        It is the host, or the workunit if hosts do not matter. It is empty if the host matters but the journal does not
        name it yet.
        """
        ...

    def admit(
        self, upload: Uploaded, header: UpdateHeader, counted: float, created: Recorded | None, now_s: float
    ) -> Admission:
        """Decide how much an upload counts, before its weights are read.

        Args:
            upload: The upload.
            header: Its header, which is valid.
            counted: The fraction of a subtask that its training counts as.
            created: The event that announced its workunit, or None if the journal has none.
            now_s: The journal's time.
        """
        ...

    def may_be_doubted(self, host: str, attempt: int) -> bool:
        """Return whether a suspicious upload gets a small weight instead of being refused.

        Args:
            host: The upload's host.
            attempt: The number of the attempt at its subtask in this turn, counted from 0.
        """
        ...

    def accept(self, cosine: float | None, reference: float | None) -> None:
        """Remember the cosines of an applied upload of full weight, with which later uploads are compared.

        Args:
            cosine: `Measurement.cosine`.
            reference: `Measurement.reference_cosine`.
        """
        ...

    def rollbacks(self) -> Sequence[RolledBack]:
        """Return the job's rollbacks.

        Raises:
            JournalError: The journal cannot be read.
        """
        ...
