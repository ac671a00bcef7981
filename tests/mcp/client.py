"""A client of the Python SDK that does what lines on its standard input say.

One JSON object a line asks for one thing, and one line answers; `clients.py` writes them.
"""

import contextlib
import json
import sys

import anyio
import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult


@contextlib.asynccontextmanager
async def connected(mode: str, target: dict):
    """A client in touch with the target; a lost answer must not hang it."""
    if target["command"] is not None:
        program, *arguments = target["command"]
        server = StdioServerParameters(command=program, args=arguments, env=target["env"])
        async with Client(server, mode=mode, read_timeout_seconds=300) as client:
            yield client
        return
    async with httpx2.AsyncClient(headers=target["headers"], timeout=300) as http:
        transport = streamable_http_client(target["url"], http_client=http)
        async with Client(transport, mode=mode, read_timeout_seconds=300) as client:
            yield client


async def call(client: Client, tool: str, arguments: dict, timeout: float | None) -> dict:
    """The result of a call, checked by the SDK's own validation.

    The SDK leaves errors unvalidated; a strict client does not.
    """
    result: CallToolResult = await client.call_tool(
        tool, arguments, read_timeout_seconds=timeout
    )
    await client.session.validate_tool_result(tool, result)
    return {
        "structuredContent": result.structured_content,
        "texts": [block.text for block in result.content],
        "isError": bool(result.is_error),
    }


class Conversation:
    """The lines, and whether one still waits for its answer."""

    def __init__(self) -> None:
        self.waiting = False

    async def read(self) -> dict | None:
        line = await anyio.to_thread.run_sync(sys.stdin.readline)
        self.waiting = bool(line)
        return json.loads(line) if line else None

    def answer(self, **members: object) -> None:
        print(json.dumps(members), flush=True)
        self.waiting = False

    def fail(self, error: BaseException) -> None:
        """Answers what waits with an error; tells the innermost one of a group."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if self.waiting:
            self.answer(error=f"{type(error).__name__}: {error}")

    async def with_one_server(self, mode: str, target: dict) -> None:
        """Connects, and does what is asked until the end of the connection is."""
        async with connected(mode, target) as client:
            self.answer(version=client.protocol_version)
            while asked := await self.read():
                if "close" in asked:
                    break
                try:
                    if "list" in asked:
                        tools = (await client.list_tools()).tools
                        listed = [tool.model_dump(by_alias=True, mode="json") for tool in tools]
                        self.answer(tools=listed)
                    else:
                        self.answer(result=await call(client, **asked["call"]))
                except Exception as error:
                    self.fail(error)
        if self.waiting:
            self.answer()

    async def run(self, mode: str) -> None:
        while asked := await self.read():
            if "connect" not in asked:
                # The connection has ended by itself, and the error was told.
                self.answer(**({} if "close" in asked else {"error": "not connected"}))
                continue
            try:
                await self.with_one_server(mode, asked["connect"])
            except Exception as error:
                self.fail(error)


anyio.run(Conversation().run, sys.argv[1])
