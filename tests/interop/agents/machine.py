"""A home folder with agents, a model, and steno, which follows what they write."""

import difflib
import os
import signal
import subprocess
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import steno
from interop.agents.mock_model import MockModel, Request
from interop.agents.programs import Program, environment
from interop.agents.said import Said, joined, of_chat
from steno_agents.following import lines_of
from steno_follow.source_notes import last_note
from support.command import Steno
from support.pacing import wait_for_fact

_PROMPT_BEHIND: Final = frozenset({"qwen", "copilot", "kimi-code", "gemini"})
"""Programs that take the prompt behind `-p`, also as they go on."""

RUN_S: Final = 180.0
"""A call of a program takes up to 3 s of a core, and ten programs may want that core."""

TEST_S: Final = 600.0
"""A test has up to nine of these calls."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What a call of a program did.

    Attributes:
        session: the program's id of the session.
        file: its transcript.
        request: the last request of the turn.
        shape: what the program does to a conversation as it sends it.
    """

    session: str
    file: Path
    request: Request
    shape: Callable[[list[Said]], list[Said]] = list


class Machine:
    """Programs and steno of one user.

    Attributes:
        home: the home folder.
        model: the model that the programs ask.
        steno: the command.
    """

    def __init__(self, home: Path, root: Path) -> None:
        self.home = home
        self.model = MockModel()
        self.steno = Steno(root, HOME=str(home))
        self._root = root
        self._environment = environment(home, self.model.url)
        self._shop = home / "shop"
        self._shop.mkdir(parents=True)
        (self._shop / "a.txt").write_text("one\n")

    def close(self) -> None:
        """End the model, and the daemon."""
        self.model.close()
        self.steno("stop")

    def set_up(self, program: Program) -> None:
        """Write the settings of a program."""
        for name, text in program.settings(self.model.url).items():
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    # --- the programs -----------------------------------------------------------------------------

    def turn(
        self,
        program: Program,
        prompt: str,
        resumed: str | None = None,
        *,
        forks: bool = False,
        fails: bool = False,
    ) -> Turn:
        """Let a program carry out a prompt.

        Args:
            program: the program.
            prompt: what a person types.
            resumed: the session to go on with; None begins one.
            forks: it goes on in a copy.
            fails: the program may end with an error.
        """
        before = set(self.files(program))
        if forks and program.copy:
            self.run(*program.copy, str(resumed))
            [copied] = set(self.files(program)) - before
            return self.turn(program, prompt, program.session_of(copied), fails=fails)
        request = self.ask(program, prompt, resumed, forks=forks, fails=fails)
        if resumed is None or forks:
            [file] = set(self.files(program)) - before
        else:
            file = self.file_of(program, resumed)
        shape = joined if program.joins_prompts else list[Said]
        return Turn(program.session_of(file), file, request, shape)

    def ask(
        self,
        program: Program,
        prompt: str,
        resumed: str | None = None,
        *,
        forks: bool = False,
        fails: bool = False,
    ) -> Request:
        """Let a program carry out a prompt; returns the last request of the turn."""
        asked = len(self.model.requests)
        with self.running(program, prompt, resumed, forks=forks) as process:
            out, errors = process.communicate(timeout=RUN_S)
        assert fails or process.returncode == 0, out + errors
        requests = self.model.requests[asked:]
        # Behind the turn, a program may ask for a summary.
        of_turn = [each for each in requests if prompt in each.prompts[-1:]]
        return (of_turn or requests)[-1]

    def run(self, *words: str) -> str:
        """Run a command of a program to its end; returns what it printed."""
        with self._begin(words) as process:
            out, errors = process.communicate(timeout=RUN_S)
        assert process.returncode == 0, out + errors
        return out

    @contextmanager
    def running(
        self, program: Program, prompt: str, resumed: str | None = None, *, forks: bool = False
    ) -> "Generator[subprocess.Popen[str]]":
        """A program that carries out a prompt; it is killed with all that it started."""
        words = program.begin if resumed is None else program.fork if forks else program.resume
        which = [] if resumed is None else [resumed]
        # Claude Code takes it so in each call, and others anywhere.
        is_named = resumed is not None and program.name in _PROMPT_BEHIND
        # opencode puts quotes around words that are one argument.
        said = prompt.split(" ") if program.name == "opencode" else [prompt]
        given = [*words, *which, *(["-p"] if is_named else []), *said]
        with self._begin(given) as process:
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def _begin(self, words: Sequence[str]) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            words,
            cwd=self._shop,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def file_of(self, program: Program, session: str) -> Path:
        """The transcript of a session."""
        file, *others = [
            each for each in self.files(program) if program.session_of(each) == session
        ]
        # Gemini CLI begins another file in another minute, and goes on in either of them.
        assert not others or program.name == "gemini"
        return max([file, *others], key=lambda each: each.stat().st_mtime_ns)

    def files(self, program: Program) -> list[Path]:
        """The transcripts of a program."""
        return sorted(self.home.glob(program.files))

    # --- steno ------------------------------------------------------------------------------------

    @contextmanager
    def watch(self) -> "Generator[subprocess.Popen[str]]":
        """`steno watch` of the whole home folder."""
        process = self.steno.begin("watch", "--json")
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def kill_daemon(self) -> None:
        """Kill steno's daemon; the next request starts another one."""
        os.kill(self.steno("status", "--json").document["pid"], signal.SIGKILL)

    def session_of(self, file: Path) -> str | None:
        """The session of a transcript; None if there is none yet."""
        with steno.connect_sync(self._root) as client:
            for info in client.sessions():
                note = last_note(client, info.session)
                if note is not None and note.path == str(file):
                    return info.session
        return None

    def context(self, file: Path) -> list[Said]:
        """What steno's context of a transcript says."""
        session = self.session_of(file)
        if session is None:
            return []
        with steno.connect_sync(self._root) as client:
            return list(of_chat(each.record for each in client.session(session).records()))

    def past(self, file: Path) -> list[list[Said]]:
        """What the past generations of its context say."""
        session = self.session_of(file)
        assert session is not None
        with steno.connect_sync(self._root) as client:
            number = client.stat(session).generation
            found = [client.session(session).records(f"{each}:0") for each in range(number)]
            return [list(of_chat(each.record for each in records)) for records in found]

    def kept(self, file: Path) -> bytes:
        """The bytes that steno has of a transcript."""
        session = self.session_of(file)
        assert session is not None
        with steno.connect_sync(self._root) as client:
            names = {each.name for each in client.session(session).streams()}
            names -= {"source", "tool-results"}
            stream = client.session(session).stream(names.pop())
            return b"".join(lines_of(each.data for each in stream.records(strict=True)))

    def wait_until_followed(self, turn: Turn) -> None:
        """Wait until steno's context is the turn's request with its answer."""
        wanted, shape = turn.shape(turn.request.whole), turn.shape
        try:
            wait_for_fact(
                lambda: shape(self.context(turn.file)) == wanted, RUN_S, "another context"
            )
        except AssertionError:
            found = shape(self.context(turn.file))
            raise AssertionError("\n".join(_differences(found, wanted))) from None
        # What a program writes behind its answer changes no context, and comes later.
        wait_for_fact(
            lambda: self.kept(turn.file) == turn.file.read_bytes(), RUN_S, "the file's bytes"
        )


def _differences(found: list[Said], wanted: list[Said]) -> Iterator[str]:
    """How a context differs from what the program sent."""
    yield "steno's context (-) differs from the request and its answer (+):"
    yield from difflib.ndiff(_lines(found), _lines(wanted))


def _lines(said: list[Said]) -> list[str]:
    return [f"{each.kind}: {each.text!r}" for each in said]
