"""What every client's scenario shares: the servers, the arguments, and the rows in the file."""

import argparse
import contextlib
import sqlite3
import sys
import tempfile
from pathlib import Path

# The provider of external effects, and what starts its servers, are the crash tests'.
sys.path.append(str(Path(__file__).parents[1] / "crash"))

KEY = "note-request-7b025dc8"
BODY = "Investigate the failing parser fixture."
NOTE = {"idempotency_key": KEY, "body": BODY}

# The variable that tells the crash-test build where to kill itself.
FAILPOINT = "IDEMPOTENT_TOOL_FAILPOINT"

RECORD_EXIT = str(Path(__file__).with_name("record_exit.py"))
RELAY = str(Path(__file__).with_name("relay.py"))


def options() -> argparse.Namespace:
    """The server, its crash-test build and where to kill that, from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True, help="the notes server")
    parser.add_argument("--crash-server", required=True, help="its build with failpoints")
    parser.add_argument("--failpoint", required=True, help="what `find_failpoint.py` printed")
    parser.add_argument("--deployments", help="the deployments server")
    parser.add_argument("--node", help="the Node that runs the clients written for it")
    return parser.parse_args()


def serve(server: str, db: Path, *flags: str) -> list[str]:
    """The command that serves what is in `db`."""
    return [server, "serve", "--db", str(db), *flags]


def recorded(command: list[str], exit_file: Path) -> list[str]:
    """The command, its exit code written to `exit_file`: clients keep it to themselves."""
    return [sys.executable, RECORD_EXIT, str(exit_file), *command]


def relayed(how: str, command: list[str]) -> list[str]:
    """The command, what becomes of its results decided by `relay.py`."""
    return [sys.executable, RELAY, how, *command]


@contextlib.contextmanager
def database():
    """A path for a new database, in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "notes.sqlite3"


def note_ids(db: Path) -> list[str]:
    """The ids of all notes in the file."""
    with contextlib.closing(sqlite3.connect(db)) as connection:
        return [row[0] for row in connection.execute("SELECT id FROM notes ORDER BY id")]


def check(holds: bool, what: str, observed: object) -> None:
    """Ends the run with a sentence unless `holds`."""
    if not holds:
        raise SystemExit(f"failed: expected {what}, observed {observed!r}")


def check_listing(tools: dict[str, dict]) -> None:
    """Both the toolbox's tool and the application's plain one are listed, as promised."""
    check(set(tools) == {"create_note", "list_notes"}, "both tools in one listing", set(tools))
    create_note = tools["create_note"]
    schema = create_note["inputSchema"]
    check(schema["type"] == "object", "an object", schema)
    check(set(schema["required"]) == {"idempotency_key", "body"}, "both required", schema)
    check(schema["additionalProperties"] is False, "a closed schema", schema)
    check(create_note["outputSchema"]["type"] == "object", "an object", create_note)
    hints = create_note["annotations"]
    check(hints["idempotentHint"] is True, "an idempotent tool", hints)
    check(hints["readOnlyHint"] is False, "a tool with effects", hints)
    check("same key and the same arguments" in create_note["description"], "the rule", create_note)


def check_succeeded(reply: dict, replayed: bool) -> str:
    """The reply is the retained result; returns the note's id."""
    check(reply["status"] == "succeeded", "a success", reply)
    check(reply["replayed"] is replayed, f"replayed: {replayed}", reply)
    check(reply["operation_id"].startswith("op_"), "an operation id", reply)
    return reply["result"]["note_id"]


def check_rejected(reply: dict, code: str) -> None:
    """The reply refuses with `code`, and says what to do."""
    check(reply["status"] == "rejected", "a rejection", reply)
    check(reply["error"]["code"] == code, code, reply)
    check(reply["retryable"] is False, "not retryable", reply)
    check(bool(reply["next_action"]), "a next action", reply)
    check(BODY not in str(reply) and KEY not in str(reply), "no value of the caller", reply)
