"""Every reason to refuse an upload."""

from enum import StrEnum


class Refusal(StrEnum):
    """A reason to refuse an upload, recorded in the journal by name; docs/uploads.md explains each to operators."""

    words: str
    """The fault, for somebody who does not know the name."""

    def __new__(cls, name: str, words: str) -> "Refusal":
        member = str.__new__(cls, name)
        member._value_, member.words = name, words
        return member

    UNREADABLE = "unreadable", "no whole weights file"
    """Cut short, damaged, too large, or not stored plainly."""
    NO_FILE = "no_file", "no file arrived"
    """The grid has no file for it: the server lost it, or it was never sent. By itself it says nothing of its host."""
    BAD_HEADER = "bad_header", "a header that is missing, damaged or out of bounds"
    WRONG_JOB = "wrong_job", "made for another job"
    WRONG_WORKUNIT = "wrong_workunit", "made for another workunit"
    WRONG_BASE = "wrong_base", "trained from other weights than those given, or from ones not kept any more"
    WRONG_LAYOUT = "wrong_layout", "weights of another model"
    WRONG_CODEC = "wrong_codec", "encoded in another way than asked for"
    BAD_COUNTERS = "bad_counters", "impossible samples, time or loss"
    """They, or its fraction, do not fit each other and the shard."""
    NOT_FINITE = "not_finite", "weights that are no finite numbers"
    """The training diverged, or the client lies."""
    NEGATIVE_MOMENTS = "negative_moments", "a mean of squares below zero, which no training makes"
    QUARANTINED = "host_quarantined", "a host that is kept out for a while"
    """The host's uploads were refused, and none counts for a while; or one was not what its training gives."""
    NO_ROOM = "host_unknown", "a host of which no upload was checked yet, beyond its part"
    """Checked: trained again by the server."""
    STEP_TOO_LONG = "step_too_long", "far more change of the weights than others bring"
    """The step is far longer than those of recently accepted uploads, at its learning rate."""
    AGAINST_OTHERS = "against_others", "a change against what others brought meanwhile"
    NORM_TOO_LARGE = "norm_too_large", "far larger weights than others bring"
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
