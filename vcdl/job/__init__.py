"""The job file: its schema, its sections, and the frozen `Job` that it is read into."""

from vcdl.job.cut import SMALL_FLEET
from vcdl.job.schema import Job, as_yaml, job_of, load_frozen_job, load_job, save_job

__all__ = ["SMALL_FLEET", "Job", "as_yaml", "job_of", "load_frozen_job", "load_job", "save_job"]
