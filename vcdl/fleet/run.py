"""Run the control loop of `vcdl fleet run`, which makes passes until a signal or until the fleet is gone.

The loop keeps nothing in memory that it needs: if it is killed, another one continues. Without any loop the instances
work until their leases are over, and then drain.
"""

import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from vcdl.errors import ExitCode, FleetError, FleetUnavailable, VcdlError
from vcdl.errors.backoff import Attempts, Backoff
from vcdl.files.children import python_command
from vcdl.fleet.controller import Controller
from vcdl.fleet.reconciler import Observation
from vcdl.fleet.settings import FleetSettings
from vcdl.fleet.state import FleetGoal, FleetState

FIRST_WAIT_S = 5.0
"""Seconds before the first retry of a failed pass, so that a short failure of the cloud's API delays it little."""
LONGEST_WAIT_S = 600.0
"""Most seconds between retries; the wait is doubled each time up to this limit, and reset after a success."""
_AFTER_A_BUG_S = 60.0
_NEXT_POOL_S = 1.0
_MAX_PASSES = 20
"""Most passes of `up` and `scale`: one pool after the other may have no capacity, and a pass for each is enough."""


def up(state: FleetState) -> FleetState:
    """Return the state that `vcdl fleet up` and `run` store: the goal is UP, and pools have no cooldowns.

    The target of an earlier `scale` is kept.
    """
    return replace(state, goal=FleetGoal.UP, budget_spent=False, cooldowns=())


def drain(state: FleetState) -> FleetState:
    """Return the state that `vcdl fleet drain` stores; a fleet that is down stays down."""
    return state if state.goal is FleetGoal.DOWN else replace(state, goal=FleetGoal.DRAINED)


def scale_to(target: int | None) -> Callable[[FleetState], FleetState]:
    """Return the function that changes the state as `vcdl fleet scale` does; None restores the fleet file's target."""
    return lambda state: replace(state, target=target)


class ControlLoop:
    """Makes passes that keep a fleet at its target, until it is taken down, has drained, or `ending` is set."""

    def __init__(
        self, controller: Controller, every_s: float, log: Callable[[str], None], ending: threading.Event
    ) -> None:
        """Prepare the control loop.

        Args:
            controller: Makes the passes.
            every_s: Seconds between two passes.
            log: Receives each line of the log.
            ending: Ends the loop when it is set, for example by a signal handler.
        """
        self._controller = controller
        self._every_s = every_s
        self._log = log
        self._ending = ending
        self._attempts = Attempts(Backoff(FIRST_WAIT_S, LONGEST_WAIT_S))
        self._logged: tuple[str, ...] = ()

    def run(self) -> ExitCode:
        """Make passes until the fleet is gone or `ending` is set, and return the exit code.

        Once the fleet is gone, this removes what else still costs. After `ending` instances continue, but lost ones are
        not replaced.
        """
        while not self._ending.is_set():
            is_over, wait_s = self.run_once()
            if is_over:
                return self._take_down()
            self._ending.wait(wait_s)
        self._log("ended; the instances continue, and lost ones are not replaced until `vcdl fleet run`")
        return ExitCode.OK

    def run_once(self) -> tuple[bool, float]:
        """Make one pass, and log its lines or its error.

        Returns:
            Whether the fleet is gone, and the seconds until the next pass, which also retries a failed one.
        """
        try:
            done = self._controller.reconcile_once()
        except VcdlError as error:
            wait_s = self._attempts.backoff.next_wait_s()
            # An error that the user has to fix is not retried more often than a normal pass.
            wait_s = wait_s if isinstance(error, FleetUnavailable) else max(wait_s, self._every_s)
            self._log(self._attempts.record_failure(error, wait_s))
            self._alert_blind(error)
        except Exception as error:  # a fleet without control is worse than a bug in the log
            self._log(self._attempts.record_failure(f"{type(error).__name__}: {error}: a bug in vcdl", _AFTER_A_BUG_S))
            self._alert_blind(error)
        else:
            lines = done.lines()
            for line in lines:
                if line not in self._logged:  # a lasting problem is logged once
                    self._log(line)
            self._logged = lines
            self._attempts.record_success()
            return done.is_over, _NEXT_POOL_S if done.may_get_more else self._every_s
        return False, self._attempts.wait_s

    def _alert_blind(self, error: Exception) -> None:
        """Send an alert if passes have failed for so long that leases will run out; log if that fails, too."""
        try:
            for line in self._controller.alert_blind(str(error)):
                self._log(line)
        except VcdlError as unreadable:
            self._log(str(unreadable))

    def _take_down(self) -> ExitCode:
        """Remove resources that still cost although no instance is left, such as a disk, and return the exit code."""
        try:
            left = self._controller.take_down(self._log)
        except VcdlError as error:
            self._log(
                f"the instances are gone, but other resources could not be removed: {error}; `vcdl fleet down` tries "
                "again"
            )
            return error.exit_code
        if left:
            self._log(f"left over: {', '.join(left)}; `vcdl fleet down` tries again")
            return ExitCode.FLEET
        self._log("the fleet is gone, and nothing is left")
        return ExitCode.OK


def reach_target(controller: Controller, log: Callable[[str], None]) -> Observation:
    """Make passes, without waiting in between, until the target is reached or no pool has more capacity now.

    Args:
        controller: Makes the passes.
        log: Receives the lines of each pass.

    Returns:
        The state of the fleet afterwards.

    Raises:
        VcdlError: A pass failed.
    """
    for _ in range(_MAX_PASSES):
        done = controller.reconcile_once()
        for line in done.lines():
            log(line)
        # Each pass asks the pools that have not refused yet, until one gives capacity or all have a cooldown.
        if not done.may_get_more:
            break
    return controller.observe()


UNIT = """\
# A user's unit: put it into ~/.config/systemd/user/vcdl-{name}.service, then
#   sudo loginctl enable-linger $USER && systemctl --user enable vcdl-{name}
# and after each `vcdl fleet up`
#   systemctl --user restart vcdl-{name}
[Unit]
Description=Keeps the fleet {name} of VCDL

[Service]
WorkingDirectory={folder}
{environment}ExecStart={command}
Restart=on-failure
RestartSec=60

[Install]
WantedBy=default.target
"""
_PASSED_ON = ("AWS_PROFILE", "GOOGLE_APPLICATION_CREDENTIALS")
"""Environment variables that name the place of credentials but are not credentials."""


def unit(settings: FleetSettings, file: Path, overrides: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the text of a systemd unit that keeps the control loop running, unless the fleet was taken down.

    Args:
        settings: The fleet file.
        file: Its path.
        overrides: The `--set` options, which the unit's command gets, too.
        environment: Environment variables. The unit contains those that name the place of credentials.

    Raises:
        FleetError: The fleet file expects the account key in the environment, which a unit does not have.
    """
    if settings.project.account_key_env is not None:
        raise FleetError("a unit does not have your environment: use `project > account_key_file` in the fleet file")
    command = python_command("vcdl", "fleet", "run", "--resume", file.resolve())
    for setting in overrides:
        command += ["--set", setting]
    passed_on = [f'Environment="{name}={environment[name]}"\n' for name in _PASSED_ON if name in environment]
    return UNIT.format(
        name=settings.name, folder=file.resolve().parent, environment="".join(passed_on), command=shlex.join(command)
    )
