"""A question to a model, repeated within one deadline."""

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import anyio

from steno.llm._http import Lost, Response, post
from steno.llm._json import complaint
from steno.llm._provider import ModelAnswer, Provider, Question, Unusable
from steno.llm._retry import asked_pause, is_worth_repeating, pause_s
from steno.llm._secret import OWN_VARIABLE, Secret
from steno.llm.limits import MODEL_ATTEMPTS_MAX
from steno_protocol.errors import StenoError

Tell = Callable[[str], None]
"""A function that gets a sentence about each failure before another attempt."""


class ModelFailed(StenoError):
    """A model gave no summary; the session is as it was.

    Attributes:
        url: the URL of the request, without secrets.
        status: the HTTP status of the last answer, None when there was none.
        attempts: how often the request was sent.
    """

    def __init__(self, message: str, *, url: str, status: int | None, attempts: int) -> None:
        super().__init__(f"the model at {url} failed: {message}; nothing was changed")
        self.url = url
        self.status = status
        self.attempts = attempts


@dataclass(frozen=True, slots=True)
class World:
    """Clock, sleep and randomness, which tests replace."""

    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    now: Callable[[], float] = time.time
    draw: Callable[[], float] = random.random


class Asking:
    """One question under way; used once.

    Args:
        provider: the API.
        question: the question.
        key: the key, None for a server without keys.
        deadline_s: seconds for all attempts and the pauses between them.
        tell: gets a sentence before each repeat.
        world: clock, sleep and randomness.
    """

    def __init__(
        self,
        provider: Provider,
        question: Question,
        key: Secret | None,
        deadline_s: float,
        tell: Tell,
        world: World,
    ) -> None:
        self._provider = provider
        self._question = question
        self._key = key
        self._call = provider.call(question, key)
        self._deadline_s = deadline_s
        self._tell = tell
        self._world = world
        self._attempts = 0
        self._status: int | None = None
        self._last = "there was no answer"

    async def answer(self) -> ModelAnswer:
        """Return the answer of the model; a cancelled call leaves nothing behind.

        Raises:
            ModelFailed: there is no usable answer, or it came too late.
        """
        with anyio.move_on_after(self._deadline_s) as scope:
            while True:
                outcome = await self._attempt()
                if isinstance(outcome, ModelAnswer):
                    return outcome
                await self._wait(outcome, scope.deadline)
        raise self._failure(f"its deadline of {self._deadline_s:g} s is over, and {self._last}")

    async def _attempt(self) -> ModelAnswer | float:
        """Ask once; return the answer, or the pause before the next attempt in seconds."""
        self._attempts += 1
        got = await post(self._call)
        asked_pause_s: float | None = None
        match got:
            case Response(status=200):
                self._status = got.status
                return self._read(got)
            case Response():
                self._status = got.status
                self._last = f"it answered {got.status}: {complaint(got.body)}"
                if not is_worth_repeating(got.status):
                    raise self._failure(f"{self._last}{self._advice(got)}")
                asked_pause_s = asked_pause(got.headers, self._world.now())
            case Lost():
                self._status = None
                self._last = f"there is no answer: {got.why}"
                if got.is_final:
                    raise self._failure(self._last)
        if self._attempts >= MODEL_ATTEMPTS_MAX:
            raise self._failure(f"asked {self._attempts} times, the last time {self._last}")
        return pause_s(self._attempts, asked_pause_s, self._world.draw())

    async def _wait(self, pause: float, deadline: float) -> None:
        if anyio.current_time() + pause > deadline:
            raise self._failure(
                f"{self._last}; it is to be asked again in {pause:.0f} s, which is beyond the"
                f" deadline of {self._deadline_s:g} s: try again later or allow more time"
            )
        self._tell(self._safe(f"the model is asked again in {pause:.1f} s: {self._last}"))
        await self._world.sleep(pause)

    def _read(self, response: Response) -> ModelAnswer:
        try:
            answer = self._provider.answer(response.body)
        except Unusable as error:
            kind = response.headers.get("content-type", "no content type")
            text = f"{error} ({kind}, {len(response.body)} bytes)"
            raise self._failure(f"{text}: check the base URL and the provider") from None
        if answer.is_cut_off:
            raise self._failure(
                f"its summary was cut off ({answer.ending}), at"
                f" {self._question.max_output_tokens} output tokens or where its context ends:"
                " allow more, or use a model that writes less"
            )
        if not answer.text:
            raise self._failure(
                f"its answer is empty, or nothing but thoughts ({answer.ending}): try another model"
            )
        return answer

    def _advice(self, response: Response) -> str:
        match response.status:
            case 401 | 403:
                had = "the key was refused" if self._key is not None else "it was given no key"
                variables = f"{OWN_VARIABLE} or {self._provider.key_variable}"
                return f"; {had}: set {variables} in the environment"
            case 404:
                return "; check the model's name and the base URL"
            case status if 300 <= status <= 399:
                target = _without_query(response.headers.get("location", "nowhere"))
                return f"; it points to {target}, where no key is sent to: give that base URL"
            case _:
                return ""

    def _failure(self, message: str) -> ModelFailed:
        return ModelFailed(
            self._safe(message), url=self._call.url, status=self._status, attempts=self._attempts
        )

    def _safe(self, text: str) -> str:
        return text if self._key is None else self._key.hidden_in(text)


def _without_query(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{parts.path}" if parts.hostname else parts.path
