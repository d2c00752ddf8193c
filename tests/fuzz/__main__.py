"""`python -m fuzz --runs N`: give generated cases to every target; exit 1 if any broke one."""

import argparse
import random
import sys
import traceback
from collections.abc import Sequence

from fuzz import engine
from fuzz.targets import NAMES, load


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases that the arguments ask for."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="cases for each target")
    parser.add_argument("--target", choices=NAMES, action="append", help="only this one")
    parser.add_argument("--seed", type=int, help="repeat a run")
    parser.add_argument("--case", help="play one case, in hexadecimal, as a run prints it")
    parser.add_argument(
        "--atheris", action="store_true", help="be guided by atheris, which has to be installed"
    )
    given = parser.parse_args(arguments)
    names = given.target or list(NAMES)
    if given.case is not None:
        for name in names:
            load(name)(bytes.fromhex(given.case))
        return 0
    seed = random.randrange(2**32) if given.seed is None else given.seed
    if given.atheris:
        return _guided(names, given.runs, seed)
    return max(_plain(name, given.runs, seed) for name in names)


def _plain(name: str, runs: int, seed: int) -> int:
    check = load(name)
    result = engine.run_plain(check, runs, seed)
    for broken in result.broken:
        data = engine.smaller(check, broken.data)
        print(f"{name}: python -m fuzz --target {name} --case {data.hex()}", file=sys.stderr)
        traceback.print_exception(broken.error, file=sys.stderr)
    print(
        f"{name}: {result.runs} cases, {result.taken} taken, {len(result.broken)} broke it,"
        f" {result.took_s:.1f} s (seed {seed})"
    )
    return 1 if result.broken else 0


def _guided(names: Sequence[str], runs: int, seed: int) -> int:
    if len(names) != 1:
        print("atheris works at one target: name it with --target", file=sys.stderr)
        return 2
    try:
        import atheris
    except ImportError:
        print("atheris is not installed: leave --atheris out, or install it", file=sys.stderr)
        return 2
    with atheris.instrument_imports():
        check = load(names[0])
    engine.run_guided(atheris, check, runs, seed)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
