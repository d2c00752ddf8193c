"""The command on sessions whose past generations are compressed."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import steno as library
from support.command import Steno
from support.compressed import compress_past

pytestmark = pytest.mark.served

KEY = "ghp_" + "a1B2" * 9
PACKED = ["context_1.jsonl.zst", "context_2.jsonl.zst", "context_3.jsonl"]


@pytest.fixture
def source(second_root: Path, tmp_path: Path) -> Path:
    """A copy of the folder of another root's session with two compressed generations."""
    with library.connect_sync(second_root) as client:
        session = client.open("demo", follow=False)
        for number in range(3):
            session.append_message({"role": "user", "content": f"{number} {KEY} " + "again " * 50})
            session.clear()
        session.append_message({"role": "user", "content": "present " * 50})
    assert compress_past(second_root / "sessions" / "demo") == PACKED
    shutil.copytree(second_root / "sessions" / "demo", tmp_path / "demo")
    return tmp_path / "demo"


def texts(root: Path, session: str) -> list[list[bytes]]:
    with library.connect_sync(root) as client:
        found = client.session(session)
        return [list(found.lines(library.Position(number, 0))) for number in range(3)]


def test_an_imported_session_has_plain_generations_and_is_known_again(
    root: Path, second_root: Path, source: Path
) -> None:
    steno = Steno(root)
    assert steno("import", str(source), "copy").code == 0
    copy = root / "sessions" / "copy"
    assert sorted(path.name for path in copy.glob("context_*")) == [
        "context_1.jsonl", "context_2.jsonl", "context_3.jsonl",
    ]  # fmt: skip
    assert texts(root, "copy") == texts(second_root, "demo")
    # What was imported lies in a compressed generation by now.
    (source / "context.jsonl").write_bytes((copy / "context.jsonl").read_bytes())
    for _ in range(2):
        assert steno("clear", "copy").code == 0
    assert "context_4.jsonl.zst" in compress_past(copy)
    again = steno("import", str(source), "copy")
    assert (again.code, "was imported before" in again.err) == (0, True), again.err


def test_a_masked_import_masks_compressed_generations(root: Path, source: Path) -> None:
    (root / "config.toml").write_text('[redaction]\nat = "write"\n')
    steno = Steno(root)
    assert steno("import", str(source), "copy").code == 0
    files = [path for path in (root / "sessions" / "copy").rglob("*") if path.is_file()]
    assert {"context_1.jsonl", "context_2.jsonl"} <= {path.name for path in files}
    for path in files:
        assert KEY.encode() not in path.read_bytes(), path


def test_a_folder_is_verified_without_a_daemon(root: Path, source: Path) -> None:
    steno = Steno(root)
    ran = steno("verify", str(source), "--json")
    assert (ran.code, ran.document["findings"]) == (0, [])
    plain = {each["file"]: each["records"] for each in ran.document["files"]}
    assert [plain[f"context_{number}.jsonl"] for number in (1, 2, 3)] == [1, 1, 1]
    packed = source / "context_2.jsonl.zst"
    packed.write_bytes(packed.read_bytes()[:-5])
    ran = steno("verify", str(source), "--json")
    (finding,) = [each for each in ran.document["findings"] if each["damage"]]
    assert finding["file"] == "context_2.jsonl"


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python has zstd")
def test_without_zstd_verify_says_what_it_did_not_check(
    root: Path, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "zstandard.py").write_text("raise ImportError\n")
    ran = subprocess.run(
        Steno(root).words("verify", str(source), "--json"),
        env={**Steno(root).environment, "PYTHONPATH": str(tmp_path / "without")},
        capture_output=True,
        check=True,
    )
    report = json.loads(ran.stdout)
    assert report["damage"] == 0
    assert {(each["file"], each["kind"]) for each in report["findings"]} == {
        (name.removesuffix(".zst"), "unchecked") for name in PACKED if name.endswith(".zst")
    }
    assert all("install it with `" in each["what"] for each in report["findings"])
