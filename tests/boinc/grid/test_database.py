"""The connection to a project's database, which the server may cut."""

from contextlib import closing

import pytest

from tests.boinc.grid.world import World
from vcdl.boinc.grid.database import BoincDatabase
from vcdl.errors import GridUnavailable

pytestmark = pytest.mark.server


def cut(world: World, other: BoincDatabase) -> None:
    ((connection,),) = other.execute("SELECT CONNECTION_ID()")
    world.database.execute(f"KILL {connection}")


def names(world: World) -> set[str]:
    return {name for (name,) in world.database.execute("SELECT name FROM app")}


def test_a_connection_that_was_cut_while_idle_is_made_anew_for_the_next_transaction(world: World) -> None:
    with closing(BoincDatabase(world.project)) as other:
        cut(world, other)
        with other.transaction():
            other.execute("INSERT INTO app (create_time, name, user_friendly_name) VALUES (0, 'new', 'New')")
    assert "new" in names(world)


def cut_within(world: World, other: BoincDatabase) -> None:
    with other.transaction():
        other.execute("INSERT INTO app (create_time, name, user_friendly_name) VALUES (0, 'first', 'First')")
        cut(world, other)
        with pytest.raises(GridUnavailable):
            other.execute("SELECT 1")
        other.execute("INSERT INTO app (create_time, name, user_friendly_name) VALUES (0, 'second', 'Second')")


def test_a_transaction_whose_connection_is_cut_is_not_done_in_part(world: World) -> None:
    with closing(BoincDatabase(world.project)) as other:
        with pytest.raises(GridUnavailable, match="cannot be reached"):
            cut_within(world, other)
        assert other.execute("SELECT 1") == ((1,),)
    assert not names(world) & {"first", "second"}
