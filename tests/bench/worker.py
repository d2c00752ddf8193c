"""A client process that reads tasks, appends and reports its times.

python -m bench.worker        tasks on stdin, outcomes on stdout
"""

import gc
import sys
import time

import msgspec

from bench.crew import Outcome, Task
from bench.lanes import LANES


def main() -> None:
    """Work until stdin ends."""
    while line := sys.stdin.readline():
        print(msgspec.json.encode(_work(msgspec.json.decode(line, type=Task))).decode(), flush=True)


def _work(task: Task) -> Outcome:
    began_s = 0.0

    def begin() -> None:
        nonlocal began_s
        gc.collect()
        print("ready", flush=True)
        sys.stdin.readline()
        began_s = time.monotonic()

    latencies = LANES[task.lane](task).run(begin)
    return Outcome(began_s=began_s, ended_s=time.monotonic(), latencies_us=latencies)


if __name__ == "__main__":
    main()
