"""A llama.cpp server process on loopback: `python -m llm.llama_server MODEL`.

A process, so that a fault in native code fails one test with its exit code and not the whole run.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def llama_server(model: Path) -> Iterator[str]:
    """The base URL of a server that has loaded `model`; it ends with the context."""
    tests = Path(__file__).parents[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "llm.llama_server", str(model)],
        cwd=tests,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            assert url, f"llama.cpp could not load {model}: exit code {process.wait()}"
            yield f"{url}/v1"
        finally:
            process.stdin.close()


def serve(model: str) -> None:
    """Load a model, print where it can be asked, and serve until stdin ends."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_parallel = 2
    params.warmup = False
    params.ui = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve(sys.argv[1])
