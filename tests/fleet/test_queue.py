"""The capacity that a queue can use, and the queue of a BOINC project in its database."""

from datetime import UTC, datetime

import pytest

from tests.boinc.conftest import mariadb
from tests.boinc.grid.conftest import world
from tests.boinc.grid.world import World
from vcdl.fleet.project import ProjectDatabase, Queue, wanted_units
from vcdl.fleet.settings import CapacitySettings
from vcdl.journal.journal import Journal

__all__ = ["mariadb", "world"]  # fixtures
NOW = datetime(2026, 11, 21, tzinfo=UTC)


def capacity(**values: object) -> CapacitySettings:
    return CapacitySettings.model_validate(
        {"target": 40, "min": 8, "max": 100, "follow": "queue", "project_dir": "p", **values}
    )


def queue(
    unsent: int = 0, running: int = 0, remaining: int = 1000, task_s: float | None = 60.0, jobs: int = 1
) -> Queue:
    return Queue(jobs, unsent, running, remaining, task_s)


@pytest.mark.parametrize(
    ("queued", "units_per_subtask", "expected"),
    [
        (queue(jobs=0, unsent=50), 1.0, 0),  # without an open job also below the minimum
        (queue(), 1.0, 8),
        (queue(unsent=10, running=20), 1.0, 30),
        (queue(unsent=10, running=20), 2.0, 60),
        (queue(unsent=3), 2.5, 8),
        (queue(unsent=500), 1.0, 100),
    ],
)
def test_without_a_deadline_the_capacity_is_what_can_run_at_once(
    queued: Queue, units_per_subtask: float, expected: int
) -> None:
    assert wanted_units(queued, capacity(units_per_subtask=units_per_subtask), 0.0) == expected


def test_a_deadline_does_not_make_the_fleet_smaller() -> None:
    assert wanted_units(queue(unsent=30), capacity(deadline=NOW), NOW.timestamp() - 100 * 3600) == 30


def test_after_the_deadline_at_most_the_target_is_kept() -> None:
    assert wanted_units(queue(unsent=500), capacity(deadline=NOW), NOW.timestamp() + 1) == 40


JOB = "name: {}\nmodel: {{builtin: small_cnn}}\ndata: {{dataset: digits, shards: 10}}\nstop: {{epochs: 3}}\n"


def open_job(world: World, name: str = "mnist") -> None:
    folder = world.folder(name)
    folder.job_file.write_text(JOB.format(name))
    Journal.at(folder.journal_file).close()
    folder.prepared_file.write_text("{}")


@pytest.mark.boinc
def test_the_queue_of_a_project_counts_the_open_jobs(world: World) -> None:
    open_job(world)
    names = world.submitted(4)
    world.send(names[0])
    queue_of = ProjectDatabase(world.project.path)
    assert queue_of.queue() == Queue(1, 3, 1, 30, None)
    world.report(names[0])
    assert queue_of.queue().running == 1  # returned and not assimilated
    assert queue_of.queue().task_s is not None


@pytest.mark.boinc
def test_a_fleet_follows_the_subtasks_that_its_machines_are_for(world: World) -> None:
    open_job(world)
    on_gpu, on_cpu, returned, _ = world.submitted(4)
    execute = world.database.execute
    columns = "id, create_time, appid, version_num, platformid, plan_class"
    execute(f"INSERT INTO app_version ({columns}) VALUES (77, 0, 1, 9, 1, 'vcdl_cuda')")
    for name in (on_gpu, on_cpu, returned):
        world.send(name)
    world.report(returned)
    execute("UPDATE result SET app_version_id = 77 WHERE name LIKE %s", f"{on_gpu}%")
    running = {unit: ProjectDatabase(world.project.path, unit).queue().running for unit in ("gpu", "vcpu", "instance")}
    assert running == {"gpu": 1, "vcpu": 2, "instance": 3}


@pytest.mark.boinc
def test_a_job_that_is_paused_or_finished_is_not_open(world: World) -> None:
    open_job(world)
    open_job(world, "second")
    queue_of = ProjectDatabase(world.project.path)
    assert queue_of.queue().jobs == 2
    world.folder("second").stop_request.touch()
    assert (queue_of.queue().jobs, queue_of.queue().remaining) == (1, 30)
    world.folder().summary_file.write_text("{}")
    assert wanted_units(queue_of.queue(), capacity(), 0.0) == 0
