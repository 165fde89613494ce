"""A project, jobs in it, and what the rest of BOINC does to their workunits."""

import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.boinc.standin.config import Database
from tests.boinc.standin.project import StandinProject, empty_tables
from tests.boinc.standin.schema import insert
from tests.boinc.standin.states import Outcome, Server
from tests.boinc.standin.transitioner import transition
from vcdl.boinc.grid.create_work import WorkSettings
from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.grid import BoincGrid
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.grid.results import BoincResults
from vcdl.files.shipped import shipped_folder
from vcdl.loop.grid import GaveUp
from vcdl.run.folder import RunFolder
from vcdl.run.staging import Staged, Uploaded
from vcdl.wire.workunit import Named, Training, Workunit

TRAINING = Training(Named("sgd"), 0.1, 8, 1, Named("mean_squared_error"))
UPLOAD_BYTES = 1_000_000


@dataclass
class World:
    """All that outlives a killed process."""

    standin: StandinProject
    project: BoincProject
    database: BoincDatabase
    _open: list[BoincDatabase] = field(default_factory=list)

    @classmethod
    def make(cls, folder: Path, database: Database) -> "World":
        empty_tables(database)
        standin = StandinProject.make(folder / "project", database, enable_assignment=1)
        project = BoincProject.at(standin.path)
        own = BoincDatabase(project)
        return cls(standin, project, own, [own])

    def close(self) -> None:
        for database in self._open:
            database.close()

    def another_connection(self) -> BoincDatabase:
        self._open.append(BoincDatabase(self.project))
        return self._open[-1]

    # -- jobs

    def folder(self, job: str = "mnist") -> RunFolder:
        """The run's folder, with a model, two shards and weights of three versions."""
        folder = self.project.run_folder(job)
        if not folder.path.exists():
            folder.create()
            folder.shards.mkdir()
            folder.model_file.write_text('{"layers": "the same"}' * 50)
            for shard in (0, 1):
                folder.shard(shard).write_bytes(b"shard" * (100 + shard))
            for version in range(3):
                folder.snapshot(version).write_bytes(f"params {job} {version}".encode() * 100)
        return folder

    def grid(
        self,
        job: str = "mnist",
        share: int = 1,
        sent_since_s: float = 0.0,
        ahead: int | None = None,
        account: int | None = None,
    ) -> BoincGrid:
        settings = WorkSettings(
            job=job, share=share, deadline_s=3600.0, flops=1e12, memory_bytes=1e9, disk_bytes=1e9,
            upload_bytes=UPLOAD_BYTES, queue_ahead=ahead, account=account,
        )  # fmt: skip
        return BoincGrid(self.project, self.database, settings, sent_since_s)

    def results(self, job: str = "mnist", at_most: int = 8, database: BoincDatabase | None = None) -> BoincResults:
        return BoincResults(self.project, database or self.database, self.folder(job), at_most)

    def staged(self, epoch: int = 1, shard: int = 0, attempt: int = 0, version: int = 0, job: str = "mnist") -> Staged:
        folder = self.folder(job)
        workunit = Workunit(
            job=job, epoch=epoch, shard=shard, attempt=attempt, base_version=version, seed=7, training=TRAINING
        )
        frozen = folder.frozen_file if folder.frozen_file.exists() else None
        return Staged(workunit, folder.model_file, folder.snapshot(version), folder.shard(shard), frozen)

    # -- BOINC

    def transition(self) -> None:
        transition(self.standin)

    def rows(self, sql: str, *values: object) -> list[dict[str, Any]]:
        return self.standin.rows(sql, *values)

    def row(self, name: str) -> dict[str, Any]:
        return self.rows("SELECT * FROM workunit WHERE name = %s", name)[0]

    def result_of(self, name: str) -> dict[str, Any]:
        """The newest one."""
        found = self.rows(
            "SELECT r.* FROM result r JOIN workunit w ON w.id = r.workunitid "
            "WHERE w.name = %s ORDER BY r.id DESC LIMIT 1",
            name,
        )
        return found[0]

    def host(self, name: int = 1) -> int:
        """A client that was just heard of."""
        if not self.rows("SELECT id FROM host WHERE id = %s", name):
            self.standin.insert("host", id=name, rpc_time=int(time.time()), p_ncpus=2)
        return name

    def update(self, table: str, row: int, **values: object) -> None:
        self.standin.change(table, row, **values)

    def send(self, name: str, host: int = 1) -> None:
        """The scheduler sends the workunit's unsent result."""
        now = int(time.time())
        self.update(
            "result", self.result_of(name)["id"], hostid=self.host(host), server_state=int(Server.IN_PROGRESS),
            sent_time=now, report_deadline=now + 3600,
        )  # fmt: skip

    def report(self, name: str, content: bytes | None = b"update", host: int = 1) -> Path:
        """The client brings its upload, which is found valid; returns where it lies (None: it brought none)."""
        self.send(name, host)
        result = self.result_of(name)
        file = result["xml_doc_in"].decode().partition("<name>")[2].partition("</name>")[0]
        path = self.project.upload_path(file)
        if content is not None:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        self._over(name, Outcome.SUCCESS)
        return path

    def fail(self, name: str, exit_status: int = 195) -> None:
        """The client reports an error."""
        self.send(name)
        self._over(name, Outcome.CLIENT_ERROR, exit_status=exit_status)

    def submitted(self, count: int = 1, job: str = "mnist") -> list[str]:
        """Workunits that lie ready for clients."""
        staged = [self.staged(epoch, job=job) for epoch in range(1, count + 1)]
        self.grid(job).submit(staged)
        self.transition()
        return [item.workunit.name for item in staged]

    def created(self, count: int = 1, job: str = "mnist") -> list[str]:
        """The same quickly, without inputs: for what comes after the sending."""
        return self._created([self.staged(epoch, job=job).workunit.name for epoch in range(1, count + 1)])

    def created_at(self, epoch: int) -> list[str]:
        """Likewise the one of an epoch."""
        return self._created([self.staged(epoch).workunit.name])

    def claimed(self) -> list[GaveUp | Uploaded]:
        """What a parameter server gets in a turn of its own."""
        results = self.results()
        with results.turn():
            return list(results.claim())

    def _created(self, names: list[str]) -> list[str]:
        template = (shipped_folder("templates") / "vcdl_out.xml").read_text()
        (self.project.templates / "out.xml").write_text(template.replace("@max_nbytes@", str(UPLOAD_BYTES)))
        app = self.app_id
        with closing(self.standin.connect()) as connection:
            for name in names:
                insert(
                    connection, "workunit", name=name, appid=app, result_template_file="templates/out.xml",
                    min_quorum=1, target_nresults=1, max_error_results=2, max_total_results=4, max_success_results=2,
                )  # fmt: skip
            connection.commit()
        self.transition()
        return names

    def _over(self, name: str, outcome: Outcome, **values: object) -> None:
        result, now = self.result_of(name), int(time.time())
        self.update(
            "result", result["id"], server_state=int(Server.OVER), outcome=int(outcome), received_time=now, **values
        )
        self.update("workunit", result["workunitid"], transition_time=now)
        self.transition()

    @property
    def app_id(self) -> int:
        return int(self.rows("SELECT id FROM app")[0]["id"])

    # -- files

    def downloads(self) -> set[str]:
        """All files in download/."""
        return {path.name for path in self.project.download_dir.rglob("*") if path.is_file()}
