"""A client without training: answers for everything that is unsent, with weights near those that it was given."""

import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.boinc.standin import StandinProject, transition
from tests.uploads import header_of
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.grid.results import output_file
from vcdl.codecs.choose import down_encoding, up_encoding
from vcdl.job import load_frozen_job
from vcdl.run.prepared import Prepared
from vcdl.wire.workunit import WorkunitName

UNSENT, IN_PROGRESS, OVER, SUCCESS, CLIENT_ERROR = 2, 4, 5, 1, 3


@dataclass
class FabricatedClient:
    """Fetches, "trains" and reports; whatever is not set to go wrong goes well."""

    standin: StandinProject
    project: BoincProject
    hostile: set[str] = field(default_factory=set)
    """Subtasks of which the first result is rubbish."""
    done: list[str] = field(default_factory=list)
    """Workunits answered, in order."""

    def run_once(self, at_most: int = 100) -> int:
        """Answer for what is unsent; returns how many that were."""
        transition(self.standin)
        rows = self.standin.rows(
            "SELECT r.id, r.xml_doc_in, r.workunitid, w.name FROM result r JOIN workunit w ON w.id = r.workunitid"
            " WHERE r.server_state = %s ORDER BY r.id LIMIT %s",
            UNSENT, at_most,
        )  # fmt: skip
        change = self.standin.change
        for row in rows:
            now = int(time.time())
            change("result", row["id"], server_state=IN_PROGRESS, hostid=1, userid=1, sent_time=now,
                   report_deadline=now + 3600)  # fmt: skip
            self._answer(self.project.upload_path(output_file(row["xml_doc_in"])), row["name"])
            change("result", row["id"], server_state=OVER, outcome=SUCCESS, received_time=int(time.time()))
            change("workunit", row["workunitid"], transition_time=int(time.time()), need_validate=1)
            self.done.append(row["name"])
        transition(self.standin)
        return len(rows)

    def _answer(self, path: Path, workunit: str) -> None:
        name = WorkunitName.parse(workunit)
        folder = self.project.run_folder(name.job)
        prepared = Prepared.read(folder)
        transport = load_frozen_job(folder.job_file).transport.to_wire()
        down, up = down_encoding(transport, prepared.layout), up_encoding(transport, prepared.layout)
        base, _ = down.read(folder.snapshot(name.base_version) if down.is_plain else folder.download(name.base_version))
        vector = base + np.float32(0.001) * np.random.default_rng(len(self.done)).standard_normal(
            len(base), dtype=np.float32
        )
        for begin, end in prepared.layout.second_moments:
            vector[begin:end] = np.abs(vector[begin:end])
        samples = prepared.shard_samples[name.shard]
        header = header_of(
            workunit, prepared.layout.fingerprint, samples=samples, train_s=0.5, loss=0.7, codec=up.label
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.subtask in self.hostile:
            self.hostile.discard(name.subtask)
            path.write_bytes(b"rubbish")
        else:
            up.write_upload(path, vector, base, header.to_json())
