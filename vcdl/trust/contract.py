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
from vcdl.wire.weights import Vector
from vcdl.wire.workunit import UpdateHeader


@dataclass(frozen=True)
class Admission:
    """The weight of an upload, or its refusal, as decided before its weights are read."""

    host: str
    """The upload's host, or an empty string if unknown."""
    weight: float = 1.0
    """The factor on its fraction, from 0 to 1; other uploads are compared only with those of weight 1."""
    refused: Refused | None = None
    """The reason for refusing it, or None if it is admitted."""
    is_part: bool = False
    """Whether the rest of its subtask is reissued."""
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
    """The measuring of one upload as a whole, before any of it is folded. Blocks come in order."""

    cosine: float | None
    """Cosine of the folded step with the movement of the shared weights since its base, or None if there was none."""
    reference_cosine: float | None
    """Cosine of the folded step with the server's own step, or None if there is none to compare with."""

    def add(self, w: Vector, update: Update, begin: int) -> None:
        """Measure a block against the same block of W.

        Raises:
            FileUnavailable: The reference update cannot be read now.
        """
        ...

    def judge(self, tail: Vector) -> Refused | None:
        """Write the measurements of the upload into the store's `tail`; return why the upload is refused, or None."""
        ...

    def hold(self, weights: Vector, base: Vector, begin: int) -> None:
        """Limit the changes in a block, in place, before it is folded."""
        ...


Measuring = Callable[[UploadFacts, ExitStack], Measurement | None]
"""`Trust.measurement`, or its replacement when uploads that were applied before are folded again."""


class Trust(Protocol):
    """Decides which uploads count, and how much."""

    def measurement(self, facts: UploadFacts, opened: ExitStack) -> Measurement | None:
        """Start measuring an upload. Return None if one pass over it is enough.

        Args:
            facts: The facts about the upload, with the fraction that a rule counts.
            opened: Closed after the upload.

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
        """Return a key; uploads with equal keys are processed in turn, because each may change how the next one counts.

        It is empty if the host matters and the journal does not name it yet.
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
        """Return whether a suspicious upload at this attempt gets a small weight instead of being refused."""
        ...

    def accept(self, cosine: float | None, reference: float | None) -> None:
        """Add the cosines of an applied upload of full weight to those that others are compared with."""
        ...

    def rollbacks(self) -> Sequence[RolledBack]:
        """Return the job's rollbacks.

        Raises:
            JournalError: The journal cannot be read.
        """
        ...
