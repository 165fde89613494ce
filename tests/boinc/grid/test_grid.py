import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from benchmarks.private_servers import PrivateServer
from tests.boinc.grid.world import World
from tests.leftovers import leave_half
from vcdl.boinc.grid.client_rows import ClientRows
from vcdl.boinc.grid.forget import jobs_kept_on_clients
from vcdl.boinc.grid.grid import BoincGrid
from vcdl.boinc.grid.results import output_file
from vcdl.commands.stop import stop
from vcdl.errors import ExitCode, GridError, GridUnavailable
from vcdl.loop.grid import GaveUp
from vcdl.wire.workunit import INPUT_FILES

pytestmark = pytest.mark.boinc


def wanted(grid: BoincGrid) -> int:
    grid.refresh()
    return grid.target_open_workunits()


def inputs_of(world: World, name: str) -> list[str]:
    """Physical names, in the order of INPUT_FILES."""
    text = world.row(name)["xml_doc"].decode()
    return [part.partition("</file_name>")[0].strip() for part in text.split("<file_name>")[1:]]


def test_a_submitted_workunit_is_there_for_clients_with_its_inputs(world: World) -> None:
    item = world.staged(epoch=3, shard=1, version=2)
    world.grid().submit([item])
    world.transition()
    row = world.row(item.workunit.name)
    assert world.result_of(item.workunit.name)["server_state"] == 2
    assert (row["rsc_fpops_est"], row["delay_bound"], row["rsc_memory_bound"]) == (1e12, 3600, 1e9)
    assert row["rsc_fpops_bound"] >= 100 * row["rsc_fpops_est"]
    sources = [None, item.model, item.params, item.shard]
    for physical, logical, source in zip(inputs_of(world, item.workunit.name), INPUT_FILES, sources, strict=True):
        staged = world.project.download_path(physical).read_bytes()
        assert staged == (source.read_bytes() if source else item.workunit.to_json().encode()), logical


def test_what_waits_is_sent_before_what_is_made_later_and_other_apps_are_let_live(world: World) -> None:
    """BOINC's scheduler sends the first of equals in its table, not the oldest."""
    world.grid(share=50).submit([world.staged(1)])  # a job's priority is its share, not this
    world.transition()
    world.grid().submit([world.staged(2)])
    world.transition()
    waiting = world.result_of(world.staged(1).workunit.name)
    world.update("result", waiting["id"], create_time=waiting["create_time"] - 60)
    world.grid().submit([world.staged(3)])
    world.transition()
    priorities = {row["name"][6:11]: row["priority"] for row in world.rows("SELECT name, priority FROM workunit")}
    assert priorities == {"e0001": 0, "e0002": 0, "e0003": -1}
    world.send(world.staged(1).workunit.name)
    world.grid().submit([world.staged(4), world.staged(5)])
    assert world.row(world.staged(4).workunit.name)["priority"] == 0  # nobody waits: back again


def test_a_batch_that_a_killed_create_work_made_in_part_is_completed(world: World) -> None:
    """It may still be inserting when the next process looks what there is: then one name spoils the whole INSERT."""
    items = [world.staged(epoch) for epoch in range(1, 6)]
    program = world.project.bin / "create_work"
    real = program.rename(program.with_name("real_create_work"))
    program.write_text(
        f'#!/bin/sh\ncat > "$0.lines"\nif [ ! -e "$0.once" ]; then touch "$0.once"\n'
        f'  grep {items[3].workunit.name} "$0.lines" | {real} "$@"\nfi\nexec {real} "$@" < "$0.lines"\n'
    )
    program.chmod(0o755)
    world.grid().submit(items)
    assert len(world.rows("SELECT id FROM workunit")) == 5


