"""Compute stalls from differential runs, as Stash does (Sharma et al., arXiv 2208.14344, after DS-Analyzer, VLDB 2021).

Each run trains the same samples, with one more part of the system than the run before. A stall is the time that the
part adds, as a fraction of the time of the run with the part. Only the network stall is a fraction of the time without
it. The fetch stall is T(cold) − T(warm); the authors' script computes another one.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ALONE, TOGETHER, WARM, COLD, LOOP = "alone", "together", "warm", "cold", "loop"
RUNS: Mapping[str, str] = {
    ALONE: "one worker, data in memory",
    TOGETHER: "all workers, data in memory",
    WARM: "all workers, shards read from the page cache",
    COLD: "all workers, shards read from the disk",
    LOOP: "all workers, the parameter server too",
}
"""Run → the parts of the system that take part in it, as a text for users."""
INTERCONNECT, PREPARE, FETCH, SERVER, NETWORK = "interconnect", "prepare", "fetch", "server", "network"
_DIFFERENCES = {INTERCONNECT: (TOGETHER, ALONE), PREPARE: (WARM, TOGETHER), FETCH: (COLD, WARM), SERVER: (LOOP, WARM)}
"""Stall → the run that has it, and the one that lacks it."""
MEANINGS: Mapping[str, str] = {
    INTERCONNECT: "the workers hold each other up",
    PREPARE: "shards are unpacked and normalised",
    FETCH: "workers wait for the disk",
    SERVER: "workers wait for the parameter server",
    NETWORK: "files are on the way to BOINC's clients and back",
}
WORTH = 0.05
"""Least fraction that is reported as a stall, because a smaller one is within noise."""


@dataclass(frozen=True)
class Stall:
    """The time that one part of the system costs, measured once in each round."""

    name: str
    """The part: a key of MEANINGS."""
    seconds: float
    """Median seconds that the part adds to a subtask."""
    shares: tuple[float, ...]
    """The stall in each round, as a fraction of a subtask's time. Negative where other work on the machine outweighed
    it."""

    @property
    def share(self) -> float:
        """The median fraction, at least 0."""
        return max(0.0, statistics.median(self.shares))

    @property
    def is_worth_a_word(self) -> bool:
        """Whether it is at least WORTH, and positive in three rounds of four, so that it is no effect of other work."""
        return self.share >= WORTH and sorted(self.shares)[len(self.shares) // 4] > 0.0

    @property
    def gain(self) -> float:
        """Samples an hour without the stall, divided by those with it."""
        return 1.0 + self.share if self.name == NETWORK else 1.0 / max(1e-9, 1.0 - self.share)


def stalls(times_s: Mapping[str, Sequence[float]], cut: float = 1.0) -> list[Stall]:
    """Return the stalls between pairs of runs that were both measured.

    Args:
        times_s: Run → seconds of a subtask, by round.
        cut: Number of parts into which subtasks were cut.
    """
    found = []
    for name, (with_it, without) in _DIFFERENCES.items():
        if with_it in times_s and without in times_s:
            pairs = list(zip(times_s[with_it], times_s[without], strict=True))
            # Pairs of one round, which were measured within seconds of each other.
            added = [more - less for more, less in pairs]
            whole = [
                # The server's work is the same for a subtask of any size, so a cut subtask would exaggerate its
                # fraction.
                (cut if name == SERVER else 1.0) * less + extra
                for (_, less), extra in zip(pairs, added, strict=True)
            ]
            found.append(Stall(name, max(0.0, statistics.median(added)), tuple(map(_share, added, whole))))
    return found


def network_stall(away_s: float, on_host_s: float) -> Stall:
    """Return the network stall of a subtask, as a fraction of its time on the host.

    Args:
        away_s: Seconds for which a slot of the host waits for its transfers.
        on_host_s: Seconds that it occupies the host.
    """
    return Stall(NETWORK, away_s, (_share(away_s, on_host_s),))


def greatest(found: Sequence[Stall]) -> Stall | None:
    """Return the stall whose removal would make the job fastest, or None if none is worth mentioning."""
    return max((stall for stall in found if stall.is_worth_a_word), key=lambda stall: stall.gain, default=None)


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
