"""The Inspector's command line against the notes server, on both eras of the protocol.

Each invocation is a connection of its own, and on standard streams a server process.
"""

import json
import subprocess
from pathlib import Path

import scenario
from scenario import BODY, NOTE, check
from targets import TRANSPORTS, Target

OPTIONS = scenario.options()
PACKAGE = Path(__file__).with_name("node_modules") / "@modelcontextprotocol" / "inspector"
LAUNCHER = PACKAGE / "clients" / "launcher" / "build" / "index.js"
ERAS = ["modern", "legacy"]

# The Inspector's exit codes.
OK = 0
TOOL_ERROR = 5


def inspect(target: Target, era: str, *arguments: str) -> subprocess.CompletedProcess:
    """Runs the Inspector once."""
    if target.command is None:
        headers = [f"{name}: {value}" for name, value in target.headers.items()]
        reach = ["--server-url", target.url, "--transport", "http", "--header", *headers]
    else:
        variables = [f"{name}={value}" for name, value in (target.env or {}).items()]
        reach = [part for variable in variables for part in ("-e", variable)]
        reach += ["--", *target.command]
    return subprocess.run(
        [
            *(OPTIONS.node, str(LAUNCHER), "--cli"),
            *("--protocol-era", era, "--format", "json", *arguments, *reach),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def call(target: Target, era: str, arguments: dict, exit_code: int) -> dict:
    """The reply of `create_note`; the Inspector validates it, errors included."""
    process = inspect(
        target,
        era,
        *("--method", "tools/call", "--tool-name", "create_note"),
        *("--tool-args-json", json.dumps(arguments)),
    )
    check(process.returncode == exit_code, f"exit code {exit_code}", process)
    result = json.loads(process.stdout)["result"]
    check(result.get("isError", False) == (exit_code == TOOL_ERROR), "a fitting isError", result)
    check(json.loads(result["content"][0]["text"]) == result["structuredContent"], "both", result)
    return result["structuredContent"]


def happy_path(transport: type, era: str) -> None:
    with scenario.database() as db, transport(OPTIONS, db) as server:
        target = server.serve()
        # `--strict` fails for schemas that some hosts can't use.
        process = inspect(target, era, "--method", "tools/list", "--strict")
        check(process.returncode == OK, "portable schemas", process)
        listing = json.loads(process.stdout)
        scenario.check_listing({tool["name"]: tool for tool in listing["result"]["tools"]})
        ours = [
            finding
            for tool in listing.get("schemaFindings", [])
            for finding in tool["findings"]
            if tool["toolName"] == "create_note"
        ]
        check(ours == [], "no finding in our schemas", ours)

        first = call(target, era, NOTE, OK)
        note_id = scenario.check_succeeded(first, replayed=False)
        replay = call(target, era, NOTE, OK)
        check(replay == {**first, "replayed": True}, "the first reply", replay)
        for arguments, code, paths in scenario.REFUSED:
            scenario.check_refused(call(target, era, arguments, TOOL_ERROR), code, paths)
        denied = call(server.serve("create_note"), era, NOTE, TOOL_ERROR)
        scenario.check_rejected(denied, "denied")
        process = inspect(target, era, "--method", "tools/call", "--tool-name", "list_notes")
        check(process.returncode == OK and BODY in process.stdout, "the note listed", process)
        check(scenario.note_ids(db) == [note_id], "one note", scenario.note_ids(db))


def lost_answer(transport: type, era: str) -> None:
    with scenario.database() as db, transport(OPTIONS, db) as server:
        process = inspect(
            server.serve_doomed(),
            era,
            *("--method", "tools/call", "--tool-name", "create_note"),
            *("--tool-args-json", json.dumps(NOTE)),
        )
        check(process.returncode not in (OK, TOOL_ERROR), "no answer", process)
        server.check_killed()
        committed = scenario.note_ids(db)
        check(len(committed) == 1, "one committed note", committed)

        retry = call(server.serve(), era, NOTE, OK)
        check(scenario.check_succeeded(retry, replayed=True) == committed[0], "it", retry)
        check(scenario.note_ids(db) == committed, "one note", scenario.note_ids(db))


def main() -> None:
    for transport in TRANSPORTS:
        for era in ERAS:
            happy_path(transport, era)
            lost_answer(transport, era)
            how = f"{era} era over {transport.name}"
            print(f"inspector: {how} passed, an answer lost and replayed")


main()
