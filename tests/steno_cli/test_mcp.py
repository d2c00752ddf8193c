"""The command line of `steno mcp`; the server is tested with the official client."""

import subprocess
import sys
from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from steno_cli.commands.mcp import _host_and_port
from steno_protocol.installation import extra_command
from support.command import Steno


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9000", ("127.0.0.1", 9000)),
        ("localhost", ("localhost", 8765)),
        ("9000", ("127.0.0.1", 9000)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("[::1]:9000", ("::1", 9000)),
    ],
)
def test_http_takes_a_host_a_port_or_both(text: str, address: tuple[str, int]) -> None:
    assert _host_and_port(text) == address


@pytest.mark.parametrize(
    "text", ["", ":9000", "a:b", "a:70000", "http://a:1", "a:1/mcp", "u@a:1", "[::1", "a?b"]
)
def test_http_refuses_what_is_no_address(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        _host_and_port(text)


def test_without_the_extra_the_error_says_what_to_install(root: Path) -> None:
    for words in (["mcp"], ["mcp", "--http"]):
        code = (
            "import sys; sys.modules['mcp'] = sys.modules['mcp_types'] = None\n"
            f"from steno_cli.entry import main; sys.exit(main({words!r}))"
        )
        ran = subprocess.run(
            [sys.executable, "-c", code], env=Steno(root).environment,
            capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, timeout=60,
        )  # fmt: skip
        assert (ran.returncode, ran.stdout) == (1, "")
        assert f"install it with `{extra_command('mcp')}`" in ran.stderr


def test_a_closed_stdin_is_refused(root: Path) -> None:
    pytest.importorskip("mcp_types", reason="it comes with the extra `mcp`")
    steno = Steno(root)
    ran = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *steno.words("mcp")],
        env=steno.environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "stdin is closed" in ran.stderr


def test_a_token_file_without_http_is_wrong(root: Path) -> None:
    ran = Steno(root)("mcp", "--token-file", str(root / "token"))
    assert (ran.code, "--http" in ran.err) == (2, True)
    assert not (root / "token").exists()
