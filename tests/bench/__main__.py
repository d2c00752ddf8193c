"""The benchmark: steno against its alternatives in one run, as ratios.

    PYTHONPATH=tests python -m bench [PART ...] [--rounds N] [--json FILE]
    PYTHONPATH=tests python -m bench stores --help      the conformance of stores; no figures

Progress goes to stderr, the tables to stdout. Every figure is a median over rounds in which the
candidates take turns; beside it stand the smallest and the largest. Figures of different runs, or
of different machines, are not to be compared; the ratios are.
"""

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from pathlib import Path

# `python tests/bench` knows only this folder.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import (
    adapters,
    appends,
    cluster,
    followers,
    idle,
    neighbours,
    opens,
    reads,
    reverts,
    searching,
    sizes,
    starts,
    stores,
    viewers,
)
from bench.measuring import Comparison, table_of

PARTS = {
    "appends": appends.measure,
    "reverts": reverts.measure,
    "reads": reads.measure,
    "followers": followers.measure,
    "neighbours": neighbours.measure,
    "opens": opens.measure,
    "starts": starts.measure,
    "idle": idle.measure,
    "sizes": sizes.measure,
    "viewers": viewers.measure,
    "search": searching.measure,
    "adapters": adapters.measure,
    "cluster": cluster.measure,
}


def main() -> None:
    """Run the command."""
    if sys.argv[1:2] == ["stores"]:
        stores.main(sys.argv[2:])
        return
    options = _parser().parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(part for part in sys.path if part)
    folder = Path(tempfile.mkdtemp(prefix="steno-bench-", dir=options.folder))
    found: list[Comparison] = []
    try:
        for part in options.parts or PARTS:
            measured = PARTS[part](folder, options.rounds, _show_progress)
            found += measured
            for comparison in measured:
                print(table_of(comparison), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.json is not None:
        options.json.write_text(json.dumps(_report(options.rounds, found), indent=1) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description=(__doc__ or "").partition("\n")[0])
    # Not by choices: argparse would look for the empty list of all among them.
    parser.add_argument(
        "parts", nargs="*", type=_part, metavar="PART", help=f"{', '.join(PARTS)}; default: all"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds a comparison (default: 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every value there")
    parser.add_argument(
        "--folder", metavar="DIR", help="on the disk to be measured (default: the temporary one)"
    )
    return parser


def _part(name: str) -> str:
    if name not in PARTS:
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(PARTS)}")
    return name


def _report(rounds: int, found: list[Comparison]) -> dict[str, object]:
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "rounds": rounds,
        "comparisons": [comparison.as_json() for comparison in found],
    }


def _show_progress(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
