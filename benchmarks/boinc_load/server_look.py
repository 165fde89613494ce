"""The server at one moment: its processes and the sizes of what grows."""

import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.boinc_load.processes import ServerProcesses, Used, machine_busy_s
from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.run.folder import RunFolder


@dataclass(frozen=True)
class ServerLook:
    """The server at one moment."""

    at_s: float
    used: dict[str, Used]
    busy_s: float
    sizes: dict[str, float]

    @classmethod
    def at(cls, project: BoincProject, folder: RunFolder, database: BoincDatabase) -> "ServerLook":
        return cls(
            time.time(), ServerProcesses(project, database).used(), machine_busy_s(), _sizes(project, folder, database)
        )


def _sizes(project: BoincProject, folder: RunFolder, database: BoincDatabase) -> dict[str, float]:
    rows = database.execute(
        "SELECT SUM(data_length + index_length) FROM information_schema.tables WHERE table_schema = DATABASE()"
    )
    counts = {table: float(database.execute(f"SELECT COUNT(*) FROM {table}")[0][0]) for table in ("workunit", "result")}
    return {
        "database MB": float(rows[0][0]) / 1e6,
        "rows of workunit": counts["workunit"],
        "rows of result": counts["result"],
        "journal MB": folder.journal_file.stat().st_size / 1e6,
        "files in upload": float(_files(project.upload_dir)),
        "files in download": float(_files(project.download_dir)),
        "logs MB": sum(file.stat().st_size for file in project.log_dir.iterdir() if file.is_file()) / 1e6,
    }


def _files(folder: Path) -> int:
    return sum(1 for path in folder.glob("*/*") if path.is_file())
