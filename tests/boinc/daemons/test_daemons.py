"""The daemons on the real tables of a project, with clients that answer without training."""

import shutil
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.boinc.daemons.conftest import JOB, TRUST, Server
from vcdl.boinc.daemons.assimilator import AssimilatorDaemon
from vcdl.boinc.daemons.evaluator import evaluations
from vcdl.boinc.daemons.validate import ACCEPTED, REFUSED
from vcdl.boinc.daemons.work_generator import WorkGenerators
from vcdl.boinc.grid.host_care import read_suspensions
from vcdl.boinc.grid.results import UPLOAD_FAILED, output_file
from vcdl.boinc.grid.workunit_rows import INIT, READY
from vcdl.boinc.runtime.archive import ArchiveManifest, pack
from vcdl.boinc.runtime.published import runtime_folder
from vcdl.checks import UploadCheck
from vcdl.commands.resume import resume
from vcdl.commands.submit import submit
from vcdl.errors import FileUnavailable, GridError, JournalUnavailable
from vcdl.journal.events import Event, HostConvicted, ResultRefused, RunStarted, StopDecided, UpdateApplied
from vcdl.journal.journal import Journal
from vcdl.run.prepared import Prepared
from vcdl.run.reading import events_of
from vcdl.stores.settings import URL_VARIABLE

pytestmark = [pytest.mark.boinc, pytest.mark.keras]

ROUNDS = 40


def go_on(server: Server, until: Callable[[], bool], evaluates: bool = False) -> None:
    """Rounds of generator, client, assimilator and, because it is slow to load, perhaps the evaluator."""
    with (
        closing(WorkGenerators(server.project)) as generators,
        closing(AssimilatorDaemon(server.project)) as assimilator,
        closing(evaluations(server.project)) as evaluator,
    ):
        for _ in range(ROUNDS):
            generators.run_once()
            server.client.run_once()
            assimilator.run_once()
            if evaluates:
                evaluator.run_once()
            if until():
                return
    raise AssertionError(f"not reached in {ROUNDS} rounds: {server.report}")


def applied(server: Server) -> list[UpdateApplied]:
    return list(events_of(server.folder, UpdateApplied))


def test_a_submitted_job_is_trained_to_its_end_and_leaves_results_and_an_empty_download_folder(server: Server) -> None:
    go_on(server, server.folder.summary_file.exists, evaluates=True)
    assert server.report.stop is not None
    assert server.report.stop.reason == "epochs"
    subtasks = sorted(event.workunit.split("_a")[0] for event in applied(server))
    assert subtasks == sorted({*subtasks})
    assert len([s for s in subtasks if "_e0001_" in s]) == 3
    assert server.folder.keras_file.is_file()
    assert server.folder.path.stat().st_mode & 0o077 == 0, "a submitter's data are nobody else's"
    with (
        closing(AssimilatorDaemon(server.project)) as assimilator,
        closing(WorkGenerators(server.project)) as generators,
    ):
        generators.run_once()
        assimilator.run_once()  # what was cancelled at the end belongs to no open job: concluded, so that its files go
        server.client.run_once()
    assert [name for name in server.staged() if name.startswith(("vcdl_", "tiny_"))] == []


@pytest.mark.nightly
@pytest.mark.parametrize(
    "server",
    ["training: {share_optimizer_state: none}\ntransport: {down: bfloat16, up: int8, compress: true}\n"],
    indirect=True,
)
def test_weights_that_travel_encoded_are_staged_validated_and_folded(server: Server) -> None:
    server.generate()
    size = Prepared.read(server.folder).layout.size
    (download,) = server.folder.downloads.iterdir()
    assert download.stat().st_size < 2 * size + 500
    (template,) = server.project.templates.glob("vcdl_out_*.xml")
    assert int(template.stem.removeprefix("vcdl_out_")) < 2 * size + (2 << 20)
    server.client.hostile.add("e0001_s001")
    go_on(server, lambda: len(applied(server)) >= 3)
    assert server.report.totals.refused == 1
    assert all(update.bytes_up < 2 * size for update in applied(server))


def test_a_host_without_room_for_the_runtime_gets_no_task(server: Server, tmp_path: Path) -> None:
    """BOINC's scheduler sends none to a host whose free disk is below the workunit's bound."""
    path = runtime_folder(server.project.path) / "linux-x86_64.tar"
    path.parent.mkdir(parents=True)
    manifest = ArchiveManifest("linux-x86_64", "jax", False, "3.12", {}, "packages", (), "", 3 * 10**9, 4 * 10**9)
    (tmp_path / "packages").mkdir()
    pack(manifest, tmp_path / "packages", tmp_path, path, level=0)
    server.generate()
    bounds = {row["rsc_disk_bound"] for row in server.standin.rows("SELECT rsc_disk_bound FROM workunit")}
    assert min(bounds) > 7 * 10**9


