"""The notes example's commands: the demonstration, one call, the listing, and quiet logs."""

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

from scenario import check

# Where the marked texts appear, a caller's data has reached a log.
BODY = "m4rk3d-v4lu3 of a note"
KEY = "m4rk3d-v4lu3-key"

CHECKS = (
    "concurrent retries, lost response, payload conflict, second principal, "
    "revoked permission, kill, expired key, old version"
)


def run(*command: str, stdin: str | None = None, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        env=os.environ | env,
        timeout=300,
        check=False,
    )


def demonstration(notes: str) -> None:
    shown = run(notes)
    check(shown.returncode == 0, "the demonstration passes", shown.stderr)
    last = shown.stdout.rstrip().splitlines()[-1]
    check(last == f"Passed: {CHECKS}", "its last line names all checks", last)
    # Without a place for its files no check can pass, and it says so.
    failed = run(notes, TMPDIR="/nonexistent")
    check(failed.returncode != 0, "a demonstration that can't run fails", failed.stdout)
    check(failed.stderr.startswith("error: "), "it says why", failed.stderr)


def calls(notes: str, db: Path) -> None:
    def call(*flags: str, body: str = BODY) -> dict:
        arguments = json.dumps({"idempotency_key": KEY, "body": body})
        done = run(notes, "call", "create_note", "--db", str(db), *flags, arguments)
        check(done.returncode == 0, "a call prints its reply", done.stderr)
        return json.loads(done.stdout)

    first, again = call(), call()
    check(not first["replayed"] and again["replayed"], "the second call is a replay", again)
    check(first["result"] == again["result"], "both have the same note", again)
    conflict = call(body="another")
    check(conflict["error"]["code"] == "payload_conflict", "other arguments conflict", conflict)
    others = [call("--account", "b"), call("--principal", "b"), call("--workspace", "b")]
    check(not any(other["replayed"] for other in others), "each identity is its own", others)
    denied = call("--deny", "create_note")
    check(denied["error"]["code"] == "denied", "a denied caller gets nothing", denied)


def listing(notes: str) -> None:
    shown = json.loads(run(notes, "schema", "create_note").stdout)
    names = list(shown["inputSchema"]["properties"])
    check(sorted(names) == ["body", "idempotency_key", "pinned"], "the listing is v2's", names)
    check(shown["outputSchema"]["type"] == "object", "both schemas are shown", shown)
    plain = run(notes, "schema", "list_notes")
    check(plain.returncode != 0, "only idempotent tools have a listing of ours", plain.stdout)
    said = "`list_notes` is not an idempotent tool; try `create_note`"
    check(said in plain.stderr, "it says so", plain.stderr)


def flags(notes: str, folder: Path) -> None:
    """What contradicts itself, or can't be meant, is refused before anything is opened."""
    db, tokens = folder / "flags.db", folder / "tokens.toml"
    tokens.write_text("")
    http = ["--http", "127.0.0.1:0", "--tokens", str(tokens)]
    for refused, said in (
        (["--http", "127.0.0.1:0"], "--tokens"),
        (["--allowed-host", "notes.example.com"], "--http"),
        ([*http, "--allowed-host", "https://notes.example.com"], "--allowed-host"),
        ([*http, "--principal", "ada"], "--principal"),
        ([*http, "--deny", "create_note"], "--deny"),
        ([*http[:-1], "missing.toml"], "`missing.toml` can't be read: No such file"),
    ):
        done = run(notes, "serve", "--db", str(db), *refused, stdin="")
        check(done.returncode != 0, f"{refused} to be refused", done.stderr)
        check(said in done.stderr, f"an error that names {said}", done.stderr)
    check(not db.exists(), "no database", db)


def quiet(notes: str, db: Path) -> None:
    """Whatever the environment asks for, no argument reaches the server's log."""
    initialize = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "quiet", "version": "0"},
    }
    arguments = {"idempotency_key": KEY + "-quiet", "body": BODY}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "create_note", "arguments": arguments},
        },
    ]
    command = [notes, "serve", "--db", str(db)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"RUST_LOG": "trace"},
    ) as server:
        for message in messages:
            server.stdin.write(json.dumps(message) + "\n")
        server.stdin.flush()
        answers = [json.loads(server.stdout.readline()) for _ in range(2)]
        server.stdin.close()
        log = server.stderr.read()
    reply = answers[1]["result"]["structuredContent"]
    check(reply["status"] == "succeeded", "the call succeeds", reply)
    check("m4rk3d" not in log, "no argument is in the log", log)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    options, _ = parser.parse_known_args()
    notes = str(Path(options.server).resolve())
    with tempfile.TemporaryDirectory() as folder:
        demonstration(notes)
        calls(notes, Path(folder, "calls.db"))
        listing(notes)
        flags(notes, Path(folder))
        quiet(notes, Path(folder, "quiet.db"))
    print("the command line passed")


if __name__ == "__main__":
    main()