def test_one_that_was_concluded_behind_the_journals_back_is_handed_out_again(world: World) -> None:
    """A name can be used only once: without this, the job would wait for it for ever."""
    (name,) = world.submitted()
    world.grid().cancel([name])
    world.transition()
    world.update("workunit", world.row(name)["id"], assimilate_state=2)
    assert not world.grid().has(name)
    world.grid().submit([world.staged()])
    assert world.claimed() == [GaveUp(name, "it was cancelled", cancelled=True)]


def test_without_the_program_or_its_templates_the_user_is_told(world: World) -> None:
    program = world.project.bin / "create_work"
    program.write_text("#!/bin/sh\necho no such template >&2\n")
    with pytest.raises(GridError, match=r"did not make 1 workunits, .* it said: no such template; .*doctor"):
        world.grid().submit([world.staged()])
    program.unlink()
    with pytest.raises(GridError, match="create_work cannot be run"):
        world.grid().submit([world.staged()])


def test_without_the_app_the_user_is_told_to_install_it(world: World) -> None:
    world.update("app", world.app_id, name="other")
    with pytest.raises(GridError, match="vcdl project install"):
        world.grid().refresh()


# -- what clients began with


def test_what_was_sent_to_a_second_client_is_told_again(world: World) -> None:
    (name,) = world.submitted()
    grid = world.grid()
    world.fail(name)
    assert [event.workunit for event in grid.sent()] == [name]
    world.send(name, host=2)
    assert [event.host for event in grid.sent()] == ["host-2"]


def test_what_an_earlier_process_told_of_is_not_told_again(world: World) -> None:
    (name,) = world.submitted()
    world.send(name)
    assert len(world.grid(sent_since_s=time.time() - 60).sent()) == 1
    assert world.grid(sent_since_s=time.time() + 1).sent() == []


def test_a_host_downloads_shared_files_once_and_weights_while_a_task_needs_them(world: World) -> None:
    numbers = [(1, 0, 0), (2, 0, 1), (2, 1, 1), (3, 0, 1)]
    items = [world.staged(epoch, shard, 0, version) for epoch, shard, version in numbers]
    world.grid().submit(items)
    world.transition()
    first, second, third, fourth = (item.workunit.name for item in items)
    model = next(world.project.download_dir.rglob("*.json.gz")).stat().st_size
    assert 0 < model < items[0].model.stat().st_size
    own = len(items[0].workunit.to_json())
    params, shard_0, shard_1 = (path.stat().st_size for path in (items[0].params, items[0].shard, items[2].shard))
    told: set[str] = set()
    for name, host, size_bytes in (
        (first, 1, own + params + model + shard_0),
        (second, 1, own + params),
        (third, 1, own + shard_1),  # the second task has brought the weights
        (fourth, 2, own + params + model + shard_0),
    ):
        world.send(name, host)
        events = world.grid().sent()  # a new process each time: what it must know is in the database
        (event,) = [event for event in events if event.workunit not in told]
        told.add(name)
        assert (event.workunit, event.bytes_down) == (name, size_bytes)


def test_a_shard_of_two_jobs_lies_on_the_server_once_and_comes_to_a_host_once(world: World) -> None:
    items = [world.staged(job=job) for job in ("a", "b")]
    for item in items:
        world.grid(item.workunit.job).submit([item])
    world.transition()
    assert len({inputs_of(world, item.workunit.name)[3] for item in items}) == 1
    assert len([name for name in world.downloads() if name.endswith(".npz")]) == 1
    for item in items:
        world.send(item.workunit.name, host=1)
    (event,) = world.grid("b").sent()
    own = items[1]
    assert event.bytes_down == len(own.workunit.to_json()) + own.params.stat().st_size


# -- the supply


def test_what_runs_is_wanted_beside_what_lies_ready(world: World) -> None:
    names = world.submitted(6)
    for name in names[:4]:
        world.send(name)
    assert wanted(world.grid()) == 4 + 6  # four may end at any moment: two are too few
    world.grid().submit([world.staged(epoch) for epoch in range(7, 11)])
    assert wanted(world.grid()) == 4 + 4  # also before BOINC has made their results


