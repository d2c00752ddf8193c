"""`steno view` as a process, and a browser's requests to it."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2

from support.command import Steno

WAIT_S = 30.0
"""The viewer answers long before; a longer silence is a failure."""


def wait_for(fact: Callable[[], bool]) -> None:
    """Ask until something is true, as a page asks again and again."""
    until = time.monotonic() + WAIT_S
    while not fact():
        assert time.monotonic() < until, f"it was not true within {WAIT_S:.0f} s"
        time.sleep(0.02)


@dataclass(frozen=True, slots=True)
class PageEvent:
    """One server-sent event."""

    name: str
    data: Any
    id: str | None


@dataclass(slots=True)
class PageStream:
    """The events of one stream, read as they are wanted.

    Attributes:
        last_id: the id of the last event that had one, as the page remembers it.
    """

    lines: Iterator[str]
    last_id: str | None = None
    _fields: dict[str, str] = field(default_factory=dict[str, str])

    def wait_for(self, name: str, **data: object) -> PageEvent:
        """Return the next event of a name whose data has these values."""
        return self.wait_for_each({name: data})[name]

    def wait_for_each(self, wanted: Mapping[str, Mapping[str, object]]) -> dict[str, PageEvent]:
        """Return an event of each name with these values, in any order."""
        found: dict[str, PageEvent] = {}
        until = time.monotonic() + WAIT_S
        for event in self:
            data = wanted.get(event.name)
            if data is not None and all(event.data.get(key) == data[key] for key in data):
                found[event.name] = event
            if found.keys() == wanted.keys():
                return found
            assert time.monotonic() < until, f"no {wanted} within {WAIT_S:.0f} s"
        raise AssertionError(f"the stream ended before {wanted}")

    def __iter__(self) -> Iterator[PageEvent]:
        for line in self.lines:
            if line:
                name, _, value = line.partition(": ")
                self._fields[name] = value
                continue
            fields, self._fields = self._fields, {}
            if "event" not in fields:
                continue
            self.last_id = fields.get("id", self.last_id)
            yield PageEvent(fields["event"], json.loads(fields["data"]), fields.get("id"))


class Visit:
    """A browser without a screen: the token of a page of the viewer, and its headers.

    Attributes:
        printed: the printed address.
        address: the address of the page, without the token.
        token: the token of the printed address.
        http: the client that sends the requests.
    """

    def __init__(self, printed: str) -> None:
        parts = urlsplit(printed)
        self.printed = printed
        self.address = f"{parts.scheme}://{parts.netloc}"
        self.token = token_of(printed)
        self.http = httpx2.Client(base_url=self.address, timeout=WAIT_S, trust_env=False)

    def login(self, token: str | None = None) -> httpx2.Response:
        """Exchange a token, by default that of the printed address, for the one of requests."""
        response = self.http.post(
            "/api/login",
            json={"token": self.token if token is None else token},
            headers={"origin": self.address},
        )
        if response.status_code == 200:
            self.http.headers["authorization"] = f"Bearer {response.json()['token']}"
        return response

    def get(self, path: str, **parameters: object) -> Any:
        """The JSON answer to a question."""
        response = self.http.get(f"/api/{path}", params=parameters)
        assert response.status_code == 200, response.text
        return response.json()

    def post(self, path: str, **document: object) -> httpx2.Response:
        """The response to a change."""
        return self.http.post(f"/api/{path}", json=document, headers={"origin": self.address})

    @contextmanager
    def stream(
        self,
        session: str,
        after: str | None = None,
        browser: str | None = None,
    ) -> Iterator[PageStream]:
        """Follow a session, from a state on such as that of a lost stream."""
        given = {"session": session, "after": after, "browser": browser}
        parameters = {name: value for name, value in given.items() if value is not None}
        with self.http.stream("GET", "/api/events", params=parameters) as response:
            assert response.status_code == 200
            yield PageStream(response.iter_lines(), after)

    def close(self) -> None:
        """Close its connections."""
        self.http.close()


@dataclass(slots=True)
class RunningViewer:
    """A viewer that serves.

    Attributes:
        process: its process.
        visit: a browser that has the token.
    """

    process: "subprocess.Popen[str]"
    visit: Visit

    def next_address(self) -> str:
        """The printed address that no browser has opened; to be used before the next call."""
        return _next_address(self.process)

    def interrupt(self) -> int:
        """Press Ctrl-C, and return the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(WAIT_S)


def token_of(address: str) -> str:
    """The token of a printed address."""
    return parse_qs(urlsplit(address).fragment)["token"][0]


def _next_address(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        assert process.stderr is not None
        raise AssertionError(process.stderr.read())
    return str(json.loads(line)["address"])


@contextmanager
def viewing(steno: Steno, *arguments: str) -> Iterator[RunningViewer]:
    """A viewer with these arguments, ended by Ctrl-C."""
    process = steno.begin("--json", "view", "--no-browser", *arguments, stderr=subprocess.PIPE)
    try:
        visit = Visit(_next_address(process))
        try:
            visit.login()
            yield RunningViewer(process, visit)
        finally:
            visit.close()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=WAIT_S)
