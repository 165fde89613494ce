"""Trust in clients' uploads: the questions that a parameter server asks.

For each upload the server asks whether and how much it counts (`admit`), and whether it must be measured before any of
it is applied (`measurement`). It reports what it has applied (`accept`). vcdl.trust.own answers where clients are the
submitter's own, vcdl.trust.strangers where they are not. Each answer follows from the journal alone, so any number of
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
    """An upload's worth, as far as it is known before its weights are read."""

    host: str
    """Its host; empty: unknown."""
    weight: float = 1.0
    """The factor on what it counts, from 0 to 1; one that counts fully is a measure for others."""
    refused: Refused | None = None
    """Why it does not count; None: it may."""
    is_part: bool = False
    """Whether the rest of its subtask is reissued."""
    usual_train_s: float | None = None
    """Seconds that its host used to take for as many samples; None: unknown."""
    rate: float = 1.0
    """The learning rate of its workunit, as a factor of the job's peak; 1 where nothing depends on it."""


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
    """Updates in the whole job, if nothing ends it earlier."""
    trust: float = 1.0
    """`Admission.weight`."""
    is_doubted: bool = False
    """Whether it was found strange, and counts for little instead of being refused again."""
    rate: float = 1.0
    """`Admission.rate`."""

    @property
    def number(self) -> int:
        """The number of the update in the job, counted from 1: the version that it makes."""
        return self.base_version + self.staleness + 1


class Measurement(Protocol):
    """One upload that is measured as a whole before any of it is folded in. Blocks come in order."""

    cosine: float | None
    """Cosine of the step that is folded in with the way of the shared weights since its base; None without one."""
    reference_cosine: float | None
    """Its cosine with the server's own step, likewise."""

    def add(self, w: Vector, update: Update, begin: int) -> None:
        """Measure a block against the same block of W. Raises FileUnavailable."""
        ...

    def judge(self, tail: Vector) -> Refused | None:
        """Enter the upload's measures into the store's `tail`; returns why the upload may not count."""
        ...

    def hold(self, weights: Vector, base: Vector, begin: int) -> None:
        """Hold a block to what it may change, in place, before it is folded in."""
        ...


Measuring = Callable[[UploadFacts, ExitStack], Measurement | None]
"""`Trust.measurement`, or what takes its place where uploads that count already are folded in again."""


class Trust(Protocol):
    """Decides how far uploads count."""

    def measurement(self, facts: UploadFacts, opened: ExitStack) -> Measurement | None:
        """Begin to measure an upload. Return None if one pass over it is enough.

        Args:
            facts: The facts about the upload; its fraction is the one that a rule counts.
            opened: Closed after the upload.

        Raises FileUnavailable when what it is compared with is not there yet.
        """
        ...

    def catch_up(self) -> None:
        """Follow the journal. Raises JournalError."""
        ...

    def host_of(self, upload: Uploaded) -> str:
        """Return the host of an upload, or "" if it is unknown."""
        ...

    def key_of(self, upload: Uploaded) -> str:
        """Return a key; uploads with equal keys are processed in turn, as each may change how the next counts.

        Empty while the host matters and the journal does not know it yet.
        """
        ...

    def admit(
        self, upload: Uploaded, header: UpdateHeader, counted: float, created: Recorded | None, now_s: float
    ) -> Admission:
        """Decide how far an upload counts, by all but its weights.

        Args:
            upload: The upload.
            header: Its header, which was found right.
            counted: The part of a subtask that it counts by its training.
            created: The event that announced its workunit; None: the journal has none.
            now_s: The journal's time.
        """
        ...

    def may_be_doubted(self, host: str, attempt: int) -> bool:
        """Return whether a strange upload at this attempt gets a small weight instead of being refused."""
        ...

    def accept(self, cosine: float | None, reference: float | None) -> None:
        """Take the measures of an upload that counts fully as those to compare others with."""
        ...

    def rollbacks(self) -> Sequence[RolledBack]:
        """When the job went back to an earlier version. Raises JournalError."""
        ...