def test_a_job_may_say_itself_how_much_lies_ready(world: World) -> None:
    for name in world.submitted(6)[:4]:
        world.send(name)
    assert wanted(world.grid(ahead=0)) == 4
    assert wanted(world.grid(ahead=20)) == 4 + 20


def test_one_that_failed_and_waits_for_the_next_client_lies_ready(world: World) -> None:
    names = world.submitted(5)
    world.fail(names[0])
    assert wanted(world.grid()) == 12  # none runs
    world.send(names[0], host=2)
    assert wanted(world.grid()) == 1 + 2


def test_jobs_with_work_share_the_clients(world: World) -> None:
    world.grid("a", share=3).submit([world.staged(job="a")])
    assert wanted(world.grid("b", share=1)) == 3
    world.grid("b", share=1).submit([world.staged(job="b")])
    assert wanted(world.grid("a", share=3)) == 9
    world.grid("a", share=3).clear(forget_on_clients=False)
    assert wanted(world.grid("b", share=1)) == 12


def test_a_new_job_is_sent_before_what_the_others_have_waiting_until_its_part_runs(world: World) -> None:
    old = [world.staged(epoch, job="a") for epoch in range(1, 9)]
    a, b = world.grid("a"), world.grid("b", share=3)
    a.submit(old)
    world.transition()
    for item in old[:4]:
        world.send(item.workunit.name)
    assert wanted(b) >= 5
    new = [world.staged(epoch, job="b") for epoch in range(1, 6)]
    b.submit(new)
    world.transition()
    rows = world.rows("SELECT name FROM result WHERE server_state = 2 ORDER BY priority DESC, id")
    jobs = [row["name"][0] for row in rows]
    assert jobs == ["b"] * 3 + ["a"] * 4 + ["b"] * 2  # three quarters of the four that run


# -- cancelling


def test_a_cancelled_workunit_is_never_sent_and_comes_back_as_cancelled(world: World) -> None:
    unsent, running = world.submitted(2)
    world.send(running)
    world.grid().cancel([unsent, running])
    assert world.result_of(unsent)["server_state"] == 5
    assert world.result_of(running)["server_state"] == 4  # BOINC aborts it when the client next reports
    world.transition()
    assert world.claimed() == [GaveUp(name, "it was cancelled", cancelled=True) for name in (unsent, running)]


@pytest.mark.parametrize("is_reported", [True, False])
def test_a_result_that_was_uploaded_is_left_to_the_validator_by_cancelling(world: World, is_reported: bool) -> None:
    """BOINC deletes the uploads of a cancelled workunit: hosts that had done their work earned nothing."""
    (name,) = world.submitted()
    world.send(name)
    result = world.result_of(name)
    file = world.project.upload_path(output_file(result["xml_doc_in"]))
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"update")
    reported = {"server_state": 5, "outcome": 1, "received_time": int(time.time())}
    if is_reported:
        world.update("result", result["id"], **reported)
    world.grid().clear(forget_on_clients=False)
    assert (world.row(name)["error_mask"], world.row(name)["max_total_results"]) == (0, 1)
    world.update("result", result["id"], **reported)
    world.update("workunit", world.row(name)["id"], transition_time=int(time.time()))
    world.transition()
    assert world.result_of(name)["validate_state"] == 1
    assert world.row(name)["canonical_resultid"] == result["id"]


def test_an_upload_that_could_not_be_looked_at_is_checked_again_within_minutes(world: World) -> None:
    (name,) = world.submitted()
    world.send(name)
    world.update("result", world.result_of(name)["id"], server_state=5, outcome=1)
    row, later = world.row(name)["id"], int(time.time()) + 6 * 3600  # as BOINC's validator leaves it
    world.update("workunit", row, need_validate=0, transition_time=later)
    world.grid().refresh()
    assert world.row(name)["transition_time"] == later, "it was looked at just now"
    world.update("workunit", row, mod_time=datetime.now() - timedelta(minutes=2))
    world.grid().refresh()
    assert world.row(name)["transition_time"] <= time.time()


