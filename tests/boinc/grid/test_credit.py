import pytest

from tests.boinc.grid.world import World
from vcdl.boinc.grid.credit import Credit, credit_of, take_back

DAY = 86400e9
"""Operations of a day of a computer with 10^9 a second."""


def test_a_day_of_a_computer_with_a_gigaflop_is_worth_200() -> None:
    assert credit_of(DAY) == pytest.approx(200.0, rel=1e-4)
    assert credit_of(2 * DAY) - credit_of(DAY) == pytest.approx(200.0)


def test_a_small_model_s_subtask_is_worth_what_it_takes_beside_its_training() -> None:
    assert credit_of(0) == pytest.approx(200 * 4 / 86400)


@pytest.mark.boinc
def test_a_workunit_has_the_credit_of_its_shard_from_the_begin(world: World) -> None:
    names = [world.staged(1, shard).workunit.name for shard in (0, 1)]
    world.grid().submit([world.staged(1, shard) for shard in (0, 1)])
    assert [world.row(name)["canonical_credit"] for name in names] == pytest.approx([credit_of(1e12)] * 2)
    Credit(world.database, "mnist", [1e12, 3e12]).follow()
    assert [world.row(name)["canonical_credit"] for name in names] == pytest.approx([credit_of(1e12), credit_of(3e12)])


@pytest.mark.boinc
def test_the_credit_of_a_workunit_that_has_its_upload_stays(world: World) -> None:
    (name,) = world.created()
    world.report(name)
    world.update("workunit", world.row(name)["id"], canonical_credit=7.0)
    Credit(world.database, "mnist", [1e12, 1e12]).follow()
    assert world.row(name)["canonical_credit"] == 7.0


@pytest.mark.boinc
def test_credit_of_what_was_taken_back_goes_back_once_and_nobody_elses(world: World) -> None:
    lie, other, theirs = world.created(3)
    user = world.standin.insert("user", name="ada", email_addr="ada@x.org", authenticator="a", total_credit=11.0,
                                expavg_credit=3.0)  # fmt: skip
    for name, host in ((lie, 1), (other, 1), (theirs, 2)):
        world.host(host)
        world.report(name)
        world.update("result", world.result_of(name)["id"], hostid=host, userid=user, granted_credit=4.0)
    world.update("host", 1, total_credit=8.0, expavg_credit=7.0)
    assert take_back(world.database, 1, {lie, theirs}) == 4.0
    assert take_back(world.database, 1, {lie, theirs}) == 0.0
    credit = {name: world.result_of(name)["granted_credit"] for name in (lie, other, theirs)}
    assert credit == {lie: 0.0, other: 4.0, theirs: 4.0}
    (machine,) = world.rows("SELECT total_credit, expavg_credit FROM host WHERE id = 1")
    (account,) = world.rows("SELECT total_credit, expavg_credit FROM user WHERE id = %s", user)
    assert (machine["total_credit"], machine["expavg_credit"]) == (4.0, 3.0)
    assert (account["total_credit"], account["expavg_credit"]) == (7.0, 0.0), "what is lately earned has faded since"
