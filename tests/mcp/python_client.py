"""The Python SDK against the notes server, on the newest protocol and on the older one."""

import contextlib
import json
import sqlite3
from argparse import Namespace

import anyio
import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult

import scenario
from scenario import BODY, NOTE, check
from targets import TRANSPORTS, Target

# How the client connects, and what that negotiates.
MODES = {"auto": "2026-07-28", "2026-07-28": "2026-07-28", "legacy": "2025-11-25"}


@contextlib.asynccontextmanager
async def connect(target: Target, mode: str):
    """A connected client; a lost answer must not hang it."""
    if target.command is not None:
        program, *arguments = target.command
        server = StdioServerParameters(command=program, args=arguments, env=target.env)
        async with Client(server, mode=mode, read_timeout_seconds=60) as client:
            yield client
        return
    async with httpx2.AsyncClient(headers=target.headers, timeout=60) as http:
        transport = streamable_http_client(target.url, http_client=http)
        async with Client(transport, mode=mode, read_timeout_seconds=60) as client:
            yield client


async def call(client: Client, arguments: dict) -> dict:
    """The reply of `create_note`, checked by the SDK's own validation.

    The SDK leaves errors unvalidated; a strict client does not.
    """
    result: CallToolResult = await client.call_tool("create_note", arguments)
    await client.session.validate_tool_result("create_note", result)
    reply = result.structured_content
    check(isinstance(reply, dict), "structured content", result)
    texts = [block.text for block in result.content]
    check(len(texts) == 2 and json.loads(texts[0]) == reply, "the same as text", texts)
    check(texts[1].endswith("."), "a sentence", texts)
    check(bool(result.is_error) == (reply["status"] != "succeeded"), "a fitting isError", result)
    return reply


async def happy_path(options: Namespace, transport: type, mode: str) -> None:
    """First call, replay and every reachable refusal, in one connection."""
    with scenario.database() as db, transport(options, db) as server:
        async with connect(server.serve(), mode) as client:
            check(client.protocol_version == MODES[mode], MODES[mode], client.protocol_version)
            listing = (await client.list_tools()).tools
            scenario.check_listing(
                {tool.name: tool.model_dump(by_alias=True, mode="json") for tool in listing}
            )
            first = await call(client, NOTE)
            note_id = scenario.check_succeeded(first, replayed=False)
            replay = await call(client, NOTE)
            scenario.check_succeeded(replay, replayed=True)
            check(replay == {**first, "replayed": True}, "the first reply", replay)
            # The default, given: the same arguments.
            scenario.check_succeeded(await call(client, {**NOTE, "pinned": False}), replayed=True)
            for arguments, code, paths in scenario.REFUSED:
                scenario.check_refused(await call(client, arguments), code, paths)
            notes = await client.call_tool("list_notes", {})
            check(not notes.is_error and BODY in str(notes), "the note in the list", notes)
            try:
                await client.call_tool("no_such_tool", {})
            except MCPError as error:
                check(error.code == -32602, "the SDK's own error", error)
            else:
                check(False, "an error for an unknown tool", None)
        check(scenario.note_ids(db) == [note_id], "one note", scenario.note_ids(db))

        # The permission is taken away: a key that exists and one that doesn't read alike.
        async with connect(server.serve("create_note"), mode) as client:
            known = await call(client, NOTE)
            scenario.check_rejected(known, "denied")
            unknown = await call(client, {**NOTE, "idempotency_key": "never-used"})
            check(known == unknown, "the same words", unknown)


async def lost_answer(options: Namespace, transport: type, mode: str) -> None:
    """The server is killed between commit and answer; the retry gets the same note."""
    with scenario.database() as db, transport(options, db) as server:
        answer = None
        try:
            async with connect(server.serve_doomed(), mode) as client:
                await client.list_tools()
                answer = await client.call_tool("create_note", NOTE)
        # How the SDK says it depends on the transport.
        except* (MCPError, httpx2.TransportError):
            pass
        check(answer is None, "no answer", answer)
        server.check_killed()
        committed = scenario.note_ids(db)
        check(len(committed) == 1, "one committed note", committed)

        async with connect(server.serve(), mode) as client:
            retry = await call(client, NOTE)
            check(scenario.check_succeeded(retry, replayed=True) == committed[0], "it", retry)
        check(scenario.note_ids(db) == committed, "one note", scenario.note_ids(db))


async def own_time_out(options: Namespace, transport: type, mode: str) -> None:
    """The client gives up while another process holds the write lock; its retry is one note."""
    with scenario.database() as db, transport(options, db) as server:
        async with connect(server.serve(), mode) as client:
            await client.list_tools()
            with contextlib.closing(sqlite3.connect(db, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                try:
                    answer = await client.call_tool("create_note", NOTE, read_timeout_seconds=0.5)
                except MCPError as error:
                    check("imed out" in str(error), "a time-out", error)
                else:
                    check(False, "no answer", answer)
                other.execute("ROLLBACK")
            reply = await call(client, NOTE)
            check(reply["status"] == "succeeded", "a success", reply)
        check(len(scenario.note_ids(db)) == 1, "one note", scenario.note_ids(db))


def main() -> None:
    options = scenario.options()
    for transport in TRANSPORTS:
        for mode, version in MODES.items():
            for test in (happy_path, lost_answer, own_time_out):
                anyio.run(test, options, transport, mode)
            how = f"{version} (mode {mode}) over {transport.name}"
            print(f"python mcp: {how} passed, an answer lost and replayed")


main()
