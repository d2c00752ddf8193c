"""`steno usage` over many sessions: sums, prices, formats, and what is refused."""

import csv
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from support.agent_files import (
    CLAUDE_SESSION,
    CODEX_SESSION,
    claude_answer,
    claude_file,
    codex_file,
)
from support.command import Steno

pytestmark = pytest.mark.served
PRICES = """
currency = "USD"
[models."claude-test-*"]
input = 1000
cache_read = 100
cache_write = 2000
output = 10000
"""
CLAUDE_COST = (5 * 1000 + 90 * 100 + 10 * 2000 + 15 * 10000) / 1e6


@pytest.fixture
def run(root: Path, tmp_path: Path) -> Steno:
    """The command on a root with sessions of two programs and one of steno, and prices."""
    steno = Steno(root, TZ="UTC")
    claude_file(tmp_path)
    codex_file(tmp_path)
    for place in (".claude/projects", ".codex/sessions"):
        assert steno("import", str(tmp_path / place)).code == 0
    steno("append", "own", "hi", "--create")
    steno("usage", "own", "77")
    (root / "prices.toml").write_text(PRICES)
    return steno


def rows(run: Steno, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run("usage", *words, "--json").document["rows"]
    return found


def test_all_sessions_are_added_up_by_program_and_model(run: Steno, root: Path) -> None:
    document = run("usage", "--json").document
    assert document["by"] == ["program", "model"]
    assert (document["sessions"], document["currency"]) == (3, "USD")
    assert document["prices"] == str(root / "prices.toml")
    found = {(row["program"], row["model"]): row for row in document["rows"]}
    claude = found["claude-code", "claude-test-1"]
    assert (claude["requests"], claude["tokens"]) == (1, 120)
    assert claude["cost"] == pytest.approx(CLAUDE_COST)
    codex = found["codex", "codex-test-1"]
    assert (codex["requests"], codex["input"], codex["cache_read"]) == (1, 60, 40)
    assert (codex["cost"], codex["unpriced"]) == (None, 120)
    own = found["steno", None]
    assert (own["unsplit"], own["tokens"]) == (77, 77)
    assert document["total"]["tokens"] == 120 + 120 + 77
    assert document["total"]["unpriced"] == 120 + 77


def test_the_table_says_what_has_no_price(run: Steno, root: Path) -> None:
    shown = run("usage")
    assert "0.18 USD  claude-code  claude-test-1" in shown.out
    assert shown.out.splitlines()[-1].endswith("all")
    assert f"197 tokens without a price: {root / 'prices.toml'}" in shown.err


def test_sums_are_of_days_sessions_and_programs(run: Steno) -> None:
    days = {row["day"]: row["tokens"] for row in rows(run, "--by", "day")}
    assert days.pop("2026-11-21") == 240
    assert list(days.values()) == [77], "the present day"
    assert [row["tokens"] for row in rows(run, "--by", "day", "--since", "1d")] == [77]
    sessions = {row["session"]: row["program"] for row in rows(run, "--by", "session")}
    assert sessions == {CLAUDE_SESSION: "claude-code", CODEX_SESSION: "codex", "own": "steno"}
    assert [row["program"] for row in rows(run, "--program", "codex")] == ["codex"]
    assert [row["day"] for row in rows(run, CODEX_SESSION, "--by", "day")] == ["2026-11-21"]
    assert run("usage", "nobody", "--by", "day").code == 4


def test_csv_is_read_by_a_spreadsheet_and_no_name_is_a_formula(root: Path, tmp_path: Path) -> None:
    run = Steno(root)
    odd = claude_answer("3", "2", "x")
    odd["message"]["model"] = '=cmd|"/c calc"!A1'
    run("import", str(claude_file(tmp_path, odd)))
    found = list(csv.DictReader(StringIO(run("usage", "--csv", "--by", "model").out)))
    assert {row["model"] for row in found} == {"claude-test-1", '\'=cmd|"/c calc"!A1'}
    assert found[0]["tokens"] == "120"
    assert (found[0]["cost"], found[0]["unpriced"]) == ("", "120")


def test_prices_come_from_a_named_file(run: Steno, tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text('[models."*"]\ninput = 1\n')
    assert run("usage", "--prices", str(file), "--json").document["total"]["cost"] is not None
    file.write_text("[models.x]\ninput = 'much'\n")
    refused = run("usage", "--prices", str(file))
    assert refused.code == 1
    assert f"{file}: 'input' of the model 'x' is no price" in refused.err
    missing = run("usage", "--prices", str(tmp_path / "none"))
    assert missing.code == 1
    assert "--prices names a file with prices" in missing.err


def test_a_session_that_cannot_be_read_is_named_and_the_others_count(
    run: Steno, root: Path, tmp_path: Path
) -> None:
    stream = root / "sessions" / CODEX_SESSION / "stream-codex.jsonl"
    stream.rename(tmp_path / "kept")
    stream.mkdir()
    found = run("usage", "--json")
    assert found.code == 1
    assert f"{CODEX_SESSION} is not counted: " in found.err
    assert {row["program"] for row in found.document["rows"]} == {"claude-code", "steno"}
