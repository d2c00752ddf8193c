"""One HTTP request and its response, without redirects and within a bound."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import anyio
import anyio.to_thread

from steno.llm._address import is_loopback
from steno.llm._provider import Call
from steno.llm.limits import MODEL_ANSWER_BYTES_MAX, MODEL_CONNECT_S
from steno_protocol import __version__
from steno_protocol.installation import extra_command

try:
    import httpx2
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"asking a model needs httpx2: install it with `{extra_command('llm')}`", name="httpx2"
    ) from error


@dataclass(frozen=True, slots=True)
class Response:
    """The answer of a server; the names of its `headers` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Lost:
    """There is no whole answer; `is_final` when another attempt would end the same way."""

    why: str
    is_final: bool = False


async def post(call: Call) -> Response | Lost:
    """Send a request and read the whole answer.

    Failures of the network are returned, not raised: an exception of httpx2 holds the request, and
    with it the key. A cancelled call closes its connection, which the server sees.
    """
    # In a thread: the first one reads the machine's certificates.
    client = await anyio.to_thread.run_sync(_client, call)
    async with client:
        try:
            return await _exchange(client, call)
        except httpx2.ConnectTimeout:
            return Lost(f"no connection within {MODEL_CONNECT_S:g} s")
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, httpx2.LocalProtocolError) as error:
            return Lost(_words(error), is_final=True)
        except httpx2.HTTPError as error:
            return Lost(_words(error))


def _client(call: Call) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        verify=_certificates(),
        # Only a deadline of the whole bounds a model's thinking; see `_asking`.
        timeout=httpx2.Timeout(None, connect=MODEL_CONNECT_S),
        follow_redirects=False,
        # A proxy of the environment leads out of this machine, and not back to it.
        trust_env=not is_loopback(call.url),
    )


@cache
def _certificates() -> ssl.SSLContext:
    """The certificates that verify a server; loading takes 0.1 s, so they are loaded once."""
    return httpx2.create_ssl_context()


async def _exchange(client: httpx2.AsyncClient, call: Call) -> Response | Lost:
    async with client.stream("POST", call.url, content=call.body, headers=_headers(call)) as got:
        if got.headers.get("content-encoding", "identity") != "identity":
            return Lost("its answer is compressed, which was not asked for", is_final=True)
        body = await _body(got)
        if body is None:
            text = f"its answer has more than {MODEL_ANSWER_BYTES_MAX} bytes"
            return Lost(text, is_final=True)
        # Servers quote the key that they refuse; from here on no message can contain it.
        safe = body if call.key is None else call.key.hidden_in_bytes(body)
        return Response(got.status_code, dict(got.headers), safe)


async def _body(response: httpx2.Response) -> bytes | None:
    """The body as it arrived, None when it is over its bound."""
    body = bytearray()
    with anyio.CancelScope() as scope:
        async for chunk in response.aiter_raw():
            body += chunk[: MODEL_ANSWER_BYTES_MAX + 1 - len(body)]
            if len(body) > MODEL_ANSWER_BYTES_MAX:
                # Not `break`: the generators below end in order only when they are cancelled.
                scope.cancel()
    return None if len(body) > MODEL_ANSWER_BYTES_MAX else bytes(body)


def _headers(call: Call) -> dict[str, str]:
    headers = {
        **call.headers,
        "content-type": "application/json",
        "accept": "application/json",
        # A small answer can unpack to one that fills the memory.
        "accept-encoding": "identity",
        "user-agent": f"steno/{__version__}",
    }
    if call.key is not None:
        name, before = call.key_header
        headers[name] = call.key.header(before)
    return headers


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
