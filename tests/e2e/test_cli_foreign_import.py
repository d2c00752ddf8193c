"""`steno import` of transcripts that other agents wrote."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import steno
from steno_agents.following import lines_of
from steno_agents.kimi_code import KimiCode
from steno_cli.entry import main
from steno_follow import search
from steno_follow.search import Found
from steno_follow.source_tree import SourceTree
from steno_protocol import limits
from steno_protocol.limits import MIB, RECORD_BYTES_MAX
from support.agent_files import CLAUDE, CLAUDE_SESSION, claude_node, write_lines
from support.command import Steno
from support.daemon_in_thread import DaemonInThread

pytestmark = pytest.mark.served


def kept_in(stream: Path) -> bytes:
    """The bytes of a file of another program that a stream has kept."""
    return b"".join(lines_of(line[:-1] for line in stream.read_bytes().splitlines(keepends=True)))


@pytest.fixture
def run(root: Path) -> Steno:
    """The command on the root."""
    return Steno(root)


@pytest.fixture
def projects(tmp_path: Path) -> Path:
    """A folder like that of Claude Code, with one session and its subagent."""
    folder = tmp_path / "projects"
    main = write_lines(folder / "-srv-shop" / f"{CLAUDE}.jsonl", [
        {"type": "file-history-snapshot", "messageId": "1", "snapshot": {}},
        claude_node("1", None, "user", "Mend the till"),
        claude_node("2", "1", "assistant", [{"type": "text", "text": "It is mended."}]),
        {"type": "a type of tomorrow", "kept": [1, 2, 3]},
    ])  # fmt: skip
    agent = main.with_suffix("") / "subagents" / "agent-7.jsonl"
    write_lines(agent, [claude_node("9", None, "user", "explore", isSidechain=True)])
    return folder


def test_a_project_folder_becomes_sessions_that_every_command_reads(
    run: Steno, projects: Path
) -> None:
    imported = run("import", str(projects))
    assert imported.code == 0
    assert imported.out.split() == [CLAUDE_SESSION, f"{CLAUDE_SESSION}/subagents/agent-7"]
    shown = run("show", CLAUDE_SESSION).out
    assert "Mend the till" in shown
    assert "It is mended." in shown
    assert CLAUDE_SESSION in run("grep", "mended").out
    assert run("verify", "--all").code == 0
    listed = {each["session"]: each for each in run("sessions", "--json").document["sessions"]}
    assert listed[CLAUDE_SESSION]["title"] == "Mend the till"
    assert run("fork", CLAUDE_SESSION, "mine").code == 0
    assert run("append", "mine", "and the door").code == 0


def test_the_file_of_the_other_program_is_kept_byte_for_byte_and_not_changed(
    root: Path, run: Steno, projects: Path
) -> None:
    file = projects / "-srv-shop" / f"{CLAUDE}.jsonl"
    before, torn = file.read_bytes(), b'{"type":"user","uuid":"half'
    file.write_bytes(before + torn)
    imported = run("import", str(file), "till")
    assert imported.code == 0
    assert f"the last line of {file} ({len(torn)} bytes) has no end and is left out" in imported.err
    assert file.read_bytes() == before + torn
    kept = root / "sessions" / "till" / "stream-claude-code.jsonl"
    assert kept_in(kept) == before


def test_a_repeated_import_appends_what_was_added(root: Path, run: Steno, projects: Path) -> None:
    run("import", str(projects))
    again = run("import", str(projects))
    assert again.code == 0
    assert "was imported before and is unchanged" in again.err
    file = projects / "-srv-shop" / f"{CLAUDE}.jsonl"
    with file.open("a") as more:
        more.write(json.dumps(claude_node("3", "2", "user", "and the lamp")) + "\n")
    grown = {
        each["session"]: each["state"] for each in run("import", str(projects), "--json").documents
    }
    assert grown == {CLAUDE_SESSION: "grown", f"{CLAUDE_SESSION}/subagents/agent-7": "there"}
    assert "and the lamp" in run("show", CLAUDE_SESSION).out
    with steno.connect_sync(root, spawn=False) as client:
        session = client.session(CLAUDE_SESSION)
        assert client.stat(CLAUDE_SESSION).generation == 0
        assert [each.record["content"] for each in session.records()][-1] == "and the lamp"
        kept = [each.data for each in session.stream("claude-code").records()]
    assert b"".join(lines_of(kept)) == file.read_bytes()
    assert run("import", str(projects), "--json").documents[0]["state"] == "there"


def test_the_option_of_earlier_versions_is_refused_with_what_to_do(
    root: Path, projects: Path
) -> None:
    refused = Steno(root)("import", "--replace", str(projects))
    assert refused.code == 2
    assert "leave it out" in refused.err


def test_a_rewritten_file_begins_its_session_anew_and_what_it_had_is_kept(
    root: Path, run: Steno, projects: Path
) -> None:
    run("import", str(projects))
    file = projects / "-srv-shop" / f"{CLAUDE}.jsonl"
    before = file.read_bytes()
    write_lines(file, [
        claude_node("1", None, "user", "Mend the till"),
        claude_node("2", "1", "assistant", [{"type": "text", "text": "It is sold."}]),
    ])  # fmt: skip
    rewritten = run("import", str(file))
    assert rewritten.code == 0
    assert "was rewritten" in rewritten.err
    with steno.connect_sync(root, spawn=False) as client:
        session = client.session(CLAUDE_SESSION)
        assert [each.record["content"] for each in session.records()] == [
            "Mend the till", "It is sold.",
        ]  # fmt: skip
        stream = session.stream("claude-code")
        assert b"".join(lines_of(each.data for each in stream.records())) == file.read_bytes()
        past = b"".join(lines_of(each.data for each in stream.records(after="0:0")))
        assert past == before
        assert client.stat(CLAUDE_SESSION).generation == 1
    assert "It is mended." in run("show", CLAUDE_SESSION, "--generation", "0").out


def test_a_moved_file_stays_the_same_session(run: Steno, projects: Path) -> None:
    run("import", str(projects))
    (projects / "-srv-shop").rename(projects / "-srv-store")
    moved = run("import", str(projects), "--json")
    assert {each["session"]: each["state"] for each in moved.documents} == {
        CLAUDE_SESSION: "there", f"{CLAUDE_SESSION}/subagents/agent-7": "there",
    }  # fmt: skip
    file = projects / "-srv-store" / f"{CLAUDE}.jsonl"
    with file.open("a") as more:
        more.write(json.dumps(claude_node("3", "2", "user", "and the lamp")) + "\n")
    assert run("import", str(file), "--json").document["session"] == CLAUDE_SESSION
    assert "and the lamp" in run("show", CLAUDE_SESSION).out


def test_a_deleted_file_leaves_its_session_with_a_label(run: Steno, projects: Path) -> None:
    run("import", str(projects))
    file = projects / "-srv-shop" / f"{CLAUDE}.jsonl"
    content = file.read_bytes()
    file.unlink()
    assert "its transcript was deleted" in run("import", str(projects)).err
    assert "deleted" not in run("import", str(projects)).err
    labelled = run("sessions", "--label", "source-deleted", "--json").document["sessions"]
    assert [each["session"] for each in labelled] == [CLAUDE_SESSION]
    file.write_bytes(content)
    run("import", str(projects))
    assert run("sessions", "--label", "source-deleted", "--json").document["sessions"] == []


def test_another_copy_with_other_records_becomes_another_session(
    run: Steno, projects: Path
) -> None:
    run("import", str(projects))
    copy = write_lines(projects.parent / "backup" / "-srv-shop" / f"{CLAUDE}.jsonl", [
        claude_node("1", None, "user", "Mend the door"),
    ])  # fmt: skip
    first = run("import", str(copy), "--json").document
    assert first["session"].startswith(f"{CLAUDE_SESSION}-")
    assert first["state"] == "imported"
    assert run("import", str(copy), "--json").document == {**first, "state": "there"}
    assert "mended" in run("show", CLAUDE_SESSION).out


def test_a_context_that_was_changed_in_steno_is_left_as_it_is(run: Steno, projects: Path) -> None:
    run("import", str(projects))
    run("append", CLAUDE_SESSION, "a word of mine")
    file = projects / "-srv-shop" / f"{CLAUDE}.jsonl"
    with file.open("a") as more:
        more.write(json.dumps(claude_node("3", "2", "user", "and the lamp")) + "\n")
    grown = run("import", str(file))
    assert "was changed in steno" in grown.err
    shown = run("show", CLAUDE_SESSION).out
    assert "a word of mine" in shown
    assert "and the lamp" not in shown
    assert "and the lamp" in run("stream", CLAUDE_SESSION, "claude-code").out


def test_half_an_emoji_is_replaced_in_the_context_and_kept_in_the_stream(
    root: Path, run: Steno, tmp_path: Path
) -> None:
    cut = [{"type": "text", "text": "It is mended \ud83d", "\udc00": 1}]
    file = write_lines(tmp_path / "cut.jsonl", [
        claude_node("1", None, "user", "Mend the till"), claude_node("2", "1", "assistant", cut),
    ])  # fmt: skip
    imported = run("import", str(file), "till")
    assert (imported.code, imported.err) == (0, "")
    assert "It is mended \N{REPLACEMENT CHARACTER}" in run("show", "till").out
    assert run("grep", "mended").code == 0
    kept = root / "sessions" / "till" / "stream-claude-code.jsonl"
    assert kept_in(kept) == file.read_bytes()


def test_an_import_names_the_lines_that_are_no_record(run: Steno, tmp_path: Path) -> None:
    bad = claude_node("2", "1", "assistant", "lost", cost=float("nan"))
    file = write_lines(
        tmp_path / "bad.jsonl", [claude_node("1", None, "user", "Mend the till"), bad]
    )
    with file.open("a") as more:
        more.write("\n \n")
    imported = run("import", str(file), "one")
    assert imported.code == 0
    assert "1 line of one is no record, kept in its stream only" in imported.err
    with file.open("a") as more:
        more.write("7\n")
    imported = run("import", str(file), "two")
    assert "2 lines of two are no records, kept in its stream only" in imported.err
    assert run("import", str(file), "three", "--json").document["damaged"] == 2


def test_a_transcript_that_begins_with_a_long_record_is_imported_whole(
    root: Path, run: Steno, tmp_path: Path
) -> None:
    def image(size: int) -> list[dict[str, Any]]:
        source = {"type": "base64", "media_type": "image/png", "data": "A" * size}
        return [{"type": "image", "source": source}]

    write_lines(tmp_path / "long.jsonl", [
        claude_node("1", None, "user", image(9 * MIB)), claude_node("2", "1", "assistant", "a cat"),
    ])  # fmt: skip
    longer = write_lines(tmp_path / "longer.jsonl", [
        claude_node("1", None, "user", image(RECORD_BYTES_MAX)),
        claude_node("2", "1", "assistant", "a dog"),
    ])  # fmt: skip
    assert f"{longer} (Claude Code): 2 records" in Steno(root)("verify", str(longer)).err
    imported = run("import", str(tmp_path), "pictures")
    assert imported.code == 0
    folder = tmp_path.name
    assert imported.out.split() == [f"pictures/{folder}/long", f"pictures/{folder}/longer"]
    assert f"1 message of pictures/{folder}/longer too long for a record" in imported.err
    with steno.connect_sync(root, spawn=False) as client:
        roles = [
            [message["role"] for message in client.open(session).history]
            for session in imported.out.split()
        ]
    assert roles == [["user", "assistant"], ["assistant"]]


@pytest.mark.slow
def test_a_transcript_of_any_number_of_records_is_imported_whole(
    root: Path, tmp_path: Path
) -> None:
    # A follower leaves the context as it is beyond its bound; an import has none.
    count = KimiCode.followed_records() + 1
    messages = [
        {"role": "user", "content": [{"type": "text", "text": f"m{each}"}]} for each in range(count)
    ]
    file = write_lines(
        tmp_path / "p" / "s.jsonl",
        [{"type": "context.append_message", "message": each, "time": 1} for each in messages],
    )
    assert Steno(root)("import", str(file)).code == 0
    with steno.connect_sync(root) as client:
        [entry] = client.sessions()
        texts = [each.record["content"] for each in client.session(entry.session).records()]
    assert texts == [f"m{each}" for each in range(count)]


def test_the_last_record_decides_the_branch_that_is_shown(run: Steno, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "talk.jsonl", [
        claude_node("1", None, "user", "Mend the till"),
        claude_node("2", "1", "assistant", "Which one?"),
        claude_node("3", "2", "user", "the left one"),
        claude_node("4", "2", "user", "the right one"),
        claude_node("5", "3", "assistant", "It is mended."),
    ])  # fmt: skip
    imported = run("import", str(file), "till")
    assert imported.code == 0
    assert (
        "till also has 1 other branch, as generation 0: `steno show till --generation 0`"
        in imported.err
    )
    shown = run("show", "till").out
    assert "It is mended." in shown
    assert "the right one" not in shown
    past = run("show", "till", "--generation", "0").out
    assert "the right one" in past
    assert "the left one" not in past
    assert run("verify", "till").code == 0
    assert run("append", "till", "and the door").code == 0


def test_a_project_folder_is_imported_once_whatever_its_name(run: Steno, projects: Path) -> None:
    project = (projects / "-srv-shop").rename(projects / "shop")
    ids = [f"claude-code/shop/{CLAUDE}", f"claude-code/shop/{CLAUDE}/subagents/agent-7"]
    for folder in (projects, project):
        imported = run("import", str(folder))
        assert (imported.code, imported.out.split()) == (0, ids)
    before = Path.cwd()
    os.chdir(project)
    try:
        assert run("import", ".", "here").code == 0
    finally:
        os.chdir(before)
    listed = {each["session"] for each in run("sessions", "--json").document["sessions"]}
    assert listed == {*ids, *(each.replace("claude-code", "here") for each in ids)}


RECORDED = Path(__file__).parents[1] / "steno_agents" / "recorded"

KIMI_CODE = "session_e3e9d7f9-9587-403c-acd5-9ec9cf57f954"
COPILOT = "ffa746f8-add2-4787-a4ad-cd8a3c5daa9f"


@pytest.mark.parametrize(
    ("place", "session", "beside", "title"),
    [
        (".qwen/projects/-srv-shop/chats/5f23d672-566d-486d-aa79-745dd067be10.jsonl",
         "qwen-code/5f23d672-566d-486d-aa79-745dd067be10", {}, "Hello there"),
        (".gemini/tmp/shop/chats/session-2026-11-28T06-53-47fe6b4b.jsonl",
         "gemini-cli/47fe6b4b-9542-4850-be52-53115915d2a4", {}, "Hello there"),
        (".pi/agent/sessions/--srv-shop--/2026_01a220ef.jsonl",
         "pi/01a220ef-62e3-75be-8162-0e0feb4a71ff", {}, "Hello there"),
        (f".kimi-code/sessions/wd_shop/{KIMI_CODE}/agents/main/wire.jsonl",
         f"kimi-code/{KIMI_CODE}", {"../../state.json": '{"title": "The shop"}'}, "The shop"),
        (f".copilot/session-state/{COPILOT}/events.jsonl",
         f"copilot-cli/{COPILOT}", {"workspace.yaml": "name: The shop\n"}, "The shop"),
    ],
)  # fmt: skip
def test_a_session_of_each_program_is_imported_from_its_place(
    root: Path,
    run: Steno,
    tmp_path: Path,
    place: str,
    session: str,
    beside: dict[str, str],
    title: str,
) -> None:
    file = tmp_path / place
    file.parent.mkdir(parents=True)
    program = session.split("/", maxsplit=1)[0]
    content = (RECORDED / f"{program}.jsonl").read_bytes()
    begin, rest = content.split(b"\n", 1)
    # Damage in the middle, and a line that the program is writing at the end.
    damaged = begin + b'\n{"type":"us\n' + rest + b'{"type":"user","uu'
    file.write_bytes(damaged)
    for name, text in beside.items():
        (file.parent / name).write_text(text)
    folder = Path(*Path(place).parts[:2])
    imported = run("import", str(tmp_path / folder))
    assert (imported.code, imported.out) == (0, f"{session}\n")
    assert "1 line" in imported.err
    assert "The folder is listed." in run("show", session).out
    [listed] = run("sessions", "--json").document["sessions"]
    assert listed["title"] == title
    stream = root / "sessions" / session / f"stream-{program}.jsonl"
    assert kept_in(stream) == damaged[: damaged.rindex(b"\n") + 1]
    again = run("import", str(file))
    assert (again.code, again.out) == (0, f"{session}\n")


def test_a_file_that_no_reader_understands_is_refused_with_a_guess(
    run: Steno, tmp_path: Path
) -> None:
    # Its messages have roles, as those of kimi-cli; its calls have none.
    record = {"type": "function_call", "sessionId": "cb_1", "name": "sweep", "arguments": {}}
    # kimi-cli names its old files in the same way.
    file = write_lines(tmp_path / "chats" / f"{CLAUDE}.jsonl", [record])
    refused = run("import", str(file))
    assert (refused.code, refused.out) == (1, "")
    assert "it looks like a transcript of CodeBuddy, which steno cannot read" in refused.err
    assert run("import", str(tmp_path)).code == 1
    write_lines(tmp_path / "good.jsonl", [claude_node("1", None, "user", "hello")])
    mixed = run("import", str(tmp_path), "all")
    assert (mixed.code, mixed.out) == (1, f"all/{tmp_path.name}/good\n")
    assert f"{file} is left out: it looks like a transcript of CodeBuddy" in mixed.err
    assert len(run("sessions", "--json").document["sessions"]) == 1


def test_a_session_folder_of_another_program_is_refused(run: Steno, tmp_path: Path) -> None:
    record = {"type": "text", "sessionID": "ses_1", "part": {"text": "hello"}}
    file = write_lines(tmp_path / "talk" / "context.jsonl", [record])
    refused = run("import", str(file.parent))
    assert (refused.code, refused.out) == (1, "")
    assert f"{file} is not imported: it looks like a transcript of opencode" in refused.err


def test_a_transcript_without_a_message_is_no_session(run: Steno, tmp_path: Path) -> None:
    snapshot = {"type": "file-history-snapshot", "messageId": "1", "snapshot": {}}
    empty = write_lines(tmp_path / "a" / "empty.jsonl", [snapshot] * 100)
    refused = run("import", str(empty))
    assert (refused.code, refused.out) == (1, "")
    assert "had not written a message to it when it ended" in refused.err
    write_lines(
        tmp_path / "a" / "full.jsonl", [*[snapshot] * 100, claude_node("1", None, "user", "hello")]
    )
    imported = run("import", str(tmp_path))
    assert (imported.code, imported.out) == (0, "claude-code/a/full\n")
    assert f"{empty} has no conversation" in imported.err


def test_long_names_and_agents_of_workflows_get_ids_of_their_own(
    run: Steno, tmp_path: Path
) -> None:
    project = tmp_path / ("-srv" + "-deeply" * 30)
    for name in (CLAUDE, CLAUDE.replace("1", "2")):
        write_lines(project / f"{name}.jsonl", [claude_node("1", None, "user", "hello")])
        for flow in ("wf_1", "wf_2"):
            agents = project / name / "subagents" / "workflows" / flow
            agent = [claude_node("1", None, "user", f"{name} {flow}", isSidechain=True)]
            write_lines(agents / "agent-a1b2c3.jsonl", agent)
    imported = run("import", str(tmp_path))
    assert imported.code == 0
    ids = imported.out.split()
    assert len(set(ids)) == len(ids) == 6
    assert all(len(each) <= 255 for each in ids)
    assert f"{CLAUDE} wf_2" in run("show", ids[3]).out
    assert run("import", str(tmp_path)).out.split() == ids


def test_files_with_long_results_come_along(root: Path, run: Steno, projects: Path) -> None:
    results = projects / "-srv-shop" / CLAUDE / "tool-results"
    results.mkdir()
    (results / "long.txt").write_text("a long result\n")
    (results / "shot.png").write_bytes(b"\x89PNG")
    (results / "secret.txt").symlink_to("/etc/hostname")
    assert run("import", str(projects)).code == 0
    kept = root.joinpath("sessions", *CLAUDE_SESSION.split("/"), "stream-tool-results.jsonl")
    assert list(map(json.loads, kept.read_text().splitlines())) == [
        {"file": "long.txt", "begin": 0, "end": 14, "text": "a long result\n"},
        {"file": "shot.png", "begin": 0, "end": 4, "base64": "iVBORw=="},
    ]


def test_a_failed_tool_is_shown_as_failed(run: Steno, tmp_path: Path) -> None:
    call = {"type": "tool_use", "id": "t", "name": "Read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "no file", "is_error": True}
    file = write_lines(tmp_path / "talk.jsonl", [
        claude_node("1", None, "user", "go"), claude_node("2", "1", "assistant", [call]),
        claude_node("3", "2", "user", [result]),
    ])  # fmt: skip
    assert run("import", str(file), "till").code == 0
    assert "tool · Read · failed" in run("show", "till").out
    assert "## tool · Read · failed" in run("export", "till", "--format", "markdown").out


def test_records_in_damaged_lines_are_saved(root: Path, run: Steno, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "talk.jsonl", [claude_node("1", None, "user", "Mend the till")])
    glued = json.dumps(claude_node("2", "1", "assistant", "It is mended."))
    with file.open("a") as more:
        more.write('{"type":"pr-link","sessionId":"x","prNu' + glued + "\n")
        more.write(json.dumps(claude_node("3", "2", "user", "thanks")) + "\n")
    imported = run("import", str(file), "till")
    assert (imported.code, "1 record of till saved from damaged lines" in imported.err) == (0, True)
    with steno.connect_sync(root, spawn=False) as client:
        history = client.open("till").history
    assert [each["content"] for each in history] == ["Mend the till", "It is mended.", "thanks"]
    assert kept_in(root / "sessions/till/stream-claude-code.jsonl") == file.read_bytes()


def rollout(text: str) -> list[dict[str, Any]]:
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    return [
        {"timestamp": "t", "type": "session_meta", "payload": {"id": CLAUDE, "cwd": "/srv"}},
        {"timestamp": "t", "type": "response_item", "payload": said},
    ]


def test_a_compressed_rollout_is_imported_with_its_name(
    root: Path, run: Steno, tmp_path: Path
) -> None:
    zstandard = pytest.importorskip("zstandard")
    day = tmp_path / "sessions" / "2026" / "01" / "02"
    plain = write_lines(day / "rollout-1.jsonl", rollout("hello"))
    content = plain.read_bytes()
    plain.unlink()
    packed = plain.with_name("rollout-1.jsonl.zst")
    packed.write_bytes(zstandard.ZstdCompressor().compress(content))
    names = [{"id": CLAUDE, "thread_name": "old"}, {"id": CLAUDE, "thread_name": "Till"}]
    write_lines(tmp_path / "session_index.jsonl", names)
    for folder in (tmp_path, packed):
        imported = run("import", str(folder))
        assert (imported.code, imported.out) == (0, f"codex/{CLAUDE}\n")
    kept = root / "sessions" / "codex" / CLAUDE / "stream-codex.jsonl"
    assert kept_in(kept) == content
    (entry,) = run("sessions", "--json").document["sessions"]
    assert entry["title"] == "Till"
    packed.write_bytes(b"no archive")
    assert run("import", str(packed), "broken").code == 1


@pytest.mark.parametrize("name", ["talk.jsonl", "sub"])
def test_a_link_swapped_in_after_the_search_is_not_followed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    private = write_lines(
        tmp_path / "private" / "talk.jsonl", [claude_node("1", None, "user", "my secret")]
    )
    shared = tmp_path / "shared"
    file = write_lines(shared / "sub" / "talk.jsonl", [claude_node("1", None, "user", "hello")])
    write_lines(shared / "other.jsonl", [claude_node("1", None, "user", "other")])
    monkeypatch.setenv("STENO_HOME", str(root))
    find = search.find_foreign

    def swap_afterwards(tree: SourceTree, prefix: str | None) -> Found:
        found = find(tree, prefix)
        if name == "sub":
            shutil.rmtree(file.parent)
            file.parent.symlink_to(private.parent)
        else:
            file.unlink()
            file.symlink_to(private)
        return found

    monkeypatch.setattr(search, "find_foreign", swap_afterwards)
    assert main(["import", str(shared), "all"]) == 1
    printed = capfd.readouterr()
    assert printed.out == f"all/{shared.name}/other\n"
    assert "all/sub/talk is left out" in printed.err
    run = Steno(root)
    assert run("grep", "secret").code != 0


def test_what_is_no_regular_file_is_passed_over(run: Steno, tmp_path: Path) -> None:
    private = write_lines(tmp_path / "private.jsonl", [claude_node("1", None, "user", "my secret")])
    shared = tmp_path / "shared"
    write_lines(shared / "other.jsonl", [claude_node("1", None, "user", "other")])
    (shared / "link.jsonl").symlink_to(private)
    (shared / "folder").symlink_to(tmp_path)
    os.mkfifo(shared / "pipe.jsonl")
    imported = run("import", str(shared))
    assert (imported.code, imported.out) == (0, "claude-code/shared/other\n")
    refused = run("import", str(shared / "pipe.jsonl"))
    assert (refused.code, "is a FIFO" in refused.err or "pipe" in refused.err) == (1, True)
    # The user may name a link.
    assert run("import", str(shared / "link.jsonl"), "named").code == 0


def test_folders_below_each_other_without_end_are_left_out(run: Steno, tmp_path: Path) -> None:
    write_lines(tmp_path / "talk.jsonl", [claude_node("1", None, "user", "hello")])
    (tmp_path / "kimi").mkdir()
    (tmp_path / "kimi" / "context.jsonl").write_text('{"role":"user","content":"x"}\n')
    for top in (tmp_path, tmp_path / "kimi"):
        handle = os.open(top, os.O_RDONLY)
        for _ in range(1500):
            os.mkdir("d", dir_fd=handle)
            below = os.open("d", os.O_RDONLY, dir_fd=handle)
            os.close(handle)
            handle = below
        os.close(handle)
    imported = run("import", str(tmp_path), "all")
    assert (imported.code, imported.out) == (1, f"all/{tmp_path.name}/talk\n")
    assert "folders deep" in imported.err
    assert "32 levels below" in imported.err
    subprocess.run(["rm", "-rf", str(tmp_path / "d"), str(tmp_path / "kimi")], check=True)


@pytest.mark.served(False)
@pytest.mark.parametrize("end", ["", "\n"])
def test_a_line_without_end_is_refused_by_import_and_daemon(
    root: Path, run: Steno, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    most = 3 * MIB
    monkeypatch.setattr("steno_follow.lines.TRANSCRIPT_LINE_BYTES_MAX", most)
    monkeypatch.setattr(limits, "LINE_CHECKED_BYTES_MAX", most)
    monkeypatch.setattr(limits, "COPY_BYTES", MIB)

    def lengthen(file: Path) -> None:
        with file.open("a") as more:
            more.write('{"role":"user","content":"' + "x" * (most + MIB) + ('"}\n' if end else ""))

    claude = write_lines(tmp_path / "talk.jsonl", [claude_node("1", None, "user", "hello")])
    (tmp_path / "kimi").mkdir()
    kimi = write_lines(tmp_path / "kimi" / "context.jsonl", [{"role": "user", "content": "hello"}])
    for file, source in ((claude, claude), (kimi, kimi.parent)):
        lengthen(file)
        with DaemonInThread(root):
            refused = run("import", str(source), "one")
        assert (refused.code, refused.out) == (1, "")
        assert f"of {file} has more than {most} bytes" in refused.err
    with DaemonInThread(root):
        run("append", "till", "hello")
    file = root / "sessions" / "till" / "context.jsonl"
    lengthen(file)
    (file.parent / "context.mark").unlink(missing_ok=True)
    with DaemonInThread(root):
        refused = run("append", "till", "more")
        assert (refused.code, f"of {file} has more than {most}" in refused.err) == (1, True)
        assert "hello" in run("show", "till").out


def test_a_folder_without_transcripts_says_so(run: Steno, tmp_path: Path) -> None:
    write_lines(tmp_path / "notes.jsonl", [{"note": 1}])
    refused = run("import", str(tmp_path))
    assert refused.code != 0
    assert "has no session" in refused.err


def test_verify_and_repair_name_the_program_whose_file_it_is(run: Steno, projects: Path) -> None:
    file = projects / "-srv-shop" / f"{CLAUDE}.jsonl"
    assert f"{file} (Claude Code): 4 records" in run("verify", str(file)).err
    with file.open("a") as more:
        more.write('{"type":"user","uuid":"half')
    checked = run("verify", str(file), "--json")
    assert checked.document["program"] == "Claude Code"
    assert f"{file} (Claude Code): 1 place to repair" in run("repair", str(file)).err
    assert run("repair", str(file), "--json").document["program"] == "Claude Code"
