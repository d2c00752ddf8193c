"""The server: requests of MCP to the resources, tools and subscriptions."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

import anyio
import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from steno import Client
from steno_mcp.errors import tool_error
from steno_mcp.limits import CALLS_MAX
from steno_mcp.resources import Resources, templates
from steno_mcp.subscriptions import Subscriptions
from steno_mcp.tools import TOOLS, Source, Tool
from steno_mcp.values import schema_of
from steno_protocol import __version__
from steno_protocol._json import is_object
from steno_protocol.errors import BadRequest, Internal, StenoError
from steno_redact.redactor import Redactor

_ADDRESSES: Final = frozenset(
    {
        "session",
        "head",
        "first",
        "last",
        "next",
        "cursor",
        "key",
        "mail_id",
        "forked_from",
        "record",
    }
)
"""Fields of answers that stay as they are; a record was masked before it was cut."""

Context = ServerRequestContext[Any, Any]

_log = logging.getLogger("steno.mcp")

_INSTRUCTIONS: Final = (
    "steno stores sessions of AI agents, and several agents may read and write one session at the"
    " same time. Positions are generation:line; the head of a session is its end. Read before you"
    " write, and give the head that you have seen as `expect`: then nothing changes if another"
    " agent was faster. A revert removes records for all readers, and can be undone with"
    " restore_generation."
)


@dataclass(frozen=True, slots=True)
class Served:
    """A server that is ready for peers.

    Attributes:
        server: the server of the SDK.
        subscriptions: the subscriptions of its peers.
    """

    server: Server[Any]
    subscriptions: Subscriptions


@asynccontextmanager
async def serving(client: Client, redactor: Redactor, *, read_only: bool) -> AsyncGenerator[Served]:
    """A server for any number of peers, in use of one client of the daemon."""
    async with anyio.create_task_group() as tasks:
        subscriptions = Subscriptions(client, tasks)
        handlers = _Handlers(client, redactor, read_only=read_only)
        server: Server[Any] = Server(
            "steno",
            title="steno",
            version=__version__,
            instructions=_INSTRUCTIONS,
            on_list_tools=handlers.list_tools,
            on_call_tool=handlers.call_tool,
            on_list_resources=handlers.list_resources,
            on_list_resource_templates=handlers.list_templates,
            on_read_resource=handlers.read_resource,
            on_subscribe_resource=subscriptions.subscribe,
            on_unsubscribe_resource=subscriptions.unsubscribe,
            on_subscriptions_listen=subscriptions.listen,
        )
        yield Served(server, subscriptions)
        tasks.cancel_scope.cancel()


class _Handlers:
    """One method for each request."""

    def __init__(self, client: Client, redactor: Redactor, *, read_only: bool) -> None:
        self._client = client
        self._redactor = redactor
        self._resources = Resources(client, redactor)
        self._tools = {each.name: each for each in TOOLS if not (read_only and each.is_change)}
        self._places = anyio.CapacityLimiter(CALLS_MAX)

    async def list_tools(
        self, _: Context, __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """The tools, on one page."""
        return types.ListToolsResult(tools=[_described(each) for each in self._tools.values()])

    async def call_tool(
        self, _: Context, asked: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """Carry out a tool; an error of steno is a result that a model can read."""
        tool = self._tools.get(asked.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, self._missing(asked.name))
        try:
            async with self._places:
                arguments = _arguments(tool, asked.arguments)
                result = await tool.run(Source(self._client, self._redactor), arguments)
        except StenoError as error:
            return tool_error(error, self._redactor)
        except Exception:
            _log.exception("the tool %s failed", tool.name)
            reason = Internal(f"{tool.name} failed: the log of `steno mcp` has the reason")
            return tool_error(reason, self._redactor)
        document = _masked(self._redactor, msgspec.to_builtins(result))
        return types.CallToolResult(content=[_text(document)], structured_content=document)

    async def list_resources(
        self, _: Context, asked: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """A page of the sessions."""
        return await self._resources.page(None if asked is None else asked.cursor)

    async def list_templates(
        self, _: Context, __: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """The forms of the URIs."""
        return templates()

    async def read_resource(
        self, _: Context, asked: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """The text of a resource."""
        async with self._places:
            return await self._resources.read(asked.uri)

    def _missing(self, name: str) -> str:
        if any(each.name == name for each in TOOLS):
            return f"{name} changes sessions, and this server only reads: it has --read-only"
        return f"there is no tool {name[:80]!r}: tools/list shows the tools"


def _masked(redactor: Redactor, value: Any) -> Any:
    """An answer with its secrets masked; addresses, by which a peer asks for more, stay exact."""
    if is_object(value):
        return {
            name: each if name in _ADDRESSES else _masked(redactor, each)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [_masked(redactor, each) for each in cast("list[object]", value)]
    return redactor.value(value)


def _arguments(tool: Tool, given: dict[str, Any] | None) -> Any:
    try:
        return msgspec.convert(given or {}, tool.arguments)
    except msgspec.ValidationError as error:
        raise BadRequest(f"the arguments of {tool.name} are wrong: {error}") from None


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=schema_of(tool.arguments),
        output_schema=schema_of(tool.result),
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=not tool.is_change,
            destructive_hint=tool.is_destructive,
            idempotent_hint=tool.is_idempotent or not tool.is_change,
            open_world_hint=False,
        ),
    )


def _text(document: object) -> types.TextContent:
    return types.TextContent(text=msgspec.json.encode(document).decode())
