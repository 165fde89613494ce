"""The job file: its schema, what it may say, and the frozen `Job` behind it."""

from vcdl.job.schema import Job, load_frozen_job, load_job, save_job

__all__ = ["Job", "load_frozen_job", "load_job", "save_job"]
