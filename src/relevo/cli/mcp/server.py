"""The MCP server: lists the tools, and calls the operation behind one."""

from __future__ import annotations

from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import mcp_types as types
import msgspec
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from relevo.cli import tree
from relevo.cli.calling.calls import way_to
from relevo.cli.mcp.agent_tools import BY_NAME, INSTRUCTIONS, TOOLS, argument_schema, values_of
from relevo.errors import NotFound, RelevoError
from relevo.http.answers import detail, public

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.cli.calling.calls import Calls
    from relevo.cli.mcp.agent_tools import AgentTool
    from relevo.cli.session import Session


async def serve(session: Session) -> None:
    """Serve the agent at standard input and output until it closes them."""
    async with AsyncExitStack() as stack:
        reading = tree.operation("router.offers.list")  # which never creates a database
        calls = await stack.enter_async_context(way_to(reading, session, agent=True))
        reader, writer = await stack.enter_async_context(stdio_server())
        server = server_of(calls)
        await server.run(reader, writer, server.create_initialization_options())


def server_of(calls: Calls) -> Server[Any]:
    """Return a server whose tools go through these calls."""

    async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in TOOLS])

    async def call_tool(_: Any, request: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            return _result(await _call(calls, request.name, request.arguments or {}))
        except RelevoError as error:
            return _refusal(error)

    return Server(
        "relevo", version=version("relevo"), instructions=INSTRUCTIONS,
        on_list_tools=list_tools, on_call_tool=call_tool,
    )  # fmt: skip


def _described(tool: AgentTool) -> types.Tool:
    operation = tree.operation(tool.operation)
    return types.Tool(
        name=tool.name,
        description=operation.summary,
        input_schema=argument_schema(operation),
        annotations=types.ToolAnnotations(
            read_only_hint=operation.method == "GET",
            destructive_hint=tool.destructive,
            open_world_hint=False,
        ),
    )


async def _call(calls: Calls, name: str, arguments: Mapping[str, Any]) -> bytes:
    tool = BY_NAME.get(name)
    if tool is None:
        raise NotFound(f"there is no tool {name!r}; there are {', '.join(BY_NAME)}")
    operation = tree.operation(tool.operation)
    reply = await calls.call(operation, values_of(operation, arguments))
    return reply.body


def _result(body: bytes) -> types.CallToolResult:
    text = body.decode() or "done"
    value = msgspec.json.decode(body) if body else None
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=value if isinstance(value, dict) else None,
    )


def _refusal(error: RelevoError) -> types.CallToolResult:
    shown = public(error)
    text = f"{shown.code}: {detail(shown)}"
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)
