"""Trust in the submitter's own machines: every upload counts by the fraction that was trained."""

from contextlib import ExitStack

from vcdl.journal.events import Recorded, RolledBack
from vcdl.run.staging import Uploaded
from vcdl.trust.contract import Admission, UploadFacts
from vcdl.wire.workunit import UpdateHeader


class Own:
    """Admits all uploads without measuring them."""

    def __init__(self, *, ends_by_time: bool = False) -> None:
        """Trust every client.

        Args:
            ends_by_time: Whether subtasks end by time, so that an upload of fewer samples is complete.
        """
        self._ends_by_time = ends_by_time

    def measurement(self, facts: UploadFacts, opened: ExitStack) -> None:
        return None

    def catch_up(self) -> None:
        return

    def host_of(self, upload: Uploaded) -> str:
        return upload.host

    def key_of(self, upload: Uploaded) -> str:
        return upload.workunit

    def admit(
        self, upload: Uploaded, header: UpdateHeader, counted: float, created: Recorded | None, now_s: float
    ) -> Admission:
        # A subtask that ended before its time, for example by "finish now" on a spot machine, is reissued for the
        # samples that it left out (decision 122).
        return Admission(upload.host, is_part=counted < 1.0 and not self._ends_by_time)

    def may_be_doubted(self, host: str, attempt: int) -> bool:
        return False

    def accept(self, cosine: float | None, reference: float | None) -> None:
        return

    def rollbacks(self) -> tuple[RolledBack, ...]:
        return ()
