"""`python -m sim.run --seeds N`: play many seeds and print those that fail; exit 1 if any did."""

import argparse
import sys
import time
from collections.abc import Sequence

from sim.play import play
from sim.worlds import WORLDS


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the seeds that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m sim.run", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many to play")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--world", choices=WORLDS, default="context", help="what takes part")
    given = parser.parse_args(arguments)
    started = time.monotonic()
    failed: list[int] = []
    for seed in range(given.first, given.first + given.seeds):
        try:
            play(given.world, seed)
        except AssertionError as error:
            failed.append(seed)
            print(error, file=sys.stderr)
    took_s = time.monotonic() - started
    print(f"{given.seeds - len(failed)} passed, {len(failed)} failed, {took_s:.1f} s")
    if failed:
        print(f"failing seeds: {failed}; add them to sim/seeds.txt once they are understood")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
