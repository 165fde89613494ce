"""List every reason to refuse an upload, with what it implies about the host."""

from enum import StrEnum


class Blame(StrEnum):
    """What a refused upload implies about the honesty of the host that sent it."""

    FORM = "form"
    """No honest training ends like this: the host is quarantined immediately."""
    CONTENT = "content"
    """The upload is well-formed but unlike others; an honest host may be misjudged once."""
    HOST = "host"
    """No upload of this host is accepted now; the refusal implies nothing about this one."""
    NOBODY = "nobody"
    """The server, or chance, may be the cause as well."""


class Refusal(StrEnum):
    """A reason to refuse an upload, recorded in the journal by name; docs/uploads.md explains each to operators."""

    words: str
    """Description of the fault, for readers who do not know the name."""
    blame: Blame

    def __new__(cls, name: str, words: str, blame: Blame) -> "Refusal":
        # The journal stores the name alone, and a StrEnum has one value, so words and blame are attributes of the
        # member.
        member = str.__new__(cls, name)
        member._value_, member.words, member.blame = name, words, blame
        return member

    UNREADABLE = "unreadable", "no complete weights file", Blame.FORM
    """Cut short, damaged, too large, or not stored plainly."""
    NO_FILE = "no_file", "no file arrived", Blame.NOBODY
    """The grid has no file for it: the server lost it, or it was never sent. That alone says nothing about its host."""
    BAD_HEADER = "bad_header", "a header that is missing, damaged or out of bounds", Blame.FORM
    WRONG_JOB = "wrong_job", "made for another job", Blame.FORM
    WRONG_WORKUNIT = "wrong_workunit", "made for another workunit", Blame.FORM
    WRONG_BASE = (
        "wrong_base",
        "trained from other weights than the given ones, or from ones that are no longer kept",
        Blame.NOBODY,
    )
    WRONG_LAYOUT = "wrong_layout", "weights of another model", Blame.FORM
    WRONG_CODEC = "wrong_codec", "encoded in another way than the job requires", Blame.FORM
    BAD_COUNTERS = "bad_counters", "impossible samples, time or loss", Blame.FORM
    """The counters or the fraction in the header contradict each other or the size of the shard."""
    NOT_FINITE = "not_finite", "weights that are no finite numbers", Blame.FORM
    """The training diverged, or the client sent something else than its result."""
    NEGATIVE_MOMENTS = "negative_moments", "a mean of squares below zero, which no training makes", Blame.FORM
    QUARANTINED = "host_quarantined", "a host that is quarantined", Blame.HOST
    """Earlier uploads of the host were refused, or one was not what its training gives. None counts for a while."""
    NO_ROOM = "host_unknown", "a host without a verified upload, beyond its share", Blame.HOST
    """A host is verified once the server has retrained one of its uploads with the same result."""
    UNFINISHED = "unfinished", "a part of a subtask, from a host that may not send one now", Blame.HOST
    """Neither the subtask's time nor a stop of the machine explains it (vcdl.trust.strangers)."""
    STEP_TOO_LONG = "step_too_long", "a far larger change of the weights than other uploads have", Blame.CONTENT
    """The step from the base weights is far longer than those of recently accepted uploads, at its learning rate."""
    AGAINST_OTHERS = "against_others", "a change against the direction of other uploads since then", Blame.CONTENT
    NORM_TOO_LARGE = "norm_too_large", "far larger weights than other uploads have", Blame.FORM
    """The norm of the weights is far larger than those of recently accepted uploads."""


def blame_of(refusal: str) -> Blame:
    """Return what a refusal recorded in a journal implies about its host; NOBODY for a name that is unknown here.

    Another version of VCDL may have written such a name.

    Args:
        refusal: The name in the journal.
    """
    return next((one.blame for one in Refusal if one == refusal), Blame.NOBODY)


class Refused(Exception):
    """The refusal of an upload, raised or passed as a value: a result for the journal, and no fault of the server."""

    def __init__(self, refusal: Refusal, detail: str) -> None:
        super().__init__(f"{refusal}: {detail}")
        self.refusal = refusal
        self.detail = detail
