import contextlib
import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from benchmarks.private_servers import PrivateServer
from tests.boinc.grid.world import World
from tests.full_disk import files_limited_to
from vcdl.boinc.grid.database import BoincDatabase
from vcdl.boinc.grid.project_folder import BoincProject
from vcdl.boinc.grid.results import UPLOAD_FAILED, BoincResults, conclude_orphans, output_file
from vcdl.errors import GridError, GridUnavailable, RunFolderError
from vcdl.loop.grid import GaveUp
from vcdl.run.folder import RunFolder
from vcdl.run.staging import Uploaded

pytestmark = pytest.mark.boinc

SPAWN = multiprocessing.get_context("spawn")


def claim_and_hang(path: Path, job: str, said: Connection) -> None:
    """What a parameter server does that is killed in the middle of a turn."""
    project = BoincProject.at(path)
    results = BoincResults(project, BoincDatabase(project), project.run_folder(job))
    with results.turn():
        said.send([outcome.workunit for outcome in results.claim()])
        signal.pause()


def state(world: World, name: str) -> int:
    return int(world.row(name)["assimilate_state"])


def test_a_claim_is_repeated_until_it_is_done(world: World) -> None:
    for name in world.created(2):
        world.report(name)
    results = world.results()
    with results.turn():
        outcomes = results.claim()
        results.done(outcomes[0].workunit)
        assert results.claim() == outcomes[1:]
        results.done(outcomes[0].workunit)  # and done twice is done once
    with results.turn():
        assert results.claim() == outcomes[1:]


def test_two_servers_never_get_the_same_workunit_and_never_wait(world: World) -> None:
    names = world.created(5)
    for name in names:
        world.report(name)
    one, two = world.results(at_most=2), world.results(at_most=8, database=world.another_connection())
    with one.turn():
        assert [outcome.workunit for outcome in one.claim()] == names[:2]
        with two.turn():
            assert [outcome.workunit for outcome in two.claim()] == names[2:]
            for name in names[2:4]:
                two.done(name)
        with two.turn():
            assert [outcome.workunit for outcome in two.claim()] == names[4:]
        one.done(names[0])
    with two.turn():
        assert [outcome.workunit for outcome in two.claim()] == [names[1], names[4]]


def test_rows_that_were_not_claimed_are_not_locked(world: World) -> None:
    """BOINC's transitioner writes to them all the time."""
    names = world.created(4)
    for name in names[:2]:
        world.report(name)
    results, other = world.results(at_most=1), world.another_connection()
    other.execute("SET SESSION innodb_lock_wait_timeout = 1")
    with results.turn():
        assert [outcome.workunit for outcome in results.claim()] == names[:1]
        for name in names[1:]:
            other.execute("UPDATE workunit SET transition_time = 1 WHERE name = %s", name)
        with pytest.raises(GridUnavailable, match="another process holds the rows"):
            other.execute("UPDATE workunit SET transition_time = 1 WHERE name = %s", names[0])


def test_a_killed_server_gives_its_workunits_back_at_once(world: World) -> None:
    (name,) = world.created()
    world.report(name)
    heard, said = SPAWN.Pipe()
    process = SPAWN.Process(target=claim_and_hang, args=(world.project.path, "mnist", said))
    process.start()
    assert heard.recv() == [name]
    results = world.results()
    with results.turn():
        assert results.claim() == []
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    for _ in range(100):
        time.sleep(0.02)  # until the server notices that the connection is gone
        with results.turn():
            if outcomes := results.claim():
                break
    assert [outcome.workunit for outcome in outcomes] == [name]


def test_a_turn_whose_connection_was_lost_is_not_done_by_half(world: World, mariadb: PrivateServer) -> None:
    first, second = world.created(2)
    for name in (first, second):
        world.report(name)
    results = world.results()
    with pytest.raises(GridUnavailable), results.turn():  # noqa: PT012 - the turn is what is tested
        results.claim()
        results.done(first)
        mariadb.kill()
        mariadb.start()
        with pytest.raises(GridUnavailable, match="is the server running"):
            results.done(second)
        results.done(second)  # a new connection would be outside of the transaction
    assert (state(world, first), state(world, second)) == (1, 1)
    with results.turn():
        assert len(results.claim()) == 2


# -- what will not bring an update


def test_a_workunit_that_failed_says_why(world: World) -> None:
    (name,) = world.created()
    for _ in range(3):
        world.fail(name, exit_status=195)
    reason = "too many clients failed; the last on host 1: client error (exit status 195)"
    assert world.claimed() == [GaveUp(name, reason)]


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (1, "it could not be sent to any client"),
        (2, "too many clients failed"),
        (4, "too many results and none was valid"),
        (8, "too many clients were tried"),
        (32, "none of its results is valid"),
        (64, "error mask 64"),
        (2 | 16, "it was cancelled"),
    ],
)
def test_each_error_has_its_words(world: World, mask: int, words: str) -> None:
    (name,) = world.created()
    world.update("workunit", world.row(name)["id"], error_mask=mask, assimilate_state=1)
    assert world.claimed() == [GaveUp(name, words, cancelled=bool(mask & 16))]


def test_an_upload_that_is_gone_is_no_reason_to_stop(world: World) -> None:
    first, second = world.created(2)
    world.report(first, None)
    world.report(second)
    lost, found = world.claimed()
    assert isinstance(lost, GaveUp)
    assert "No such file" in lost.reason
    assert lost.cancelled, "which is no try of the subtask"
    assert isinstance(found, Uploaded)


