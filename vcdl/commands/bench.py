"""`vcdl bench`: the speed of this machine at VCDL's most frequent work."""

from typing import TYPE_CHECKING

import click

from vcdl.commands._options import json_option
from vcdl.errors import ExitCode

if TYPE_CHECKING:
    from vcdl.bench.store import StoreBench

PAPER_PARAMS = 4_972_746
"""Weights of the paper's model."""
ROUNDS = 9
_EXAMPLES = """\b
Examples:
  vcdl bench store
  vcdl bench store --params 300000000 --rounds 1
  vcdl bench store --json | jq '.targets[] | select(.is_met | not)'

`store` starts a Redis and a MariaDB of its own (redis-server and mariadbd must be installed) and ends them."""


def bench_store(params: int, rounds: int, as_json: bool) -> ExitCode:
    """Measure the weight stores and print a table. Raises StoreError."""
    from vcdl.bench.store import bench_store as measure

    bench = measure(params, rounds, lambda words: click.echo(words, err=True))
    if as_json:
        click.echo(bench.to_json())
    else:
        for line in lines_of(bench):
            click.echo(line)
    return ExitCode.OK


def lines_of(bench: "StoreBench") -> list[str]:
    """The table as lines."""
    from vcdl.bench.store import PAPER_RATIO, WAITING
    from vcdl.report.wording import grouped

    lines = [f"ms per update of {grouped(bench.params)} weights, median of {bench.rounds}", ""]
    lines += [f"{'':<22}{'waiting':>8}{'ms':>10}{'/ naive':>10}{'/ floor':>10}"]
    floor = bench.ms("memory floor", "", WAITING)
    for row in bench.rows:
        naive = bench.ms("naive", row.store)
        ratios = [f"{row.ms_per_update / by:.2f}" if by else "" for by in (naive, floor)]
        lines.append(
            f"{row.store + ' ' + row.case:<22}{row.waiting:>8}{row.ms_per_update:>10.1f}{ratios[0]:>10}{ratios[1]:>10}"
        )
    lines += ["", f"updates/s with {WAITING} waiting", ""]
    lines += [
        f"{name + (' server' if name.endswith('1') else ' servers'):<28}{rate:>12.1f}"
        for name, rate in bench.updates_per_s.items()
    ]
    lines += ["", f"MySQL / Redis, the paper: {PAPER_RATIO}"]
    for case, waiting in (("naive", 1), ("strong", 1), ("strong", WAITING), ("eventual", 1)):
        mysql, redis = bench.ms(case, "mysql", waiting), bench.ms(case, "redis", waiting)
        if mysql and redis:
            lines.append(f"MySQL / Redis, {case}, {waiting} waiting: {mysql / redis:.1f}")
    of_others = "" if bench.params == PAPER_PARAMS else f", set for {grouped(PAPER_PARAMS)} weights"
    lines += ["", f"targets{of_others}", ""]
    for target in bench.targets:
        verdict = "met    " if target.is_met else "MISSED "
        if of_others:
            verdict = ""  # the targets are not for them
        lines.append(f"{verdict}{target.what}: {target.ratio:.2f} (≤ {target.limit:.2f})")
    return lines


@click.command("bench", epilog=_EXAMPLES)
@click.argument("what", type=click.Choice(["store"]))
@click.option("--params", default=PAPER_PARAMS, show_default=True, type=click.IntRange(1), help="Weights of the model.")
@click.option("--rounds", default=ROUNDS, show_default=True, type=click.IntRange(1), help="Of which the median counts.")
@json_option
def command(what: str, params: int, rounds: int, as_json: bool) -> ExitCode:
    """Measure the weight stores."""
    return bench_store(params, rounds, as_json)
