"""Find machines of a fleet that never started to work, by their consoles and the project's hosts.

A machine may be running although its image has no cloud-init, its boot hangs, or its network has no route out. Then no
agent ever starts, nothing powers the machine off, and it would be paid for until `max_life_h`. If neither the console
nor the project shows a sign of life within `idle_shutdown_s` of its launch, the machine is silent: a pass terminates
it, and it counts as a failure for the crash loop. A console that cannot be read proves nothing.
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
"""Returns the name of each of the project's hosts in the journals, with the name of its machine."""
_AGENT = re.compile(r"\bvcdl-(agent|setup)(\[\d+\])?: ")
"""The beginning of the lines of agent and set-up, as systemd writes them to a console. This includes the set-up's
lines, because AWS shows only the last 64 KB, and apt may have pushed the agent's first lines out. Not `vcdl`: Compute
Engine's machines have it in their names, which the login prompt shows."""
MOST_FAILURES = 5
"""Machines in a row that fail before only one at a time is launched, so that a broken image costs little."""
_AT_ONCE = 10
"""Consoles read per pass: more could be throttled when a large fleet reaches this age."""
_LEFT = "drained: the machine is powered off"
"""The last line of an agent whose machine was drained, which is no failure."""


class LifeSigns:
    """Detects machines of a fleet that never showed a sign of life, and series of machines that failed.

    It reads at most `_AT_ONCE` consoles per pass, and keeps the last lines of failed machines in memory.
    """

    def __init__(self, provider: Provider, idle_s: float, hosts: Hosts | None) -> None:
        self._provider, self._idle_s, self._hosts = provider, idle_s, hosts or (lambda: ())
        self._said: dict[str, str] = {}
        """Id of an instance that failed → the last lines of its console about vcdl."""

    def look(
        self, instances: Sequence[Instance], heard: Collection[str], now_s: float
    ) -> tuple[tuple[str, ...], Mapping[str, str], list[str]]:
        """Look for signs of life of machines that should have shown one by now, and find the silent ones.

        Args:
            instances: The fleet's instances.
            heard: Ids of machines that have shown a sign of life in earlier passes.
            now_s: Unix time.

        Returns:
            Ids of the live machines that have shown a sign of life; id of each silent machine → why to terminate it;
            and warnings about machines whose state is unknown.
        """
        # One sign of life is enough: if a machine has problems later, its agent or its lease ends it.
        known = {i.id for i in instances if i.is_live and i.id in heard}
        late = [i.id for i in instances if i.is_capacity and i.id not in known and now_s - i.launched_s >= self._idle_s]
        # Choose at random, so that the same consoles that cannot be read are not the only ones asked in every pass.
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
        """Decide whether only one instance at a time should be launched, because MOST_FAILURES in a row have failed.

        Args:
            failures: Ids of the instances that failed since the last one that worked, newest first.

        Returns:
            The number of failures, counted up to an instance that was in fact drained on the cloud's advice; and the
            reason to launch one instance at a time, empty if any number may be launched.
        """
        if len(failures) < MOST_FAILURES:
            return len(failures), ""
        for number, id in enumerate(failures[:MOST_FAILURES]):
            # Keep the lines, because a console disappears some time after its machine, and each query is a call.
            if id not in self._said:
                self._said[id] = self._provider.last_words(id, 20, "vcdl")
            if _LEFT in self._said[id]:
                return number, ""
        return len(failures), (
            f"the last {len(failures)} instances ended without ever having had a subtask, so only one at a time is "
            "launched; "
            f"{failures[0]}: {self._said[failures[0]]}"
        )
