"""Format a plan as text and as JSON: the recommendation, the Pareto front, and the unknowns."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vcdl.planner.forecast import ChoiceForecast, Recommendation
from vcdl.planner.spot_market import HELD, OutcomeRange
from vcdl.report.plot import new_figure, save
from vcdl.report.wording import align_columns, duration, group_digits


def plan_lines(
    chosen: Recommendation,
    forecasts: Sequence[ChoiceForecast],
    unknown: Sequence[str],
    held: str,
    deadline_s: float | None = None,
) -> list[str]:
    """Return what `vcdl plan` prints: the recommendation, and a table of all choices.

    Args:
        chosen: The recommendation.
        forecasts: The forecasts of all choices.
        unknown: What the forecast does not know, a clause for each.
        held: A text of deadline and budget, for the case that no choice stays within them.
        deadline_s: Longest time that the job may take, in seconds; None if only a budget is given.
    """
    if chosen.chosen is not None:
        lines = [f"{chosen.chosen.choice.name}: {chosen.why}, {_words(chosen.chosen)}."]
    else:
        # The front goes from fast to cheap: the nearest to a deadline is the fastest, to a budget the cheapest.
        nearest = chosen.front[-1 if deadline_s is None else 0] if chosen.front else None
        what = f"; the nearest is {nearest.choice.name}, {_words(nearest)}" if nearest is not None else ""
        lines = [f"no choice stays within {held}{what}."]
    rows = [
        ["", "choice", "time", f"{HELD:.0%} range", "money", f"{HELD:.0%} range", "in time", "limited by", "staleness"]
    ]
    for one in sorted(forecasts, key=lambda it: it.wall_s.median):
        mark = "*" if one is chosen.chosen else "·" if one in chosen.front else ""
        time, money = time_words(one.wall_s.median), usd(one.usd.median)
        ranges = between(one.wall_s, duration), between(one.usd, usd)
        row = [mark, one.choice.name, time, ranges[0], money, ranges[1], f"{one.kept:.0%}", one.speed.limit]
        rows.append([*row, f"{one.speed.staleness:.0f}"])
    lines += ["", *align_columns(rows, left=range(len(rows[0]))), ""]
    lines.append("* recommended, · on the front: nothing is both faster and cheaper")
    return [*lines, *(f"not known: {one}" for one in unknown)]


def draw_plan(chosen: Recommendation, forecasts: Sequence[ChoiceForecast], output: Path) -> None:
    """Write a picture of cost against time, with the ranges of the best choices. Raises RunFolderError."""
    figure = new_figure(8, 5)
    axes = figure.add_subplot()
    ends = [one for one in forecasts if one.wall_s.high < float("inf")]
    front = [one for one in chosen.front if one in ends]
    named = [*front, *([chosen.chosen] if chosen.chosen is not None and chosen.chosen not in front else [])]
    # Draw all choices in grey, so that one sees that the front is the edge of all.
    axes.plot([one.wall_s.median / 3600 for one in ends], [one.usd.median for one in ends], "o", color="0.7")
    axes.plot([one.wall_s.median / 3600 for one in front], [one.usd.median for one in front], color="C0")
    for number, one in enumerate(named):
        hours, money = ([value.low, value.median, value.high] for value in (one.wall_s, one.usd))
        at, colour = (hours[1] / 3600, money[1]), "C3" if one is chosen.chosen else "C0"
        axes.plot([hours[0] / 3600, hours[2] / 3600], [money[1]] * 2, color=colour, linewidth=1)
        axes.plot([at[0]] * 2, money[::2], color=colour, linewidth=1)
        axes.plot(*at, "o", color=colour, markersize=5)
        above = 8 + 14 * (len(named) - 1 - number)  # choices on the front lie close together
        axes.annotate(one.choice.name, at, xytext=(24, above), textcoords="offset points", color=colour, fontsize=8)
    axes.set_xlabel("hours")
    axes.set_ylabel("US dollars")
    axes.set_ylim(bottom=0)
    axes.set_title(f"time and money, with the range of {HELD:.0%}; red: recommended", fontsize=10)
    axes.grid(alpha=0.3)
    save(figure, output)


def plan_json(chosen: Recommendation, forecasts: Sequence[ChoiceForecast], unknown: Sequence[str]) -> dict[str, Any]:
    """Return the object that `vcdl plan --json` prints and `vcdl fleet up --from-plan` reads."""
    return {
        "recommended": None if chosen.chosen is None else chosen.chosen.choice.name,
        "why": chosen.why,
        "front": [one.choice.name for one in chosen.front],
        "forecasts": [_figures(one) for one in forecasts],
        "not_known": list(unknown),
    }


def _figures(one: ChoiceForecast) -> dict[str, Any]:
    # JSON has no infinity.
    finite = one.wall_s.high < float("inf")
    return {
        "choice": one.choice.name,
        "units": one.choice.units,
        "on_demand_units": one.choice.on_demand_units,
        "shards": one.choice.shards,
        "wall_s": vars(one.wall_s) if finite else None,
        "usd": vars(one.usd) if one.usd.high < float("inf") else None,
        "kept": one.kept,
        "subtasks_per_s": one.speed.subtasks_per_s,
        "samples_per_s": one.speed.samples_per_s,
        "limit": one.speed.limit,
        "staleness": one.speed.staleness,
    }


def _words(one: ChoiceForecast) -> str:
    money = f" for {usd(one.usd.median)} ({between(one.usd, usd)})" if one.usd.high > 0 else ""
    speed = f"{group_digits(one.speed.samples_per_s)} samples/s"
    return f"{time_words(one.wall_s.median)} ({between(one.wall_s, duration)}){money}, {speed}"


def between(values: OutcomeRange, shown: Callable[[float], str]) -> str:
    """Return a range as text, such as `3 min to 5 min`; `shown` formats each end, and infinity is `never`."""
    high = shown(values.high) if values.high < float("inf") else "never"
    return f"{shown(values.low)} to {high}" if values.low < float("inf") else "never"


def time_words(seconds: float) -> str:
    """Return a time as text: `3 min 05 s`, or `never`."""
    return duration(seconds) if seconds < float("inf") else "never"


def usd(amount: float) -> str:
    """Return an amount as text: `1.67 $`."""
    return f"{amount:.2f} $" if amount < float("inf") else "–"
