"""Every reason to refuse an upload."""

from enum import StrEnum


class Refusal(StrEnum):
    """Recorded in the journal by its name; docs/uploads.md explains each to operators."""

    UNREADABLE = "unreadable"
    """Not a whole weights file: cut short, damaged, too large, or not stored plainly."""
    BAD_HEADER = "bad_header"
    """The header is missing, damaged or out of bounds."""
    WRONG_JOB = "wrong_job"
    """Made for another job."""
    WRONG_WORKUNIT = "wrong_workunit"
    """Its header names another workunit than the one it was uploaded for."""
    WRONG_BASE = "wrong_base"
    """Its base version is not the one the workunit was made from, or that version's weights, which it is a difference to, are not kept
    any more."""
    WRONG_LAYOUT = "wrong_layout"
    """The weights belong to another model."""
    WRONG_CODEC = "wrong_codec"
    """Its weights travel in another way than the workunit asks for."""
    BAD_COUNTERS = "bad_counters"
    """Samples, fraction or time that no client can have: nothing trained, or more than the shard holds."""
    NOT_FINITE = "not_finite"
    """NaN or infinity among the weights: the training diverged, or the client lies."""
    AGAINST_HELD_OUT = "against_held_out"
    """Its step leads away from where held-out data would: `update > guard > cosine` of the job file."""
    NORM_TOO_LARGE = "norm_too_large"
    """Far longer than the updates that were accepted lately."""


class Refused(Exception):
    """An upload is refused: a value for the journal, not a fault of the server."""

    def __init__(self, refusal: Refusal, detail: str) -> None:
        super().__init__(f"{refusal}: {detail}")
        self.refusal = refusal
        self.detail = detail
