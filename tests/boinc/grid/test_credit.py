import pytest

from tests.boinc.grid.world import World
from vcdl.boinc.grid.credit import CREDIT_PER_OPERATION, Credit, HostTraining, operations_of_sample

SPEEDS = {"host-1": 1e9, "host-2": 4e9, "host-3": 1e9}


def test_a_day_of_a_computer_with_a_gigaflop_is_worth_200() -> None:
    assert pytest.approx(200.0) == 86400 * 1e9 * CREDIT_PER_OPERATION


def test_a_slow_and_a_quick_host_measure_the_same_cost_and_one_that_lies_does_not_change_it() -> None:
    honest = [HostTraining("host-1", 4.0, 100), HostTraining("host-2", 1.0, 100), HostTraining("host-1", 4.0, 100)]
    assert operations_of_sample(1e6, honest, SPEEDS) == pytest.approx(4e7)
    lie = [HostTraining("host-3", 1e6, 100)] * 20
    assert operations_of_sample(1e6, [*honest, *lie], SPEEDS) == pytest.approx(4e7)


def test_the_model_s_arithmetic_counts_while_little_is_measured_and_at_least() -> None:
    assert operations_of_sample(1e6, [HostTraining("host-1", 4.0, 100)] * 2, SPEEDS) == 1e6
    assert operations_of_sample(1e6, [HostTraining("host-1", 4.0, 100)] * 3, {}) == 1e6
    assert operations_of_sample(1e9, [HostTraining("host-1", 4.0, 100)] * 3, SPEEDS) == 1e9


@pytest.mark.boinc
def test_a_new_workunit_has_its_credit_which_follows_what_its_shard_costs(world: World) -> None:
    names = [world.staged(1, shard).workunit.name for shard in (0, 1)]
    world.grid().submit([world.staged(1, shard) for shard in (0, 1)])
    assert [world.row(name)["canonical_credit"] for name in names] == pytest.approx([1e12 * CREDIT_PER_OPERATION] * 2)
    world.update("host", world.host(1), p_fpops=2e9)
    Credit(world.database, "mnist", 1e6, [100, 300]).follow(lambda: [HostTraining("host-1", 5.0, 100)] * 3)
    assert [world.row(name)["canonical_credit"] for name in names] == pytest.approx(
        [1e8 * 100 * CREDIT_PER_OPERATION, 1e8 * 300 * CREDIT_PER_OPERATION]
    )


@pytest.mark.boinc
def test_the_credit_of_a_workunit_that_has_its_upload_stays(world: World) -> None:
    (name,) = world.created()
    world.report(name)
    world.update("workunit", world.row(name)["id"], canonical_credit=7.0)
    Credit(world.database, "mnist", 1e6, [100]).follow(list)
    assert world.row(name)["canonical_credit"] == 7.0
