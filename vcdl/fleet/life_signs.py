"""Find machines of a fleet that never came to life, by their consoles and the project's hosts.

The cloud shows a machine as running although its image has no cloud-init, its boot hangs, or its network has no route
out. Then no agent ever starts, nothing powers the machine off, and it would be paid for until `max_life_h`. If neither
the console nor the project shows a sign of a machine within `idle_shutdown_s`, it is silent: a pass terminates it, and
it counts as a failure for the crash loop. A console that cannot be read proves nothing.
"""

import random
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from vcdl.errors import GridError
from vcdl.fleet.instance import Instance
from vcdl.fleet.project import instances_of_hosts
from vcdl.fleet.provider import Provider, ask_all
from vcdl.report.wording import duration

Hosts = Callable[[], Iterable[tuple[str, str]]]
"""Returns the project's hosts, each with the name of its machine."""
_AGENT = re.compile(r"\bvcdl-(agent|setup)(\[\d+\])?: ")
"""The beginning of the lines of agent and set-up, as systemd writes them to a console. This includes the set-up's
lines, because AWS shows only the last 64 KB, and apt may have pushed the agent's first lines out. Not `vcdl`: Compute
Engine's machines have it in their names, which the login prompt shows."""
MOST_FAILURES = 5
"""Machines in a row that fail before only one at a time is launched, so that a broken image costs little."""
_AT_ONCE = 10
"""Consoles read per pass: more could be throttled when a large fleet reaches this age."""
_LEFT = "drained: the machine is powered off"
"""The last line of an agent that powered the machine off for a good reason."""


class LifeSigns:
    """The signs of life of a fleet's machines."""

    def __init__(self, provider: Provider, idle_s: float, hosts: Hosts | None) -> None:
        self._provider, self._idle_s, self._hosts = provider, idle_s, hosts or (lambda: ())
        self._said: dict[str, str] = {}
        """Last console lines of instances that failed, by id."""

    def look(
        self, instances: Sequence[Instance], heard: Collection[str], now_s: float
    ) -> tuple[tuple[str, ...], Mapping[str, str], list[str]]:
        """Read the consoles of some machines that have not shown a sign of life in time.

        Args:
            instances: The fleet's instances.
            heard: Ids of machines that showed a sign of life before.
            now_s: Unix time.

        Returns:
            Ids of the live machines that have shown a sign of life; the silent machines to terminate, each with a
                message that quotes a console; and why the state of others is unknown.
        """
        # One sign is enough: later problems of a machine are handled by its agent and its lease.
        known = {i.id for i in instances if i.is_live and i.id in heard}
        late = [i.id for i in instances if i.is_capacity and i.id not in known and now_s - i.launched_s >= self._idle_s]
        # Choose at random, so that consoles that cannot be read do not use up every pass.
        said, refusals = ask_all(random.sample(late, min(_AT_ONCE, len(late))), self._provider.console)
        silent = {id for id, text in said.items() if not _AGENT.search(text)}
        known |= said.keys() - silent
        unsure = [f"whether an agent runs on {id} is unknown: {why}" for id, why in refusals.items()][:1]
        try:
            known |= set(instances_of_hosts(self._hosts(), silent).values()) if silent else set()
        except GridError as error:
            # Without the project's answer nothing is terminated: an image without a console may work well.
            silent, unsure = set(), [f"whether the project has heard of {', '.join(silent)} is unknown: {error}"]
        words, ended = "", sorted(silent - known)
        if ended:
            why = f"no agent has reported within {duration(self._idle_s)}: check the image and the network"
            words = f"{', '.join(ended)} terminated because {why}; {self._provider.last_words(ended[0], 3)}"
        return tuple(sorted(known)), dict.fromkeys(ended, words), unsure

    def crash_loop(self, failures: Sequence[str]) -> tuple[int, str]:
        """Return the length of the current series of failures, and why launches are throttled.

        Args:
            failures: Ids of instances that failed, newest first.

        Returns:
            The length of the series, which ends at an instance that left because the cloud advised it; and the reason
                to launch one instance at a time, empty while any number may be launched.
        """
        if len(failures) < MOST_FAILURES:
            return len(failures), ""
        for number, id in enumerate(failures[:MOST_FAILURES]):
            # Keep the lines: a console disappears some time after its machine, and asking again costs a call in each
            # pass.
            if id not in self._said:
                self._said[id] = self._provider.last_words(id, 20, "vcdl")
            if _LEFT in self._said[id]:
                return number, ""
        return len(failures), (
            f"the last {len(failures)} instances ended without ever having had a subtask, so only one at a time is "
            "launched; "
            f"{failures[0]}: {self._said[failures[0]]}"
        )
