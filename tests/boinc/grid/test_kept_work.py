import time
import xml.etree.ElementTree as ElementTree
from contextlib import closing

import pytest

from tests.boinc.grid.world import World
from tests.boinc.standin.scheduler import Conversation
from tests.boinc.standin.states import NEVER, NO_NEW_RESULTS, Assimilate, Outcome, Server
from vcdl.boinc.grid.grid import BoincGrid, clear_job
from vcdl.boinc.grid.kept_work import account_number
from vcdl.boinc.grid.second_copies import SecondCopies
from vcdl.boinc.grid.supply import Marks
from vcdl.errors import JobError

pytestmark = pytest.mark.boinc

ADA, BOB = 7007, 7008
"""Accounts, above the numbers that the database gives: it continues counting from test to test."""


@pytest.fixture
def kept(world: World) -> str:
    """A workunit of a job that is kept to ada's hosts."""
    insert = world.standin.insert
    for account, name in ((ADA, "ada"), (BOB, "bob")):
        insert("user", id=account, name=name, email_addr=f"{name}@example.org", authenticator=name)
    platform, xml = insert("platform", name="any"), "<app_version>\n</app_version>"
    insert("app_version", appid=world.app_id, platformid=platform, version_num=1, xml_doc=xml)
    return submitted(world, 1)


def grid(world: World) -> BoincGrid:
    return world.grid(account=ADA)


def submitted(world: World, epoch: int) -> str:
    item = world.staged(epoch)
    grid(world).submit([item])
    world.transition()
    return item.workunit.name


def asks(world: World, account: str, host: int | None = None) -> tuple[int, list[str]]:
    """A host of an account asks for work: its number, and the workunits that it is sent."""
    about = "" if host is None else f"<hostid>{host}</hostid>"
    request = (
        f"<r><authenticator>{account}</authenticator>{about}<platform_name>any</platform_name>"
        "<cpu_req_secs>1</cpu_req_secs><cpu_req_instances>1</cpu_req_instances></r>"
    )
    with closing(world.standin.connect()) as connection:
        said = Conversation(world.standin, connection, request.encode()).answer()
        connection.commit()
    reply = ElementTree.fromstring(said)
    return host or int(reply.findtext("hostid", "0")), [each.text or "" for each in reply.findall("workunit/name")]


def assigned(world: World) -> list[tuple[int, int]]:
    rows = world.rows("SELECT target_type, target_id FROM assignment ORDER BY id")
    return [(row["target_type"], row["target_id"]) for row in rows]


def ended(world: World, name: str, outcome: Outcome, ago_s: int = 0) -> None:
    """Its newest result has come to an end."""
    row = world.result_of(name)
    world.update("result", row["id"], server_state=int(Server.OVER), outcome=int(outcome),
                 received_time=int(time.time()) - ago_s)  # fmt: skip
    world.update("workunit", row["workunitid"], transition_time=int(time.time()))
    world.transition()


def test_only_hosts_of_the_account_get_it_and_another_of_them_after_one_that_was_lost(world: World, kept: str) -> None:
    assert world.row(kept)["transitioner_flags"] == NO_NEW_RESULTS
    assert asks(world, "bob")[1] == []
    first, sent = asks(world, "ada")
    assert sent == [kept]
    assert asks(world, "ada")[1] == []  # a second host, while the first one has it
    world.update("result", world.result_of(kept)["id"], report_deadline=int(time.time()) - 1)
    world.update("workunit", world.row(kept)["id"], transition_time=int(time.time()))
    world.transition()
    assert world.result_of(kept)["outcome"] == Outcome.NO_REPLY
    assert asks(world, "bob")[1] == []
    assert asks(world, "ada", first)[1] == []  # never the same host again
    assert asks(world, "ada")[1] == [kept]
    assert [sending.workunit for sending in grid(world).sent()] == [kept, kept]


def test_its_host_gets_that_of_others_when_nothing_of_its_own_is_left(world: World, kept: str) -> None:
    (common,) = world.submitted(job="common")
    host, sent = asks(world, "ada")
    assert sent == [kept]
    ended(world, kept, Outcome.SUCCESS)
    assert asks(world, "ada", host)[1] == [common]


def test_what_a_killed_create_work_left_is_assigned_and_what_is_over_is_forgotten(world: World, kept: str) -> None:
    world.standin.execute("DELETE FROM assignment")
    for _ in range(2):
        grid(world).refresh()
        assert assigned(world) == [(2, ADA)]
    asks(world, "ada")
    grid(world).refresh()
    assert assigned(world) == [(2, ADA)]  # it is needed again when that host is lost
    ended(world, kept, Outcome.SUCCESS)
    grid(world).refresh()
    assert assigned(world) == []


def test_a_job_that_ended_leaves_no_assignment(world: World, kept: str) -> None:
    clear_job(world.project, world.database, "mnis", forget_on_clients=False)
    assert assigned(world) == [(2, ADA)]
    clear_job(world.project, world.database, "mnist", forget_on_clients=False)
    assert assigned(world) == []
    assert asks(world, "ada")[1] == []


def test_what_every_host_of_the_account_has_had_is_given_up(world: World, kept: str) -> None:
    asks(world, "bob")  # a host at work, which may not have it
    asks(world, "ada")
    copies = SecondCopies(world.database, "mnist", ADA)
    ended(world, kept, Outcome.CLIENT_ERROR)
    copies.replicate_late(queue_empty=True)
    assert world.row(kept)["error_mask"] == 0  # another host may still come
    world.update("result", world.result_of(kept)["id"], received_time=int(time.time()) - 31)
    SecondCopies(world.database, "mnist").replicate_late(queue_empty=True)
    assert world.row(kept)["error_mask"] == 0  # of all hosts one has not had it
    SecondCopies(world.database, "mnist", ADA).replicate_late(queue_empty=True)
    world.transition()
    assert world.row(kept)["assimilate_state"] == Assimilate.READY
    (outcome,) = world.claimed()
    assert "it could not be sent to any client" in str(outcome)


def test_one_that_was_given_up_is_handled_though_the_transitioner_wrote_last(world: World, kept: str) -> None:
    world.update("workunit", world.row(kept)["id"], error_mask=1, transition_time=NEVER)
    grid(world).refresh()
    world.transition()
    assert world.row(kept)["assimilate_state"] == Assimilate.READY


def test_its_work_is_made_for_the_hosts_of_the_account_and_counts_for_no_other_job(world: World, kept: str) -> None:
    common = world.grid("common")
    common.refresh()
    alone = common.target_open_workunits()
    for host in range(20):
        world.update("host", world.host(100 + host), userid=BOB)
    mine = grid(world)
    mine.refresh()
    assert mine.target_open_workunits() == Marks(8, 12).high  # not one for each of bob's hosts
    world.grid("common", share=1).submit([world.staged(job="common")])
    common.refresh()
    assert common.target_open_workunits() > alone  # the whole part, for 20 hosts


def test_an_account_is_found_by_its_address_or_its_number(world: World, kept: str) -> None:
    assert account_number(world.database, "ada@example.org") == ADA
    assert account_number(world.database, f"{BOB}") == BOB
    for unknown in ("7009", "eve@example.org", "0", "7007 OR 1"):
        with pytest.raises(JobError, match="has no account"):
            account_number(world.database, unknown)