@pytest.mark.parametrize("ahead", [None, 3])
def test_a_cancellation_that_the_transitioner_overlooked_is_looked_at_again(world: World, ahead: int | None) -> None:
    (name,) = world.submitted()
    world.grid().cancel([name])
    world.update("workunit", world.row(name)["id"], transition_time=2**31 - 1)  # it was working on it at that moment
    world.grid(ahead=ahead).refresh()
    world.transition()
    assert world.row(name)["assimilate_state"] == 1


# -- the end of a job


def test_nothing_is_left_behind(world: World) -> None:
    for path in (world.project.templates / "vcdl_in.xml", world.project.manifests / "other.json"):
        path.parent.mkdir(parents=True, exist_ok=True)
        leave_half(path)  # as a process that was killed
    names = world.submitted(3)
    world.send(names[0])
    half_staged = world.project.download_path(f"{world.staged(9).workunit.name}.json")
    half_copied = world.project.download_path("vcdl_0123456789abcdef.h5")
    for path in (half_staged, half_copied):
        path.parent.mkdir(parents=True, exist_ok=True)
        leave_half(path)
    half_staged.write_text("{}")
    world.grid().clear(forget_on_clients=False)
    world.transition()
    assert world.downloads() == set()
    (left,) = world.project.templates.iterdir()
    assert left.name.startswith("vcdl_out_"), "without it the transitioner ends when it makes another result"
    assert [path.name for path in world.project.manifests.iterdir()] == ["lock"]
    assert {row["error_mask"] for row in world.rows("SELECT error_mask FROM workunit")} == {16}
    assert world.rows("SELECT * FROM msg_to_host") == []
    world.grid().clear(forget_on_clients=True)  # and once more


def test_what_other_jobs_use_stays(world: World) -> None:
    world.submitted(job="a")
    world.submitted(job="b")
    before = world.downloads()
    world.grid("a").clear(forget_on_clients=True)
    gone = {name.removesuffix(".md5") for name in before - world.downloads()}
    assert sorted(Path(name).suffix for name in gone) == [".h5", ".json"]  # its own weights and description
    assert len(list(world.project.templates.iterdir())) == 2
    world.grid("b").clear(forget_on_clients=True)
    assert world.downloads() == set()


def test_clients_are_asked_once_to_forget_what_only_this_job_used(world: World) -> None:
    grid = world.grid("a")
    grid.submit([world.staged(1, 0, job="a"), world.staged(1, 1, job="a")])
    world.transition()
    for shard, host in ((0, 1), (1, 2)):
        world.send(world.staged(1, shard, job="a").workunit.name, host)
    world.grid("b").submit([world.staged(1, 0, job="b")])  # shares the model and shard 0
    grid._forget_on_clients(grid._staging.manifest)  # by a process that was killed before it could clear
    world.grid("a").clear(forget_on_clients=True)
    only_a = inputs_of(world, world.staged(1, 1, job="a").workunit.name)[3]
    asked = world.rows("SELECT hostid, variety, handled, xml FROM msg_to_host")
    request = f"<delete_file_info>{only_a}</delete_file_info>\n"
    assert asked == [{"hostid": 2, "variety": "delete_file", "handled": 0, "xml": request}]


