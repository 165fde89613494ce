"""A plan as text and as JSON: the recommendation first, then the front, then what is not known."""

from collections.abc import Sequence
from typing import Any

from vcdl.planner.forecast import ChoiceForecast, Recommendation
from vcdl.planner.spot_market import HELD, OutcomeRange
from vcdl.report.wording import duration, grouped


def plan_lines(
    chosen: Recommendation, forecasts: Sequence[ChoiceForecast], unknown: Sequence[str], held: str
) -> list[str]:
    """The plan; `held`: what nothing keeps, where nothing is recommended."""
    if chosen.chosen is not None:
        lines = [f"{chosen.chosen.choice.name}: {chosen.why}, {_words(chosen.chosen)}."]
    else:
        nearest = chosen.front[-1] if chosen.front else None
        what = f"; the nearest is {nearest.choice.name}, {_words(nearest)}" if nearest is not None else ""
        lines = [f"nothing here keeps {held}{what}."]
    rows = [
        ["", "choice", "time", f"{HELD:.0%} range", "money", f"{HELD:.0%} range", "in time", "limited by", "staleness"]
    ]
    for one in sorted(forecasts, key=lambda it: it.wall_s.median):
        mark = "*" if one is chosen.chosen else "·" if one in chosen.front else ""
        rows.append(
            [
                mark,
                one.choice.name,
                duration(one.wall_s.median),
                _between(one.wall_s, duration),
                _usd(one.usd.median),
                _between(one.usd, _usd),
                f"{one.kept:.0%}",
                one.speed.limit,
                f"{one.speed.staleness:.0f}",
            ]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines += ["", *("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows), ""]
    lines.append("* recommended, · on the front: nothing is both faster and cheaper")
    return [*lines, *(f"not known: {one}" for one in unknown)]


def plan_json(chosen: Recommendation, forecasts: Sequence[ChoiceForecast], unknown: Sequence[str]) -> dict[str, Any]:
    """The plan, for programs and for `vcdl fleet up --from-plan`."""
    return {
        "recommended": None if chosen.chosen is None else chosen.chosen.choice.name,
        "why": chosen.why,
        "front": [one.choice.name for one in chosen.front],
        "forecasts": [_figures(one) for one in forecasts],
        "not_known": list(unknown),
    }


def _figures(one: ChoiceForecast) -> dict[str, Any]:
    finite = one.wall_s.high < float("inf")
    return {
        "choice": one.choice.name,
        "units": one.choice.units,
        "on_demand_units": one.choice.on_demand_units,
        "shards": one.choice.shards,
        "wall_s": vars(one.wall_s) if finite else None,
        "usd": vars(one.usd),
        "kept": one.kept,
        "subtasks_per_s": one.speed.subtasks_per_s,
        "samples_per_s": one.speed.samples_per_s,
        "limit": one.speed.limit,
        "staleness": one.speed.staleness,
    }


def _words(one: ChoiceForecast) -> str:
    money = f" for {_usd(one.usd.median)} ({_between(one.usd, _usd)})" if one.usd.high > 0 else ""
    speed = f"{grouped(one.speed.samples_per_s)} samples/s"
    return f"{duration(one.wall_s.median)} ({_between(one.wall_s, duration)}){money}, {speed}"


def _between(values: OutcomeRange, shown: Any) -> str:
    high = shown(values.high) if values.high < float("inf") else "never"
    return f"{shown(values.low)} to {high}" if values.low < float("inf") else "never"


def _usd(usd: float) -> str:
    return f"{usd:.2f} $" if usd < float("inf") else "–"
