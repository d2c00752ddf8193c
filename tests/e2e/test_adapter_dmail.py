"""The DenwaRenji adapter without kimi-cli; tests/interop runs it with kimi-cli."""

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from steno.adapters.kimi import Context, DenwaRenji, DenwaRenjiError
from support.daemon_in_thread import DaemonInThread

SEND = """
import sys
from types import SimpleNamespace
from steno.adapters.kimi import DenwaRenji
DenwaRenji(sys.argv[1]).send_dmail(SimpleNamespace(message="from below", checkpoint_id=1))
"""


@dataclass
class Mail:
    """As much of a DMail as the twin needs."""

    message: str
    checkpoint_id: int


@pytest.fixture
def file() -> Iterator[Path]:
    """A context of two checkpoints, in a tree that the user's daemon mounts."""
    folder = Path(tempfile.mkdtemp(prefix="steno-")).resolve()
    (folder / "tree" / "demo").mkdir(parents=True)
    (folder / "config.toml").write_text(f'[mounts]\ntree = "{folder}/tree"\n')
    path = folder / "tree" / "demo" / "context.jsonl"
    with pytest.MonkeyPatch.context() as patch, DaemonInThread(folder):
        patch.setenv("STENO_HOME", str(folder))
        yield path
    shutil.rmtree(folder)


def with_checkpoints(file: Path, count: int) -> Context:
    context = Context(file, message_type=dict)

    async def step() -> None:
        for _ in range(count):
            await context.checkpoint(add_user_message=False)

    asyncio.run(step())
    return context


def test_a_mail_is_fetched_once_and_expires_with_the_revert(
    file: Path,
) -> None:
    context = with_checkpoints(file, 2)
    parent = DenwaRenji(file, dmail_type=Mail)
    parent.set_n_checkpoints(2)
    assert parent.fetch_pending_dmail() is None
    subprocess.run([sys.executable, "-c", SEND, str(file)], check=True)
    assert parent.fetch_pending_dmail() == Mail("from below", 1)
    assert parent.fetch_pending_dmail() is None
    # A process that died after its fetch leaves the mail to the next one.
    assert DenwaRenji(file, dmail_type=Mail).fetch_pending_dmail() == Mail("from below", 1)
    asyncio.run(context.revert_to(1))
    assert DenwaRenji(file, dmail_type=Mail).fetch_pending_dmail() is None
    asyncio.run(context.checkpoint(add_user_message=False))
    parent.send_dmail(SimpleNamespace(message="again", checkpoint_id=1))
    assert parent.fetch_pending_dmail() == Mail("again", 1)


def test_a_fetched_mail_is_replaced_by_the_next_one(file: Path) -> None:
    with_checkpoints(file, 2)
    twin = DenwaRenji(file)
    twin.send_dmail(Mail("first", 0))
    with pytest.raises(DenwaRenjiError, match="is pending"):
        twin.send_dmail(Mail("second", 1))
    assert twin.fetch_pending_dmail() == Mail("first", 0)
    twin.send_dmail(Mail("second", 1))
    assert twin.fetch_pending_dmail() == Mail("second", 1)


def test_without_a_file_one_mail_at_a_time_waits_in_the_process() -> None:
    phone = DenwaRenji()
    with pytest.raises(DenwaRenjiError, match="no checkpoint 0"):
        phone.send_dmail(Mail("too early", 0))
    phone.set_n_checkpoints(1)
    phone.send_dmail(Mail("first", 0))
    with pytest.raises(DenwaRenjiError, match="one at a time"):
        phone.send_dmail(Mail("second", 0))
    assert DenwaRenji().fetch_pending_dmail() is None
    assert phone.fetch_pending_dmail() == Mail("first", 0)
    assert phone.fetch_pending_dmail() is None


def test_a_tool_gets_an_error_for_an_unsendable_message(file: Path) -> None:
    with_checkpoints(file, 1)
    phone = DenwaRenji(file)
    for dmail, reason in [
        (Mail("x", 1), "checkpoint"),
        (Mail("x", -1), "checkpoint"),
        (Mail("", 0), "message"),
    ]:
        with pytest.raises(DenwaRenjiError, match=reason):
            phone.send_dmail(dmail)
    phone.send_dmail(Mail("first", 0))
    with pytest.raises(DenwaRenjiError, match="is pending"):
        phone.send_dmail(Mail("second", 0))
    assert phone.fetch_pending_dmail() == Mail("first", 0)


def test_a_mail_to_an_unknown_checkpoint_waits_for_it(
    file: Path,
) -> None:
    with_checkpoints(file, 2)
    phone = DenwaRenji(file)
    phone.set_n_checkpoints(1)
    phone.send_dmail(Mail("later", 1))
    assert phone.fetch_pending_dmail() is None
    phone.set_n_checkpoints(2)
    assert phone.fetch_pending_dmail() == Mail("later", 1)


def test_where_there_is_no_session_there_is_no_mail(file: Path) -> None:
    assert DenwaRenji(file).fetch_pending_dmail() is None
    file.touch()
    assert DenwaRenji(file).fetch_pending_dmail() is None
