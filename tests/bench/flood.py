"""A process that appends at full speed until it is killed.

python -m bench.flood ROOT SESSION context|wire
"""

import sys
from pathlib import Path

import anyio

import steno
from bench.lines import message

IN_FLIGHT = 32


async def _flood(root: Path, name: str, file: str) -> None:
    async with steno.connect(root, spawn=False) as client:
        session = await client.open(name, follow=False)
        line = message(1)
        payload = {"text": "x" * 500}

        async def append() -> None:
            while True:
                if file == "wire":
                    await session.append_wire("ContentPart", payload)
                else:
                    await session.append_message(line)

        async with anyio.create_task_group() as tasks:
            for _ in range(IN_FLIGHT):
                tasks.start_soon(append)
            print("flooding", flush=True)


if __name__ == "__main__":
    anyio.run(_flood, Path(sys.argv[1]), sys.argv[2], sys.argv[3])
