"""Free slots without a look at each of them: the same as if each were looked at."""

import numpy as np
import pytest

from vcdl.simulate.client_fleet import ClientFleet
from vcdl.simulate.clients import Clients
from vcdl.simulate.idle_slots import IdleSlots

CLIENTS = 12


@pytest.mark.parametrize("seed", range(5))
def test_the_slots_that_are_free_are_those_of_present_clients_the_longest_free_first(seed: int) -> None:
    fleet = ClientFleet(clients=CLIENTS, slots=1, seed=seed, preempted_every_s=300.0, away_s=200.0)
    looked_at, idle, dice, now_s = Clients(fleet), IdleSlots(Clients(fleet)), np.random.default_rng(seed), 0.0
    free: list[int] = []
    busy = list(range(CLIENTS))
    for _ in range(600):
        now_s += float(dice.exponential(20.0))
        if busy and dice.random() < 0.6:
            free.append(busy.pop(int(dice.integers(len(busy)))))
            idle.add(free[-1], now_s)
        here = idle.here(now_s)
        assert [client for _, client in here] == [one for one in free if looked_at.here_from(one, now_s) <= now_s]
        back_s = [back for one in free if (back := looked_at.here_from(one, now_s)) > now_s]
        assert idle.next_back_s(now_s) == min(back_s, default=None)
        if here and dice.random() < 0.5:
            number, client = here[int(dice.integers(len(here)))]
            idle.take(number)
            free.remove(client)
            busy.append(client)
