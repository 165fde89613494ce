"""Every reason to refuse an upload."""

from enum import StrEnum


class Refusal(StrEnum):
    """A reason to refuse an upload, recorded in the journal by name; docs/uploads.md explains each to operators."""

    UNREADABLE = "unreadable"
    """Not a whole weights file: cut short, damaged, too large, or not stored plainly."""
    NO_FILE = "no_file"
    """The grid has no file for it: the server lost it, or it was never sent. By itself it says nothing of its host."""
    BAD_HEADER = "bad_header"
    """The header is missing, damaged or out of bounds."""
    WRONG_JOB = "wrong_job"
    """The upload was made for another job."""
    WRONG_WORKUNIT = "wrong_workunit"
    """The header names another workunit than the one that this upload was sent for."""
    WRONG_BASE = "wrong_base"
    """The base version is not the workunit's, or that version's weights are not kept any more."""
    WRONG_LAYOUT = "wrong_layout"
    """The weights belong to another model."""
    WRONG_CODEC = "wrong_codec"
    """The weights are encoded in another way than the workunit asks for."""
    BAD_COUNTERS = "bad_counters"
    """Samples, fraction, time or loss are impossible, or do not fit each other and the shard."""
    NOT_FINITE = "not_finite"
    """Some weights are NaN or infinite: the training diverged, or the client lies."""
    NEGATIVE_MOMENTS = "negative_moments"
    """A mean of squares in the optimizer's state is negative: no training makes one."""
    QUARANTINED = "host_quarantined"
    """The host's uploads were refused, and none counts for a while; or one was not what its training gives."""
    NO_ROOM = "host_unknown"
    """The host has brought more than its part, and the server has trained none of it again yet."""
    STEP_TOO_LONG = "step_too_long"
    """The step is far longer than those of recently accepted uploads, at its learning rate."""
    AGAINST_OTHERS = "against_others"
    """The step leads away from what the other clients brought while it was trained."""
    NORM_TOO_LARGE = "norm_too_large"
    """The upload is far longer than recently accepted ones."""


OF_HOST = frozenset({Refusal.QUARANTINED, Refusal.NO_ROOM})
"""Refusals of whatever the host brings now: they say nothing about the subtask."""
OF_CONTENT = frozenset({Refusal.STEP_TOO_LONG, Refusal.AGAINST_OTHERS})
"""Refusals of a whole and well-formed upload, for what it would do to the weights. Others may be wrong about it."""


class Refused(Exception):
    """An upload is refused: a value for the journal, not a fault of the server."""

    def __init__(self, refusal: Refusal, detail: str) -> None:
        super().__init__(f"{refusal}: {detail}")
        self.refusal = refusal
        self.detail = detail
