"""The Inspector's command line against the notes server, on both eras of the protocol.

Each invocation is a connection and a server process of its own.
"""

import json
import signal
import subprocess
from pathlib import Path

import scenario
from scenario import BODY, NOTE, check

OPTIONS = scenario.options()
PACKAGE = Path(__file__).with_name("node_modules") / "@modelcontextprotocol" / "inspector"
LAUNCHER = PACKAGE / "clients" / "launcher" / "build" / "index.js"
ERAS = ["modern", "legacy"]

# The Inspector's exit codes.
OK = 0
TOOL_ERROR = 5


def inspect(command: list[str], era: str, *arguments: str) -> subprocess.CompletedProcess:
    """Runs the Inspector once."""
    return subprocess.run(
        [
            *(OPTIONS.node, str(LAUNCHER), "--cli"),
            *("--protocol-era", era, "--format", "json", *arguments, "--", *command),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def call(command: list[str], era: str, arguments: dict, exit_code: int) -> dict:
    """The reply of `create_note`; the Inspector validates it, errors included."""
    process = inspect(
        command,
        era,
        *("--method", "tools/call", "--tool-name", "create_note"),
        *("--tool-args-json", json.dumps(arguments)),
    )
    check(process.returncode == exit_code, f"exit code {exit_code}", process)
    result = json.loads(process.stdout)["result"]
    check(result.get("isError", False) == (exit_code == TOOL_ERROR), "a fitting isError", result)
    check(json.loads(result["content"][0]["text"]) == result["structuredContent"], "both", result)
    return result["structuredContent"]


def happy_path(era: str) -> None:
    with scenario.database() as db:
        command = scenario.serve(OPTIONS.server, db)
        # `--strict` fails for schemas that some hosts can't use.
        process = inspect(command, era, "--method", "tools/list", "--strict")
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

        first = call(command, era, NOTE, OK)
        note_id = scenario.check_succeeded(first, replayed=False)
        replay = call(command, era, NOTE, OK)
        check(replay == {**first, "replayed": True}, "the first reply", replay)
        for arguments, code, paths in scenario.REFUSED:
            scenario.check_refused(call(command, era, arguments, TOOL_ERROR), code, paths)
        denied = call([*command, "--deny", "create_note"], era, NOTE, TOOL_ERROR)
        scenario.check_rejected(denied, "denied")
        process = inspect(command, era, "--method", "tools/call", "--tool-name", "list_notes")
        check(process.returncode == OK and BODY in process.stdout, "the note listed", process)
        check(scenario.note_ids(db) == [note_id], "one note", scenario.note_ids(db))


def lost_answer(era: str) -> None:
    with scenario.database() as db:
        exit_file = db.with_name("exit")
        doomed = scenario.recorded(scenario.serve(OPTIONS.crash_server, db), exit_file)
        process = inspect(
            doomed,
            era,
            *("-e", f"{scenario.FAILPOINT}={OPTIONS.failpoint}"),
            *("--method", "tools/call", "--tool-name", "create_note"),
            *("--tool-args-json", json.dumps(NOTE)),
        )
        check(process.returncode not in (OK, TOOL_ERROR), "no answer", process)
        code = int(exit_file.read_text())
        check(code == -signal.SIGKILL, "a server ended by SIGKILL", code)
        committed = scenario.note_ids(db)
        check(len(committed) == 1, "one committed note", committed)

        retry = call(scenario.serve(OPTIONS.server, db), era, NOTE, OK)
        check(scenario.check_succeeded(retry, replayed=True) == committed[0], "it", retry)
        check(scenario.note_ids(db) == committed, "one note", scenario.note_ids(db))


def main() -> None:
    for era in ERAS:
        happy_path(era)
        lost_answer(era)
        print(f"inspector: {era} era passed, an answer lost and replayed")


main()
