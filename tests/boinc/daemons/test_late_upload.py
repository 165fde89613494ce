"""The second upload of a workunit whose first one is in the weights, as vcdl_validate sees it."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from tests.boinc.daemons.conftest import Server
from tests.boinc.standin.transitioner import transition
from tests.job_events import applied
from tests.uploads import header_of
from vcdl.boinc.daemons.assimilator import AssimilatorDaemon
from vcdl.boinc.daemons.validate import ACCEPTED, REFUSED
from vcdl.boinc.grid.results import output_file
from vcdl.codecs.choose import up_encoding
from vcdl.journal.events import ResultRefused, UpdateApplied, UpdateSuperseded
from vcdl.run.reading import events_of
from vcdl.run.run import Run
from vcdl.wire.layout import Vector
from vcdl.wire.weights import read_weights
from vcdl.wire.workunit import WorkunitName

pytestmark = [pytest.mark.boinc, pytest.mark.keras]

ALL = "trust: {kind: strangers, verify: 0}\n"


@dataclass
class Pair:
    """The two results of the first workunit, which hosts 1 and 2 got."""

    server: Server
    workunit: str
    files: tuple[Path, Path]
    base: Vector
    run: Run

    def bring(self, number: int, step: Vector, fraction: float = 1.0) -> None:
        run = self.run
        whole = run.prepared.shard_samples[WorkunitName.parse(self.workunit).shard]
        samples = round(fraction * whole)
        facts = {"samples": samples, "fraction": samples / whole, "train_s": 0.5 + number}
        header = header_of(self.workunit, run.layout.fingerprint, **facts)
        self.files[number].parent.mkdir(parents=True, exist_ok=True)
        up_encoding(run.transport, run.layout).write_upload(
            self.files[number], self.base + step, self.base, header.to_json()
        )

    def host(self, number: int, host: int) -> None:
        name = f"{self.workunit}_{number}"
        self.server.standin.execute("UPDATE result SET hostid = %s WHERE name = %s", host, name)


@pytest.fixture
def pair(server: Server) -> Pair:
    server.generate()
    server.standin.execute("UPDATE workunit SET target_nresults = 2")
    transition(server.standin)
    workunit = server.standin.rows("SELECT name FROM workunit ORDER BY name LIMIT 1")[0]["name"]
    rows = server.standin.rows("SELECT xml_doc_in FROM result WHERE name LIKE %s ORDER BY name", f"{workunit}_%")
    first, second = [server.project.upload_path(output_file(row["xml_doc_in"])) for row in rows]
    run = Run.open(server.folder)
    base, _ = read_weights(server.folder.snapshot(0), run.layout.size)
    pair = Pair(server, workunit, (first, second), base, run)
    for number in (0, 1):
        pair.host(number, number + 1)
    return pair


def step_of(pair: Pair, seed: int = 1) -> Vector:
    step = 0.01 * np.random.default_rng(seed).standard_normal(pair.base.size, dtype=np.float32)
    step[pair.run.layout.model.size :] = 0  # second moments are never negative
    return step


def validated(pair: Pair, number: int) -> int:
    return pair.server.validated(pair.files[number])


def apply_first(pair: Pair) -> None:
    """The first result is canonical, and in the weights."""
    name = WorkunitName.parse(pair.workunit)
    event = applied(f"e{name.epoch} s{name.shard}", 1)
    with closing(pair.run.journal()) as journal:
        journal.append(structs.replace(event, workunit=pair.workunit))
    pair.server.standin.execute(
        "UPDATE workunit w JOIN result r ON r.workunitid = w.id SET w.canonical_resultid = r.id WHERE r.name = %s",
        f"{pair.workunit}_0",
    )


def test_a_second_copy_that_is_checked_before_the_first_is_folded_is_recorded_with_it(pair: Pair) -> None:
    for number in (0, 1):
        pair.bring(number, step_of(pair))
        pair.server.standin.execute(
            "UPDATE result r JOIN workunit w ON w.id = r.workunitid SET r.server_state = 5, r.outcome = 1,"
            " w.need_validate = 1, w.transition_time = 0 WHERE r.name = %s",
            f"{pair.workunit}_{number}",
        )
    transition(pair.server.standin)
    assert list(events_of(pair.server.folder, UpdateSuperseded)) == []
    with closing(AssimilatorDaemon(pair.server.project)) as assimilator:
        for _ in range(2):
            assimilator.run_once()
    assert [event.workunit for event in events_of(pair.server.folder, UpdateApplied)] == [pair.workunit]
    (event,) = events_of(pair.server.folder, UpdateSuperseded)
    assert (event.workunit, event.host) == (pair.workunit, "host-2")
    assert event.bytes_up == pair.files[1].stat().st_size


@pytest.mark.parametrize("server", [ALL], indirect=True)
def test_a_late_upload_earns_credit_and_is_superseded_also_when_its_base_is_gone(pair: Pair) -> None:
    for number in (0, 1):
        pair.bring(number, step_of(pair))
    apply_first(pair)
    pair.run.folder.snapshot(0).unlink()
    assert validated(pair, 0) == ACCEPTED, "BOINC asks about the first one again"
    assert list(events_of(pair.server.folder, UpdateSuperseded)) == []
    for _ in range(2):
        assert validated(pair, 1) == ACCEPTED
    (event,) = events_of(pair.server.folder, UpdateSuperseded)
    assert (event.workunit, event.host) == (pair.workunit, "host-2")
    pair.files[1].write_bytes(b"rubbish")
    assert validated(pair, 1) == REFUSED, "however late it comes"
    (refused,) = events_of(pair.server.folder, ResultRefused)
    assert refused.host == "host-2"
