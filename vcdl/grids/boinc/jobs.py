"""Which jobs a project has had, as BOINC's database remembers them."""

from vcdl.grids.boinc.database import BoincDatabase


def was_submitted(database: BoincDatabase, job: str) -> bool:
    """Whether workunits of a job of that name were ever made here: names are never used again. Raises GridError."""
    pattern = job.replace("\\", r"\\").replace("_", r"\_").replace("%", r"\%") + r"\_e%\_s%\_a%\_v%"
    rows = database.execute(
        "SELECT 1 FROM workunit WHERE appid = %s AND name LIKE %s LIMIT 1", database.app_id, pattern
    )
    return bool(rows)