def test_a_finished_job_is_forgotten_on_demand(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    names = world.submitted(2, job="a")
    for name, host in zip(names, (1, 2), strict=True):
        world.send(name, host)
    world.grid("a").clear(forget_on_clients=False)
    folder = world.folder("a")
    for file in (folder.job_file, folder.summary_file):
        file.touch()
    folder.kind_file.write_text("boinc\n")
    clients = ClientRows(world.database)
    assert (jobs_kept_on_clients(world.project, world.database), clients.not_told()) == (["a"], 0)
    for _ in range(2):
        assert stop(folder.path, forget=True) is ExitCode.OK
    assert "a is finished; 2 clients are asked to delete what they keep of it" in capsys.readouterr().out
    _, model, _, shard = inputs_of(world, names[0])
    asked = {(row["hostid"], row["xml"].split(">")[1].split("<")[0]) for row in world.rows("SELECT * FROM msg_to_host")}
    assert asked == {(host, name) for host in (1, 2) for name in (model, shard)}
    assert len(world.rows("SELECT id FROM msg_to_host")) == 4
    assert (jobs_kept_on_clients(world.project, world.database), clients.not_told()) == ([], 2)


def test_a_second_submission_takes_back_what_clients_were_not_asked_yet(world: World) -> None:
    (name,) = world.submitted(job="a")
    world.send(name)
    world.grid("a").clear(forget_on_clients=True)
    assert len(world.rows("SELECT id FROM msg_to_host WHERE handled = 0")) == 2
    world.submitted(job="a-2")
    assert world.rows("SELECT id FROM msg_to_host WHERE handled = 0") == []


def test_weights_are_removed_when_no_workunit_starts_from_them(world: World) -> None:
    grid = world.grid()
    items = [world.staged(epoch, version=epoch - 1) for epoch in (1, 2, 3)]
    grid.submit(items)
    world.transition()
    params = [inputs_of(world, item.workunit.name)[2] for item in items]
    grid.discard_params({2})
    assert set(params) <= world.downloads()  # they may still be sent
    world.report(items[0].workunit.name)
    grid.discard_params({2})
    assert set(params) & world.downloads() == set(params[1:])
    grid.cancel([items[1].workunit.name])
    world.transition()
    world.grid().discard_params({2})
    assert set(params) & world.downloads() == {params[2]}


# -- the database is away


def test_calls_say_that_the_database_is_away_and_go_on_when_it_is_back(world: World, mariadb: PrivateServer) -> None:
    grid = world.grid()
    grid.submit([world.staged()])
    mariadb.kill()
    try:
        for call in (grid.sent, grid.refresh, lambda: grid.submit([world.staged(2)])):
            with pytest.raises(GridUnavailable, match="is the server running"):
                call()
    finally:
        mariadb.start()
    grid.submit([world.staged(2)])
    assert len(world.rows("SELECT id FROM workunit")) == 2


# -- frozen weights


def test_frozen_weights_are_one_more_input_that_a_client_downloads_once_and_forgets_with_the_job(world: World) -> None:
    frozen = world.folder("a").frozen_file
    frozen.write_bytes(b"frozen" * 1000)
    items = [world.staged(epoch, job="a") for epoch in (1, 2)]
    grid = world.grid("a")
    grid.submit(items)
    world.grid("b").submit([world.staged(job="b")])
    world.transition()
    inputs = inputs_of(world, items[0].workunit.name)
    assert len(inputs) == 5
    assert world.project.download_path(inputs[4]).read_bytes() == frozen.read_bytes()
    assert len(inputs_of(world, world.staged(job="b").workunit.name)) == 4
    for item in items:
        world.send(item.workunit.name)
    first, second = world.grid("a").sent()
    assert first.bytes_down - second.bytes_down > frozen.stat().st_size
    assert {"vcdl_in.xml", "vcdl_in_frozen.xml"} < {path.name for path in world.project.templates.iterdir()}
    grid.clear(forget_on_clients=True)
    asked = {row["xml"].split(">")[1].split("<")[0] for row in world.rows("SELECT xml FROM msg_to_host")}
    assert inputs[4] in asked
    assert not world.project.download_path(inputs[4]).exists()
    world.grid("b").clear(forget_on_clients=False)
    assert not list(world.project.templates.glob("vcdl_in*"))
