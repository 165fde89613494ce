"""The job file: its schema, its sections, and the frozen `Job` that it is read into."""

from vcdl.job.schema import Job, as_yaml, job_of, load_frozen_job, load_job, save_job

__all__ = ["Job", "as_yaml", "job_of", "load_frozen_job", "load_job", "save_job"]
