"""Verify and repair of a session beside its writers."""

import threading
from pathlib import Path

import pytest

import steno
from steno_protocol.commands import Repair, Verify
from steno_protocol.replies import Ack, Verification

pytestmark = pytest.mark.usefixtures("daemon")

VERIFICATIONS = 40
REVERTS = 5


def _write(root: Path, name: str, stop: threading.Event, failures: list[BaseException]) -> None:
    try:
        with steno.connect_sync(root, spawn=False, name=name) as client:
            session = client.open("demo", follow=False)
            while not stop.is_set():
                number = session.checkpoint(add_user_message=True).checkpoint_id
                session.append_message([{"role": "user", "content": name}] * 3)
                session.append_wire("StepBegin", {"n": 1})
                if name == "reverter" and number:
                    try:
                        session.revert_to(number)
                    except steno.NotFound:
                        continue  # a revert to an earlier checkpoint has dropped it
    except BaseException as error:
        failures.append(error)
        raise


def test_verify_beside_writers_and_reverts_has_no_findings(root: Path) -> None:
    stop, failures = threading.Event(), list[BaseException]()
    with steno.connect_sync(root, spawn=False) as client:
        client.open("demo", follow=False)
        writers = [
            threading.Thread(target=_write, args=(root, name, stop, failures))
            for name in ("writer", "reverter")
        ]
        for writer in writers:
            writer.start()
        try:
            reports: list[Verification] = []
            while len(reports) < VERIFICATIONS or reports[-1].generation < REVERTS:
                reports.append(client.request(Verify(session="demo"), Verification)[0])
        finally:
            stop.set()
            for writer in writers:
                writer.join()
    assert failures == []
    assert [finding for report in reports for finding in report.findings] == []


def test_repair_works_beside_writers(root: Path) -> None:
    with steno.connect_sync(root, spawn=False) as client:
        session = client.open("demo", follow=False)
        session.append_message({"role": "user", "content": "before"})
        with (root / "sessions" / "demo" / "context.jsonl").open("ab") as file:
            file.write(b'{"role":"us{"role":"user","content":"welded"}\n')
            file.write(b'{"role":"user","content":"whole"}\n')
        follower = client.open("demo")
        report = client.request(Verify(session="demo"), Verification)[0]
        assert [finding.kind for finding in report.findings] == ["welded"]
        session.append_message({"role": "user", "content": "meanwhile"})
        (file,) = [each for each in report.files if each.file == "context.jsonl"]
        command = Repair(
            session="demo", key="mend", generation=0, bytes=file.bytes, crc=file.crc, repeat=True
        )
        ack = client.request(command, Ack)[0]
        again = client.request(command, Ack)[0]
        assert (ack.head, again.head, again.duplicate) == ("1:4", "1:4", True)
        assert follower.wait_for(ack.head)
        contents = [message["content"] for message in follower.history]
        assert contents == ["before", "welded", "whole", "meanwhile"]
        other = Repair(session="demo", key="more", generation=1, bytes=file.bytes, crc=0)
        with pytest.raises(steno.Conflict, match="verify it again") as refused:
            client.request(other, Ack)
        assert refused.value.head == "1:4"
