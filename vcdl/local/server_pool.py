"""Keep the parameter servers of a local run running, where the job has more than one."""

from collections.abc import Sequence

from vcdl.journal.events import Recorded, UpdateApplied
from vcdl.local.child import ChildProcess
from vcdl.run.folder import RunFolder

_MODULE = "vcdl.local.server"


class ServerPool:
    """Starts the parameter servers as child processes and restarts those that die.

    Any of them may be killed at any moment, because servers have no state of their own.
    """

    def __init__(self, folder: RunFolder, servers: int) -> None:
        """Create an empty pool.

        Args:
            folder: The run's folder.
            servers: `grid > servers`. With 1 the run's own process is the only server, and the pool stays empty.
        """
        self._folder = folder
        self._wanted = servers if servers > 1 else 0
        self._servers: list[ChildProcess] = []

    def keep_running(self, new: Sequence[Recorded], *, is_needed: bool = True) -> None:
        """Start missing servers and restart those that died; called at each step of the run.

        Args:
            new: Events since the last call.
            is_needed: Whether updates are still expected. Only then does a server that keeps dying end the run.

        Raises:
            GridError: A server died too often.
        """
        while len(self._servers) < self._wanted:
            self._servers.append(ChildProcess(_MODULE, self._folder))
        worked = any(isinstance(recorded.event, UpdateApplied) for recorded in new)
        for server in self._servers:
            # If no update is expected and no upload waits, a dead server does no harm, and must not end a run that only
            # evaluates.
            if not (is_needed or self._folder.waiting_uploads()):
                server.try_anew()
                continue
            server.watch(worked)
            if server.is_hopeless:
                raise server.hopeless()

    def close(self) -> None:
        """Kill all servers and wait for their ends; `keep_running` would start new ones."""
        for server in self._servers:
            server.close()
        self._servers.clear()
