"""Adapters of frameworks that are not installed: they are imported, and name the extra."""

import subprocess
import sys
import textwrap

import pytest

NEEDS = {
    "pydantic_ai": ("pydantic_ai", "StenoConversationStore", "pydantic-ai"),
}
"""An adapter: the package of its framework, its class, and the extra."""


@pytest.mark.parametrize("adapter", NEEDS)
def test_an_adapter_without_its_framework_names_the_extra(adapter: str) -> None:
    package, name, extra = NEEDS[adapter]
    program = f"""
        import sys
        sys.modules[{package!r}] = None
        from steno.adapters.{adapter} import {name}
        print("imported")
        {name}(None)
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.stdout == "imported\n"
    assert f"pip install 'stenod[{extra}]'" in ran.stderr
