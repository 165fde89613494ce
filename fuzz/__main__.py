"""Fuzz everything that reads bytes of others: `python -m fuzz`, or `make fuzz`."""

import argparse
import sys
import traceback
from pathlib import Path

from fuzz.runner import Result, run_target
from fuzz.targets.all import TARGETS

CRASHES = Path(__file__).parent / "crashes"


def main() -> int:
    """Run targets; returns 1 when any crashed."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=(__doc__ or "").strip())
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"default: all of {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=float, default=600.0, help="for all targets together (default: %(default)g)")
    parser.add_argument("--count", type=int, help="so many inputs for each target, instead of a time")
    parser.add_argument("--seed", type=int, default=1, help="the same seed tries the same inputs (default: 1)")
    parser.add_argument("--crashes", type=Path, default=CRASHES, help="folder of the inputs that crash")
    parser.add_argument("--again", type=Path, metavar="FILE", help="try one kept input on the target")
    options = parser.parse_args()
    chosen = options.targets or list(TARGETS)
    if unknown := [name for name in chosen if name not in TARGETS]:
        parser.error(f"there is no target {unknown[0]}")
    if options.again is not None:
        return _again(chosen, options.again)
    print(f"seed {options.seed}", flush=True)
    results = []
    for name in chosen:
        seconds = None if options.count else options.seconds / len(chosen)
        results.append(
            run_target(TARGETS[name], seconds=seconds, count=options.count, seed=options.seed, crashes=options.crashes)
        )
        _show(results[-1])
    crashes = sum(len(result.crashes) for result in results)
    print(f"{sum(result.inputs for result in results)} inputs, {crashes} places that crash")
    return 1 if crashes else 0


def _show(result: Result) -> None:
    refused = ", ".join(f"{number} {name}" for name, number in sorted(result.refused.items())) or "none"
    print(
        f"{result.target:<20} {result.inputs:>9} inputs in {result.seconds:6.1f} s: {result.taken} taken, "
        f"refused: {refused}; the slowest took {1000 * result.slowest_s:.0f} ms",
        flush=True,
    )


def _again(chosen: list[str], path: Path) -> int:
    """Try one input, with the traceback of what it raises."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        target = TARGETS[chosen[0]](Path(folder))
        target.seeds()
        try:
            target.take(path.read_bytes())
        except target.refuses as error:
            print(f"refused: {error}")
            return 0
        except Exception:
            traceback.print_exc()
            return 1
    print("taken")
    return 0


if __name__ == "__main__":
    sys.exit(main())
