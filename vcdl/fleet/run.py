"""The loop of `vcdl fleet run`: a pass, a pause, again; nothing but being told to ends it while there is a fleet to keep."""

import threading
from collections.abc import Callable
from dataclasses import replace

from vcdl.errors import ExitCode, FleetUnavailable, VcdlError
from vcdl.fleet.keeper import Keeper, Look, Pass
from vcdl.fleet.state import FleetState, Goal
from vcdl.patience import Patience

FIRST_WAIT_S = 5.0
LONGEST_WAIT_S = 600.0
"""Between tries while the cloud is away, throttles or refuses: doubled each time, and short again once it has answered."""
_AFTER_A_BUG_S = 60.0
_NEXT_POOL_S = 1.0


def up(state: FleetState) -> FleetState:
    """The goal of `up` and `run`; an earlier `scale` still counts, an earlier refusal does not."""
    return replace(state, goal=Goal.UP, budget_spent=False, held_until_s=0.0)


def drained(state: FleetState) -> FleetState:
    """The goal of `drain`; what is down stays down."""
    return state if state.goal is Goal.DOWN else replace(state, goal=Goal.DRAINED)


def scaled(target: int | None) -> Callable[[FleetState], FleetState]:
    """The target of `scale`; None: as the fleet file says."""
    return lambda state: replace(state, target=target)


class Loop:
    """Keeps a fleet until it is taken down, has drained, or `ending` is set."""

    def __init__(
        self, keeper: Keeper, look_every_s: float, say: Callable[[str], None], ending: threading.Event
    ) -> None:
        """`say`: takes a line for the log."""
        self._keeper = keeper
        self._look_every_s = look_every_s
        self._say = say
        self._ending = ending
        self._patience = Patience(FIRST_WAIT_S, LONGEST_WAIT_S)
        self._said: tuple[str, ...] = ()

    def run(self) -> ExitCode:
        """Returns once the fleet is gone, or `ending` is set: instances then go on without a keeper."""
        while not self._ending.is_set():
            done, wait_s = self.once()
            if done:
                return self._take_down()
            self._ending.wait(wait_s)
        self._say("ended; the instances go on, and nobody replaces those that are lost until `vcdl fleet run`")
        return ExitCode.OK

    def once(self) -> tuple[bool, float]:
        """One pass, whatever it raises: whether the fleet is gone, and the seconds until the next."""
        try:
            made = self._keeper.pass_once()
        except FleetUnavailable as away:
            return False, self._waits(str(away), self._patience.next_wait_s())
        except VcdlError as error:
            return False, self._waits(str(error), max(self._patience.next_wait_s(), self._look_every_s))
        except Exception as error:  # a fleet that nobody keeps is worse than a bug in the log
            return False, self._waits(f"{type(error).__name__}: {error}: a mistake in vcdl", _AFTER_A_BUG_S)
        self._tell(made)
        self._patience.reset()
        return made.is_over, _NEXT_POOL_S if made.may_get_more else self._look_every_s

    def _waits(self, why: str, wait_s: float) -> float:
        self._say(f"{why}; trying again in {wait_s:g} s")
        return wait_s

    def _tell(self, made: Pass) -> None:
        lines = told(made)
        for line in lines:
            if line not in self._said:  # what lasts is said once
                self._say(line)
        self._said = lines

    def _take_down(self) -> ExitCode:
        """What is over may have left something that costs: a template, a disk."""
        try:
            taken = self._keeper.take_down()
        except VcdlError as error:
            self._say(f"the instances are gone, but not all could be swept: {error}; `vcdl fleet down` tries again")
            return error.exit_code
        for trouble in taken.trouble:
            self._say(trouble)
        left = ", ".join(taken.left)
        self._say(
            f"left over: {left}; `vcdl fleet down` tries again" if left else "the fleet is gone, and nothing is left"
        )
        return ExitCode.FLEET if left else ExitCode.OK


_MOST_PASSES = 20
"""Of `up` and `scale`: pools rest one after the other, and a pass for each is enough."""


def bring_about(keeper: Keeper, say: Callable[[str], None]) -> Look:
    """Passes until the target is reached, or nothing more is to be had now. Raises what a pass raises."""
    for _ in range(_MOST_PASSES):
        made = keeper.pass_once()
        for line in told(made):
            say(line)
        if not made.may_get_more:
            break
    return keeper.look()


def told(made: Pass) -> tuple[str, ...]:
    """What a pass did, and what ails it, a line each."""
    lines = list(made.look.warnings) + list(made.plan.warnings)
    if made.plan.terminate:
        lines.append(f"terminated: {', '.join(made.plan.terminate)}")
    if made.plan.drain:
        lines.append(f"draining: {', '.join(made.plan.drain)}")
    if made.launched.instances:
        lines.append("launched: " + ", ".join(f"{i.id} ({i.pool})" for i in made.launched.instances))
    lines += [f"{p.pool or 'launch'}: {p.kind.value}: {p.message}" for p in made.launched.problems]
    return tuple(lines)