def test_a_workunit_whose_uploads_were_all_lost_is_no_try_of_its_subtask(world: World) -> None:
    lost, failed = world.created(2)
    for exit_status in (UPLOAD_FAILED, 195, UPLOAD_FAILED):
        world.fail(failed, exit_status=exit_status)
        world.fail(lost, exit_status=UPLOAD_FAILED)
    outcomes = [outcome for outcome in world.claimed() if isinstance(outcome, GaveUp)]
    assert {outcome.workunit: outcome.cancelled for outcome in outcomes} == {lost: True, failed: False}


@pytest.mark.parametrize("trouble", ["the folder of the upload cannot be entered", "upload/ is not mounted"])
def test_trouble_of_the_servers_own_disk_leaves_the_workunit_ready(world: World, tmp_path: Path, trouble: str) -> None:
    (name,) = world.created()
    path = world.report(name)
    lost = path.parent if "entered" in trouble else world.project.upload_dir
    kept = lost.rename(tmp_path / "elsewhere")
    if "entered" in trouble:
        lost.symlink_to(lost)  # a loop: an error that holds for root too
    results = world.results()
    with pytest.raises(GridError, match="results wait until then"), results.turn():
        results.claim()
    assert state(world, name) == 1
    lost.unlink(missing_ok=True)
    kept.rename(lost)
    assert world.claimed() == [Uploaded(name, path, 6, "host-1")]


REFERENCE = "<file_ref><file_name>{}</file_name><open_name>update.h5</open_name></file_ref>"


@pytest.mark.parametrize(
    "description",
    [
        "", "<file_info>", "\x00\x01",
        "<result><file_ref><file_name>a</file_name><open_name>other</open_name></file_ref></result>",
        REFERENCE.format("../../../../etc/passwd"), REFERENCE.format("/etc/passwd"), REFERENCE.format(".."),
        REFERENCE.format(""), "<!DOCTYPE a [<!ENTITY b 'ccc'>]>" + REFERENCE.format("&b;"),
    ],
)  # fmt: skip
def test_a_description_that_cannot_be_used_is_set_aside_with_its_reason(world: World, description: str) -> None:
    (name,) = world.created()
    world.report(name)
    world.update("result", world.result_of(name)["id"], xml_doc_in=description)
    results = world.results()
    with results.turn():
        (outcome,) = results.claim()
        assert isinstance(outcome, GaveUp)
        assert outcome.reason.startswith("its upload cannot be used: ")
        results.done(name)
    assert state(world, name) == 2


def test_a_link_in_the_place_of_an_upload_is_not_followed(world: World, tmp_path: Path) -> None:
    (name,) = world.created()
    path = world.report(name)
    path.unlink()
    (tmp_path / "secret").write_text("secret")
    path.symlink_to(tmp_path / "secret")
    (outcome,) = world.claimed()
    assert isinstance(outcome, GaveUp)


def test_the_output_file_is_found_among_several() -> None:
    text = (
        "<file_info>\n<name>a_0</name>\n</file_info>\n<file_info>\n<name>a_1</name>\n</file_info>\n<result>\n"
        "<file_ref><file_name>a_0</file_name><open_name>log</open_name></file_ref>\n"
        "<file_ref>\n <file_name> a_1 </file_name>\n <open_name> update.h5 </open_name>\n</file_ref>\n</result>"
    )
    assert output_file(text) == output_file(text.encode()) == "a_1"
    with pytest.raises(GridError):
        output_file(b"\xff<file_ref>")


# -- uploads that are kept


def test_an_applied_upload_is_kept_for_a_store_that_may_lose_its_memory(world: World) -> None:
    folder: RunFolder = world.folder()
    folder.kept_uploads.mkdir()
    applied, refused = world.created(2)
    for name in (applied, refused):
        world.report(name, name.encode())
    results = world.results()
    with contextlib.suppress(KeyError), results.turn():
        results.claim()
        results.done(applied, 7)
        raise KeyError  # killed before the end of the turn
    with results.turn():
        results.claim()
        results.done(applied, 7)
        results.done(refused)
    world.transition()
    assert [path.name for path in folder.kept_uploads.iterdir()] == [folder.kept_upload(7, applied).name]
    assert folder.kept_upload(7, applied).read_text() == applied


def test_a_full_disk_leaves_the_workunit_to_be_claimed_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.folder().kept_uploads.mkdir()
    (name,) = world.created()
    world.report(name, b"x" * 100_000)

    def no_links(*_: object) -> None:
        raise OSError(1, "Operation not permitted")  # the web server's file: it must be copied

    monkeypatch.setattr(os, "link", no_links)
    results = world.results()
    with pytest.raises(RunFolderError), results.turn():  # noqa: PT012 - the turn is what is tested
        results.claim()
        with files_limited_to(50_000):
            results.done(name, 7)
    assert state(world, name) == 1
    assert list(world.folder().kept_uploads.iterdir()) == []
    with results.turn():
        results.claim()
        results.done(name, 7)
    assert world.folder().kept_upload(7, name).stat().st_size == 100_000


# -- orphans


def test_results_of_no_open_job_are_concluded(world: World) -> None:
    (mine,), (prefix,), (other,) = (world.created(job=job) for job in ("mnist", "mnist_e", "gone"))
    for name in (mine, prefix, other):
        world.report(name)
    world.update("workunit", world.row(other)["id"], name="by hand")
    assert conclude_orphans(world.project, world.database, ["mnist"]) == 2
    assert (state(world, mine), state(world, prefix), state(world, "by hand")) == (1, 2, 2)
    assert conclude_orphans(world.project, world.database, ["mnist"]) == 0
    assert conclude_orphans(world.project, world.database, []) == 1


def test_another_apps_results_are_left_alone(world: World) -> None:
    (name,) = world.created()
    world.report(name)
    world.update("workunit", world.row(name)["id"], appid=77)
    assert conclude_orphans(world.project, world.database, []) == 0
    results = world.results()
    with results.turn():
        assert results.claim() == []
