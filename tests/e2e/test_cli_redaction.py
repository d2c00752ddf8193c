"""`steno redact`, and the masks of `steno export`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import steno as steno_client
from support.command import Steno

pytestmark = pytest.mark.served

KEY = "sk-proj-a1B2c3D4e5F6g7H8i9J0k1L2m3N4"
MASK = "[redacted: openai-key]"
WRITTEN = 6_000
"""Records of 10 kB of a session that is exported in less memory than it has bytes."""

MEMORY_MAX = 56 << 20
"""Private memory of the command; the pages of the session's file are not its own."""


@pytest.fixture
def steno(root: Path) -> Steno:
    steno = Steno(root)
    with steno_client.connect_sync(root, name="writer") as client:
        session = client.open("talk")
        session.describe(title=f"about {KEY}")
        session.append_message({"role": "user", "content": "hello"})
        session.append_message({"role": "assistant", "content": f"the key is {KEY}, is it?"})
        session.append_wire("Note", {"text": KEY}, durability="synced")
    return steno


def test_redact_names_place_pattern_and_a_masked_preview(steno: Steno) -> None:
    before = (steno.root / "sessions" / "talk" / "context.jsonl").read_bytes()
    ran = steno("redact", "tal")
    assert ran.code == 0
    assert ran.out.splitlines() == [
        f"talk  title  openai-key  about {MASK}",
        f"talk  0:1  openai-key  the key is {MASK}, is it?",
        f"talk  wire  0:1  openai-key  {MASK}",
    ]
    assert (steno.root / "sessions" / "talk" / "context.jsonl").read_bytes() == before
    found = [json.loads(line) for line in steno("--json", "redact", "talk").out.splitlines()]
    assert [(each["file"], each["at"]) for each in found] == [
        ("title", None),
        ("context", "0:1"),
        ("wire", "0:1"),
    ]
    assert KEY not in ran.out


def test_redact_searches_a_text_by_line(steno: Steno) -> None:
    block = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nAAAA\n-----END RSA PRIVATE KEY-----"
    text = f'one\n{block}\n{{"password":"correct-horse"}}\nAKIAIOSFODNN7EXAMPLE'
    ran = steno("redact", stdin=text)
    assert [line.split("  ")[1:3] for line in ran.out.splitlines()] == [
        ["2", "private-key"],
        ["6", "assigned-secret"],
        ["7", "aws-key-id"],
    ]
    none = steno("redact", stdin="nothing here\n")
    assert (none.code, none.out) == (4, "")


def test_redact_uses_and_lists_the_patterns_of_the_configuration(steno: Steno) -> None:
    (steno.root / "config.toml").write_text(
        "[redact]\nticket = 'T-(?P<secret>[0-9]+)'\nopenai-key = false\n"
    )
    assert "T-[redacted: ticket] now" in steno("redact", stdin=f"see T-12 now {KEY}").out
    listed = dict(line.split(maxsplit=1) for line in steno("redact", "--patterns").out.splitlines())
    assert listed["ticket"] == "config.toml"
    assert listed["openai-key"] == "built-in, off"
    assert listed["jwt"] == "built-in"


@pytest.mark.parametrize("entry", ["ticket = '(a'", "ticket = 'a(?=b)'", "tickets = true"])
def test_a_wrong_pattern_names_file_and_key(steno: Steno, entry: str) -> None:
    (steno.root / "config.toml").write_text(f"[redact]\n{entry}\n")
    for call in (("redact", "talk"), ("export", "talk")):
        ran = steno(*call)
        assert ran.code == 1
        assert f"config.toml: redact.{entry.split(maxsplit=1)[0]} is no " in ran.err
    assert steno("export", "talk", "--no-redact").code == 0


def test_an_own_pattern_without_its_engine_names_the_extra(steno: Steno) -> None:
    (steno.root / "config.toml").write_text("[redact]\nticket = 'T-[0-9]+'\n")
    code = (
        "import sys; sys.modules['re2'] = None\n"
        "from steno_cli.entry import main; sys.exit(main(['redact', 'talk']))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=steno.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert f"{sys.executable} -m pip install 'stenod[redact]'" in ran.stderr


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_what_is_sent_is_masked_unless_asked_otherwise(steno: Steno, form: str) -> None:
    ran = steno("export", "talk", "--format", form)
    assert MASK in ran.out
    assert KEY not in ran.out
    assert "secrets were masked in 1 line" in ran.err
    exact = steno("export", "talk", "--format", form, "--no-redact")
    assert KEY in exact.out
    assert MASK not in exact.out
    assert exact.err == ""


def test_what_is_restored_is_exact(steno: Steno, tmp_path: Path) -> None:
    assert KEY in steno("export", "talk", "--format", "json").out
    masked = steno("export", "talk", "--format", "json", "--redact")
    document = json.loads(masked.out)
    assert KEY not in masked.out
    assert document["records"][1]["record"]["content"] == f"the key is {MASK}, is it?"
    assert document["title"] == f"about {MASK}"
    folder = tmp_path / "copy"
    assert steno("export", "talk", "--format", "kimi", "-o", str(folder)).code == 0
    assert KEY in (folder / "context.jsonl").read_text()
    refused = steno("export", "talk", "--format", "kimi", "--redact", "-o", str(folder))
    assert refused.code == 2
    assert "masks nothing" in refused.err


def test_html_without_its_extra_names_it(steno: Steno) -> None:
    code = (
        "import sys; sys.modules['markdown_it'] = None\n"
        "from steno_cli.entry import main; sys.exit(main(['export', 'talk', '--format', 'html']))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=steno.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert f"{sys.executable} -m pip install 'stenod[view]'" in ran.stderr


def test_a_long_session_is_exported_in_less_memory_than_it_has(root: Path, tmp_path: Path) -> None:
    steno = Steno(root)
    line = json.dumps({"role": "user", "content": "some words " * 900}) + "\n"
    folder = root / "sessions" / "long"
    folder.mkdir(parents=True)
    (folder / "context.jsonl").write_text(line * WRITTEN)
    file = tmp_path / "long.html"
    code = (
        f"import resource, sys; resource.setrlimit(resource.RLIMIT_DATA, ({MEMORY_MAX},) * 2)\n"
        "from steno_cli.entry import main\n"
        f"sys.exit(main(['export', 'long', '--format', 'html', '-o', {str(file)!r}]))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=steno.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert file.stat().st_size > len(line) * WRITTEN > MEMORY_MAX


def test_show_and_grep_mask_on_demand(steno: Steno) -> None:
    assert KEY in steno("show", "talk").out
    for call in (("show", "talk"), ("--json", "show", "talk")):
        masked = steno(*call, "--redact").out
        assert MASK in masked
        assert KEY not in masked
    assert steno("grep", KEY[8:14]).code == 0
    assert steno("grep", "--redact", KEY[8:14]).code == 4
    shown = steno("grep", "--redact", "the key is").out
    assert MASK in shown
    assert KEY not in shown
