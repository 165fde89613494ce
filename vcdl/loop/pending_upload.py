"""Hold an upload that the assimilator is about to fold: what it claims, what became of it, and its journal row."""

from dataclasses import dataclass, field

from vcdl.journal.events import UpdateApplied
from vcdl.loop.streamed_upload import StreamedUpload
from vcdl.run.staging import Uploaded
from vcdl.stores import Applied
from vcdl.trust.contract import Admission
from vcdl.wire.workunit import UpdateHeader, WorkunitName


@dataclass(frozen=True)
class BelievedClaims:
    """An upload's claims about its training, without those that are impossible."""

    train_s: float | None
    times_s: dict[str, float]
    """Seconds by stage of the subtask."""
    loss: float | None


@dataclass
class PendingUpload:
    """An upload with a valid header that is to be applied. Its weights are checked while they are applied."""

    uploaded: Uploaded
    name: WorkunitName
    """The upload's workunit name, with its base version replaced by the one that its client really started from."""
    header: UpdateHeader
    admission: Admission
    believed: BelievedClaims
    is_doubted: bool = False
    """Whether the upload was found suspicious: it gets a small weight instead of being refused again."""
    fold_s: float = 0.0
    """Seconds that this server worked on the upload."""
    ended_s: float = 0.0
    """The journal's time at which that work ended."""
    streamed: StreamedUpload | None = field(default=None, repr=False)
    """The reader of the upload's last fold, or None if the store had already applied the subtask."""

    @property
    def waited_s(self) -> float | None:
        """Seconds between arrival and application, without the server's own work on the upload; None if unknown."""
        came_s = self.uploaded.received_s
        if came_s is None or self.streamed is None:
            return None
        return round(max(0.0, self.ended_s - came_s - self.fold_s), 6)


def applied_event(item: PendingUpload, record: Applied) -> UpdateApplied:
    """Return the journal row of an upload, from the store's record and the upload's header."""
    header = item.header
    return UpdateApplied(
        workunit=item.uploaded.workunit,
        version=record.version,
        base_version=item.name.base_version,
        staleness=record.staleness,
        weight=record.weight,
        samples=header.samples,
        fraction=header.fraction,
        train_s=item.believed.train_s,
        loss=item.believed.loss,
        bytes_up=item.uploaded.size_bytes,
        host=item.uploaded.host,
        trust=record.trust,
        rate=item.admission.rate,
        backend=header.backend,
        is_part=item.admission.is_part,
        cosine=None if item.streamed is None else item.streamed.cosine,
        reference_cosine=None if item.streamed is None else item.streamed.reference_cosine,
        checksum="" if item.streamed is None else item.streamed.checksum,
        times_s=item.believed.times_s,
        waited_s=item.waited_s,
        fold_s=None if item.streamed is None else round(item.fold_s, 6),
    )
