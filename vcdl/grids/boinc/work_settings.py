"""What a job's workunits ask of a client; the same for all workunits of a job."""

from dataclasses import dataclass


@dataclass(frozen=True)
class WorkSettings:
    """Handed to create_work, and to the templates."""

    job: str
    """Name of the job within the project, with which the names of its workunits begin."""
    priority: int
    """Share of the clients beside the other open jobs, at least 1. Not BOINC's priority, which would starve the others."""
    deadline_s: float
    """Of one try on one client."""
    flops: float
    """Operations of one subtask: credit and the client's estimate of its time come from it."""
    memory_bytes: float
    disk_bytes: float
    """All a client may have in the slot: inputs, checkpoints and the update."""
    upload_bytes: int
    """A larger update fails on the client."""
    ahead: int | None = None
    """Workunits kept unsent; None: as many as the active hosts ask for."""
