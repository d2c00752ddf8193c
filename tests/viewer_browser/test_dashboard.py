"""The first page and the usage in a real browser: what runs, as it changes, and hostile names."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.agent_files import (
    CLAUDE,
    CLAUDE_SESSION,
    add_lines,
    claude_answer,
    claude_file,
    claude_node,
    codex_file,
    write_lines,
)
from support.browser import NARROW, ViewerPage
from support.command import Steno

OpenPage = Callable[..., ViewerPage]
ATTACK = "<img src=x onerror=\"document.title='broken'\">"
RESUME = f"cd /srv/shop && claude --resume {CLAUDE}"


@pytest.fixture
def home(steno: Steno, tmp_path: Path) -> Path:
    """A home with a session of Claude Code, its subagent and one of Codex, just written."""
    agent = claude_file(tmp_path).with_suffix("") / "subagents" / "agent-7.jsonl"
    write_lines(agent, [claude_node("9", None, "user", "look around", isSidechain=True)])
    codex_file(tmp_path, cwd=f"/srv/{ATTACK}")
    for place in (".claude/projects", ".codex/sessions"):
        assert steno("import", str(tmp_path / place)).code == 0
    return tmp_path


def test_the_first_page_shows_what_runs_and_follows_it(
    steno: Steno, home: Path, open_page: OpenPage
) -> None:
    page = open_page()
    page.page.wait_for_selector(f'article[data-session="{CLAUDE_SESSION}"]')
    page.wait_for_text("It is mended.")
    run = page.page.locator(f'article[data-session="{CLAUDE_SESSION}"]')
    assert run.locator(".below .title").inner_text() == "look around"
    text = run.inner_text()
    assert "The till" in text
    assert "claude-test-1" in text
    assert "fix/till" in text
    file = home / ".claude/projects/-srv-shop" / f"{CLAUDE}.jsonl"
    failed = {"type": "tool_result", "tool_use_id": "t", "content": "no such till",
              "is_error": True}  # fmt: skip
    add_lines(file, [claude_answer("3", "2", "It broke."), claude_node("4", "3", "user", [failed])])
    steno("import", str(file))
    page.wait_for_text("It broke.")
    page.wait_for_text("1 failed call: no such till")
    run.locator(".title").first.click()
    page.page.wait_for_selector(".session-head .origin")
    assert page.page.evaluate("() => location.hash").startswith("#/s/claude-code")


def test_the_line_that_resumes_a_session_is_copied(home: Path, open_page: OpenPage) -> None:
    assert home.exists()
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    for address in ("#/", f"#/s/{CLAUDE_SESSION.replace('/', '%2F')}/transcript"):
        page.page.evaluate("() => navigator.clipboard.writeText('')")
        page.show(address)
        page.page.locator(f'main button.copy[title="{RESUME}"]').click()
        page.wait_for("async text => await navigator.clipboard.readText() === text", RESUME)


def test_hostile_names_are_text_and_the_pages_fit_a_narrow_screen(
    steno: Steno, home: Path, open_page: OpenPage
) -> None:
    odd = claude_answer("3", "2", ATTACK + "x" * 500)
    odd["message"]["model"] = ATTACK + "y" * 200
    file = home / ".claude/projects/-srv-shop" / f"{CLAUDE}.jsonl"
    add_lines(file, [odd, {"type": "custom-title", "customTitle": ATTACK, "sessionId": CLAUDE}])
    steno("import", str(file))
    page = open_page(viewport=NARROW)
    page.page.wait_for_selector(".dashboard .words:has-text('onerror')")
    check_narrow(page)
    page.show("#/usage")
    page.page.get_by_role("button", name="all time").click()
    page.page.wait_for_selector(".usage td.name:has-text('onerror')")
    check_narrow(page)


def check_narrow(page: ViewerPage) -> None:
    assert page.page.locator("main img").count() == 0
    widths = "() => [...document.querySelectorAll('.scroller')].map((each) => each.scrollWidth)"
    assert max(page.page.evaluate(widths)) <= NARROW["width"]
    assert page.page.title() != "broken"


def test_sums_are_chosen_on_the_page_of_the_usage(home: Path, open_page: OpenPage) -> None:
    assert home.exists()
    page = open_page()
    page.show("#/usage")
    page.page.get_by_role("button", name="all time").click()
    page.page.wait_for_selector("td.name:has-text('claude-test-1')")
    page.page.get_by_role("button", name="by session").click()
    page.page.wait_for_selector(f"td.name:has-text('{CLAUDE_SESSION}')")
    assert page.page.locator(".usage .card").nth(0).inner_text().split("\n")[1] == "240"


def test_a_hint_says_how_to_follow_transcripts(open_page: OpenPage) -> None:
    page = open_page()
    page.wait_for_text("steno view --watch")
    page.wait_for_text("No session was written in the last 5 minutes.")
