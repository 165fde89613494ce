"""Hold the cost of submitted jobs to the budgets of their submitters' tokens.

`vcdl plan` forecasts a job's cost with the service's fleets when the job is submitted. The sum of these forecasts must
stay within the token's budget.
"""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from vcdl.errors import JobError
from vcdl.report.planned import usd
from vcdl.web.accounts import Accounts
from vcdl.web.served_commands import COMMANDS, CommandRequest, CommandRunner, Options
from vcdl.web.sessions import Caller


class Budgets:
    """Refuses jobs whose forecast cost exceeds what is left of the budget of their submitter's token.

    Without fleets nothing costs money, so nothing is refused.
    """

    def __init__(self, accounts: Accounts, commands: CommandRunner, fleets: Sequence[Path]) -> None:
        """Prepare the budgets.

        Args:
            accounts: The service's accounts.
            commands: Runs `vcdl plan`.
            fleets: The fleets' files.
        """
        self._accounts = accounts
        self._commands = commands
        self._fleets = [file.stem for file in fleets]

    def bounds(self, caller: Caller) -> bool:
        """Return whether a budget limits the caller's jobs: the token has one, and the service has fleets."""
        return caller.bounds.budget_usd is not None and bool(self._fleets)

    def planned_usd(self, caller: Caller, folder: Path) -> float:
        """Forecast a job's cost on the most expensive fleet, in dollars, and check that the budget covers it.

        This runs `vcdl plan` for each fleet, which takes seconds to minutes.

        Args:
            caller: The submitter.
            folder: The folder with the job file.

        Returns:
            The dollars, or 0 if the caller has no budget or the service no fleets.

        Raises:
            JobError: The forecast exceeds what is left of the budget, or the cost cannot be forecast.
        """
        if caller.bounds.budget_usd is None or not self._fleets:
            return 0.0
        # With several fleets it is not known which one will train the job, so the budget must cover the most expensive
        # forecast.
        planned = max(self._forecast(folder, fleet) for fleet in self._fleets)
        left = max(0.0, caller.bounds.budget_usd - self._accounts.planned_usd(caller.name))
        if planned > left:
            raise JobError(
                f"this job would cost about {usd(planned)}, and {caller.name} has {usd(left)} left of "
                f"{usd(caller.bounds.budget_usd)}: give it fewer epochs, or ask the operator for a token with a "
                "larger budget"
            )
        return planned

    def _forecast(self, folder: Path, fleet: str) -> float:
        options: Options = {"--json": True, "--fleet": fleet}
        done = self._commands.run(CommandRequest("plan", [], options, new=nullcontext(folder)), COMMANDS["plan"])
        try:
            plan = json.loads(done.output)
            found = next(one for one in plan["forecasts"] if one["choice"] == plan["recommended"])
            return float(found["usd"]["median"])
        # A plan without a recommendation, or an error instead of JSON: such a job is refused, since its cost is
        # unknown.
        except (ValueError, KeyError, TypeError, StopIteration):
            why = done.errors.strip().rpartition("error: ")[2] or "no choice of the plan finishes the job"
            raise JobError(f"the cost of this job on the fleet {fleet} cannot be forecast: {why}") from None
