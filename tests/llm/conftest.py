"""Fixtures with a real llama.cpp server and a tiny model."""

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def llama_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of a llama.cpp server that has loaded the tiny model."""
    why = "a real model server needs the extra: pip install -e '.[test,llama]'"
    pytest.importorskip("xllamacpp", reason=why)
    pytest.importorskip("gguf", reason=why)
    from llm.llama_server import llama_server
    from llm.tiny_model import write_tiny_model

    model: Path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_model(model)
    with llama_server(model) as url:
        yield url