def test_a_stopped_job_takes_its_work_back_and_a_resumed_one_makes_it_again_without_counting_it_as_a_try(
    server: Server,
) -> None:
    with closing(WorkGenerators(server.project)) as generators:
        for _ in range(3):  # more often than `grid > tries`
            generators.run_once()
            server.folder.stop_request.touch()
            generators.run_once()
            assert server.report.history.paused is not None
            assert server.folder.running_pid is None
            assert not [name for name in server.staged() if name.startswith("vcdl_")]
            resume(server.folder.path)
    go_on(server, lambda: len(applied(server)) >= 3)
    assert server.report.totals.failed == 0
    assert server.report.stop is None or server.report.stop.reason == "epochs"


@pytest.mark.nightly
def test_the_uploads_of_a_job_that_was_given_up_and_is_tried_again_are_assimilated(server: Server) -> None:
    server.generate()
    with closing(Journal.at(server.folder.journal_file)) as journal:
        journal.append(StopDecided("subtask_failed", 0))
    resume(server.folder.path)
    assert server.report.stop is None
    go_on(server, lambda: len(applied(server)) >= 3)


def test_a_result_that_cannot_be_assimilated_is_set_aside_and_the_others_are_folded(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = UploadCheck._check_header

    def fails_for_one(self: UploadCheck, header: object, name: object, workunit: str) -> None:
        if "_e0001_s001_a0" in workunit:
            raise ZeroDivisionError("a bug that only this one shows")
        begin(self, header, name, workunit)  # type: ignore[arg-type]

    monkeypatch.setattr(UploadCheck, "_check_header", fails_for_one)
    go_on(server, lambda: len(applied(server)) >= 3)
    (event,) = server.failures()
    assert ("_e0001_s001_a0" in event.workunit, "ZeroDivisionError" in event.reason) == (True, True)
    assert any("_e0001_s001_a1" in event.workunit for event in applied(server))


def trained_once(server: Server) -> None:
    """The first workunits are made, and their results wait to be assimilated."""
    server.generate()
    server.client.run_once()


def test_what_became_ready_before_the_one_that_failed_is_not_set_aside_in_its_place(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained_once(server)
    older, poisoned, *_ = server.standin.rows("SELECT id, name FROM workunit ORDER BY id")

    def set_older(state: int) -> None:
        server.standin.change("workunit", older["id"], assimilate_state=state)

    check_header = UploadCheck._check_header

    def fails_for_one(self: UploadCheck, header: object, name: object, workunit: str) -> None:
        if workunit == poisoned["name"]:
            set_older(READY)
            raise ZeroDivisionError
        check_header(self, header, name, workunit)  # type: ignore[arg-type]

    monkeypatch.setattr(UploadCheck, "_check_header", fails_for_one)
    set_older(INIT)
    with closing(AssimilatorDaemon(server.project)) as assimilator:
        for _ in range(2):
            assimilator.run_once()
    assert [event.workunit for event in server.failures()] == [poisoned["name"]]
    assert older["name"] in [event.workunit for event in applied(server)]


def test_a_session_that_the_journal_could_not_take_in_is_begun_by_a_later_round(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Journal.append

    def first_fails(self: Journal, *events: Event, time_s: float | None = None) -> None:
        if any(isinstance(event, RunStarted) for event in events) and not failed:
            failed.append(events)
            raise JournalUnavailable("database or disk is full")
        append(self, *events, time_s=time_s)

    failed: list[object] = []
    monkeypatch.setattr(Journal, "append", first_fails)
    with closing(WorkGenerators(server.project)) as generators:
        for _ in range(ROUNDS):
            generators.run_once()
            if server.report.totals.created:
                break
            time.sleep(0.05)
    assert (len(failed), len(list(events_of(server.folder, RunStarted)))) == (1, 1)


def test_a_machine_that_is_out_of_memory_sets_nothing_aside(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    trained_once(server)
    errors = [ZeroDivisionError(), MemoryError()]  # of the batch, and of the first row alone

    def fails(*_: object) -> None:
        raise errors.pop(0)

    with closing(AssimilatorDaemon(server.project)) as assimilator:
        with monkeypatch.context() as patch:
            patch.setattr(UploadCheck, "_check_header", fails)
            assimilator.run_once()
        assert errors == []
        assert server.report.totals.failed == 0
    with closing(AssimilatorDaemon(server.project)) as assimilator:
        assimilator.run_once()
    assert len(applied(server)) >= 3


def states(server: Server) -> list[int]:
    return [row["assimilate_state"] for row in server.standin.rows("SELECT assimilate_state FROM workunit")]


def test_while_the_jobs_cannot_be_seen_no_result_is_taken_for_a_stray(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        closing(WorkGenerators(server.project)) as generators,
        closing(AssimilatorDaemon(server.project)) as assimilator,
    ):
        generators.run_once()
        server.client.run_once()
        before = states(server)
        assert READY in before
        away = server.project.runs_folder.rename(tmp_path / "away")
        for _ in range(3):
            assimilator.run_once()
        server.project.runs_folder.mkdir()  # of a disk that is not mounted, the folder may be there
        assimilator.run_once()
        assert states(server) == before
        assert [record.message for record in caplog.records if "not mounted" in record.message] == [
            f"there are no jobs in {server.project.runs_folder}: none was submitted yet, or its disk is not mounted; "
            "results are left as they are"
        ]
        server.project.runs_folder.rmdir()
        away.rename(server.project.runs_folder)
        assimilator.run_once()
    assert len(applied(server)) >= 3


def upload_of(server: Server) -> Path:
    """The only valid one."""
    (row,) = server.standin.rows("SELECT xml_doc_in FROM result WHERE validate_state = 1")
    return server.project.upload_path(output_file(row["xml_doc_in"]))


def test_the_validator_gives_no_credit_for_garbage_and_deletes_it(server: Server, tmp_path: Path) -> None:
    server.generate()
    server.client.run_once(at_most=1)
    file = upload_of(server)
    elsewhere = tmp_path / file.name
    for path in (file, elsewhere):
        path.write_bytes(b"garbage" * 300)
        assert server.validated(path) == REFUSED
    assert not file.exists(), "BOINC would keep it for ever"
    assert elsewhere.exists(), "only uploads are deleted"
    refused = server.report.totals.last_setback
    assert isinstance(refused, ResultRefused)
    assert (refused.refusal, refused.host) == ("unreadable", "host-1")


@pytest.mark.parametrize(
    ("server", "rests"), [(TRUST, False), ("trust: {kind: strangers, verify: 0}\n", True)], indirect=["server"]
)
def test_a_host_rests_for_a_jobs_quarantine_only_where_it_is_a_stranger(server: Server, rests: bool) -> None:
    server.generate()
    server.client.run_once(at_most=1)
    with closing(Journal.at(server.folder.journal_file)) as journal:
        journal.append(HostConvicted("host-1", "tiny_e0001_s000_a0_v000000", (), (), for_good=False))
    server.generate()
    assert (1 in read_suspensions(server.project).of) is rests


def test_a_convicted_host_keeps_no_credit_for_what_is_taken_back(server: Server) -> None:
    go_on(server, lambda: len(applied(server)) >= 2)
    lie, kept = applied(server)[:2]
    server.standin.execute("UPDATE result SET granted_credit = 2 WHERE validate_state = 1")
    with closing(Journal.at(server.folder.journal_file)) as journal:
        journal.append(HostConvicted(lie.host, lie.workunit, (lie.version,), (lie.workunit,), for_good=False))
    server.generate()
    rows = server.standin.rows("SELECT w.name, r.granted_credit FROM result r JOIN workunit w ON w.id = r.workunitid")
    credit = {row["name"]: row["granted_credit"] for row in rows}
    assert (credit[lie.workunit], credit[kept.workunit]) == (0, 2)


def test_the_validator_refuses_nobody_for_trouble_of_this_machine(server: Server, tmp_path: Path) -> None:
    server.generate()
    server.client.run_once(at_most=1)
    file = upload_of(server)
    assert server.validated(file) == ACCEPTED
    for lost in (server.project.runs_folder, server.project.upload_dir):
        away = lost.rename(tmp_path / "away")
        with pytest.raises(GridError):
            server.validated(file)
        away.rename(lost)
    away = server.project.upload_dir.rename(tmp_path / "away")
    server.project.upload_dir.mkdir()  # another folder is mounted over it
    with pytest.raises(GridError, match="is another one mounted over it"):
        server.validated(file)
    server.project.upload_dir.rmdir()
    away.rename(server.project.upload_dir)
    file.unlink()
    file.symlink_to("/proc/self/mem")  # nothing is at address 0: reading there is EIO
    with pytest.raises(FileUnavailable):
        server.validated(file)
    assert server.report.totals.refused == 0
    file.unlink()
    assert server.validated(file) == REFUSED
    ((status,),) = (row.values() for row in server.standin.rows("SELECT exit_status FROM result WHERE validate_state"))
    assert status == UPLOAD_FAILED, "which counts against its host only where others' uploads came through"


def test_a_job_whose_folder_is_broken_holds_up_none_of_the_others(server: Server) -> None:
    broken = server.project.run_folder("aaa")
    shutil.copytree(server.folder.path, broken.path)
    broken.prepared_file.write_text("{")
    go_on(server, lambda: len(applied(server)) >= 3)


def test_a_job_whose_weights_are_not_in_the_store_that_is_named_now_waits_and_the_others_go_on(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(URL_VARIABLE, f"file:{tmp_path}/weights")
    job_file = tmp_path / "other.yaml"
    job_file.write_text((JOB + TRUST).replace("name: tiny", "name: other"))
    submit(job_file, server.standin.path)
    other = replace(server, folder=server.project.run_folder("other"))
    go_on(server, lambda: len(applied(other)) >= 3)
    assert applied(server) == []
    refusals = [record.getMessage() for record in caplog.records if "keeps its weights in" in record.getMessage()]
    assert {record.name for record in caplog.records if record.getMessage() in refusals} == {"vcdl.jobs"}
    assert all(words.startswith("tiny: ") for words in refusals)
    assert (
        f"VCDL_STORE_URL (in vcdl/environment of the project) now names file:{tmp_path}/weights: unset" in refusals[0]
    )
    monkeypatch.delenv(URL_VARIABLE)
    go_on(server, lambda: len(applied(server)) >= 3)
    assert server.report.totals.failed == 0
