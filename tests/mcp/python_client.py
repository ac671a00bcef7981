"""The Python SDK against the notes server, on the newest protocol and on the older one."""

import json
import signal

import anyio
from mcp import Client, MCPError, StdioServerParameters
from mcp_types import CallToolResult

import scenario
from scenario import BODY, KEY, NOTE, check

# How the client connects, and what that negotiates.
MODES = {"auto": "2026-07-28", "2026-07-28": "2026-07-28", "legacy": "2025-11-25"}


def connect(command: list[str], mode: str, env: dict[str, str] | None = None) -> Client:
    """A client of a server process of its own; a lost answer must not hang it."""
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=env)
    return Client(parameters, mode=mode, read_timeout_seconds=60)


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


async def happy_path(server: str, mode: str) -> None:
    """First call, replay and every reachable refusal, in one connection."""
    with scenario.database() as db:
        async with connect(scenario.serve(server, db), mode) as client:
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
        async with connect(scenario.serve(server, db, "--deny", "create_note"), mode) as client:
            known = await call(client, NOTE)
            scenario.check_rejected(known, "denied")
            unknown = await call(client, {**NOTE, "idempotency_key": "never-used"})
            check(known == unknown, "the same words", unknown)


async def lost_answer(server: str, crash_server: str, mode: str) -> None:
    """The server is killed between commit and answer; the retry gets the same note."""
    with scenario.database() as db:
        exit_file = db.with_name("exit")
        doomed = scenario.recorded(scenario.serve(crash_server, db), exit_file)
        async with connect(doomed, mode, scenario.KILL_AFTER_COMMIT) as client:
            await client.list_tools()
            try:
                answer = await client.call_tool("create_note", NOTE)
            except MCPError as error:
                check(error.code == -32000, "a closed connection", error)
            else:
                check(False, "no answer", answer)
        code = int(exit_file.read_text())
        check(code == -signal.SIGKILL, "a server ended by SIGKILL", code)
        committed = scenario.note_ids(db)
        check(len(committed) == 1, "one committed note", committed)

        async with connect(scenario.serve(server, db), mode) as client:
            retry = await call(client, NOTE)
            check(scenario.check_succeeded(retry, replayed=True) == committed[0], "it", retry)
        check(scenario.note_ids(db) == committed, "one note", scenario.note_ids(db))


def main() -> None:
    server, crash_server = scenario.servers()
    for mode, version in MODES.items():
        anyio.run(happy_path, server, mode)
        anyio.run(lost_answer, server, crash_server, mode)
        print(f"python mcp: {version} (mode {mode}) passed, key {KEY} lost and replayed")


main()
