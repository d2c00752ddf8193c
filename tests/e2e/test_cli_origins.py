"""What the command says of the program that a session comes from, and how it chooses by it."""

import json
from pathlib import Path

import pytest

from steno_redact.redactor import mask_of
from support.agent_files import (
    CLAUDE,
    CLAUDE_SESSION,
    CODEX,
    CODEX_SESSION,
    claude_file,
    claude_node,
    codex_file,
    write_lines,
)
from support.command import Steno

pytestmark = pytest.mark.served
SECRET = "sk-proj-0123456789abcdefghij"
RESUME = f"cd /srv/shop && claude --resume {CLAUDE}"


@pytest.fixture
def run(root: Path, tmp_path: Path) -> Steno:
    """The command on a root with a session of each of two programs, a subagent and one of steno."""
    steno = Steno(root)
    agent = claude_file(tmp_path).with_suffix("") / "subagents" / "agent-7.jsonl"
    write_lines(agent, [claude_node("9", None, "user", "look around", isSidechain=True)])
    codex_file(tmp_path)
    for place in (".claude/projects", ".codex/sessions"):
        assert steno("import", str(tmp_path / place)).code == 0
    steno("append", "own", "bread of my own", "--create")
    return steno


def test_show_and_info_say_where_a_session_comes_from(run: Steno, tmp_path: Path) -> None:
    for command in ("show", "info"):
        lines = run(command, CLAUDE_SESSION).out.splitlines()
        rows = dict(line.split(None, 1) for line in lines if line[:1].isalpha() and "  " in line)
        assert rows["program"] == "Claude Code"
        assert rows["file"] == str(tmp_path / ".claude/projects/-srv-shop" / f"{CLAUDE}.jsonl")
        assert rows["directory"] == "/srv/shop"
        assert rows["branch"] == "fix/till"
        assert rows["model"] == "claude-test-1"
        assert rows["resume"] == RESUME
    assert "program" not in run("show", "own").out
    assert "program" not in run("info", "own").out


def test_json_has_the_origin(run: Steno) -> None:
    for command in ("show", "info"):
        origin = run(command, CODEX_SESSION, "--json").document["origin"]
        assert (origin["program"], origin["format"]) == ("Codex", "codex")
        assert (origin["id"], origin["work_dir"]) == (CODEX, "/srv/bakery")
        assert (origin["branch"], origin["model"]) == ("main", "codex-test-1")
        assert origin["resume"] == f"cd /srv/bakery && codex resume {CODEX}"
        assert origin["is_gone"] is origin["is_masked"] is False
        assert run(command, "own", "--json").document["origin"] is None


def test_a_session_that_was_masked_as_it_was_written_says_so(root: Path, tmp_path: Path) -> None:
    run, places = Steno(root), str(tmp_path / ".claude/projects")
    settings = root / "config.toml"
    settings.write_text('[redact]\nat = "write"\n')
    file = claude_file(tmp_path)
    assert run("import", places).code == 0

    def check(name: str) -> None:
        assert f"{name} (kept with masks)" in run("info", CLAUDE_SESSION).out
        assert f"{name} (kept with masks)" in run("show", CLAUDE_SESSION).out
        origin = run("info", CLAUDE_SESSION, "--json").document["origin"]
        assert (origin["is_masked"], origin["is_gone"]) == (True, False)

    check(file.name)
    # What was masked stays so when no new line is.
    settings.unlink()
    with file.open("a") as lines:
        lines.write(json.dumps(claude_node("99", "9", "user", "and on")) + "\n")
    assert run("import", places).code == 0
    check(file.name)
    # An import of a folder with no transcript is a mistake, and marks none.
    agent = file.with_suffix("") / "subagents" / "agent-7.jsonl"
    write_lines(agent, [claude_node("9", None, "user", "look around", isSidechain=True)])
    file.unlink()
    assert run("import", places).code == 0
    assert f"{file.name} (deleted, kept with masks)" in run("info", CLAUDE_SESSION).out


def test_sessions_are_chosen_by_program(run: Steno) -> None:
    def listed(*words: str) -> set[str]:
        found = run("sessions", *words, "--json").document["sessions"]
        return {each["session"] for each in found}

    assert listed("--program", "codex") == {CODEX_SESSION}
    claude = {CLAUDE_SESSION, f"{CLAUDE_SESSION}/subagents/agent-7"}
    assert listed("--program", "claude") == claude
    # Labels are people's own; the transcript in the session decides.
    run("label", CODEX_SESSION, "-codex")
    run("label", "own", "+codex")
    assert listed("--program", "codex,steno") == {CODEX_SESSION, "own"}
    assert listed("--program", "codex") == {CODEX_SESSION}
    assert listed("--program", "pi") == set()
    refused = run("sessions", "--program", "emacs")
    assert refused.code == 2
    assert "no program 'emacs'" in refused.err


def test_a_search_is_limited_to_programs(run: Steno) -> None:
    assert run("grep", "-l", "bread").out.split() == [CODEX_SESSION, "own"]
    assert run("grep", "-l", "bread", "--program", "codex").out.split() == [CODEX_SESSION]
    none = run("grep", "bread", "--program", "pi,gemini")
    assert none.code == 4
    assert "there is no session of pi or gemini-cli" in none.err
    assert run("grep", "--index", "bread", "--program", "codex").code == 2


def test_the_latest_session_of_a_program_is_shown(run: Steno) -> None:
    shown = run("show", "--program", "claude", "--last", "1")
    assert "It is mended." in shown.out
    assert "Mend the till" not in shown.out
    assert f"this is {CLAUDE_SESSION}\n" in shown.err
    assert run("show", "--program", "pi").code == 4
    assert run("show").code == 2


def test_masks_apply_to_the_origin(root: Path, tmp_path: Path) -> None:
    run = Steno(root)
    assert run("import", str(codex_file(tmp_path, cwd=f"/srv/{SECRET}"))).code == 0
    assert SECRET in run("show", CODEX_SESSION).out
    for words in (["show", "--redact"], ["show", "--redact", "--json"]):
        shown = run(words[0], CODEX_SESSION, *words[1:]).out
        assert SECRET not in shown
        assert "codex resume" not in shown


@pytest.mark.served(False)
def test_a_command_that_a_mask_broke_as_it_was_written_is_not_offered(
    root: Path, tmp_path: Path
) -> None:
    root.mkdir(exist_ok=True)
    (root / "config.toml").write_text('[redaction]\nat = "write"\n')
    run = Steno(root)
    assert run("import", str(codex_file(tmp_path, cwd=f"/srv/{SECRET}"))).code == 0
    origin = run("info", CODEX_SESSION, "--json").document["origin"]
    assert origin["work_dir"] == f"/srv/{mask_of('openai-key')}"
    assert origin["resume"] is None
    run("stop")
