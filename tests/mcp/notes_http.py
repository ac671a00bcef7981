"""The notes server over HTTP, and a client of it that is nothing but sockets.

Only the standard library: what is sent and what is seen are the bytes themselves.
"""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import scenario
from scenario import check

NEWEST = "2026-07-28"
OLDER = "2025-11-25"
ADA = "ada-token"
BOB = "bob-token"
ALL_TOOLS = ["create_note", "list_notes"]

META = {
    "io.modelcontextprotocol/protocolVersion": NEWEST,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "sockets", "version": "1"},
}


def write_tokens(path: Path, tokens: dict[str, list[str]]) -> None:
    """A token file: each token's principal is its part before a slash, in one account and
    workspace; so two tokens may be one principal's.

    It is replaced in one step: a server that reads it never finds half of it.
    """
    tables = [
        f'[[token]]\ntoken = "{token}"\naccount = "acme"\n'
        f'principal = "{token.partition("/")[0]}"\n'
        f'workspace = "lab"\npermissions = {json.dumps(permissions)}\n'
        for token, permissions in tokens.items()
    ]
    new = path.with_suffix(".new")
    new.write_text("\n".join(tables))
    new.replace(path)


class Server:
    """A server process on a database; the port is the same after a restart."""

    def __init__(
        self,
        server: str,
        db: Path,
        tokens: dict[str, list[str]] | None = None,
        flags: Sequence[str] = (),
    ):
        self.server = server
        self.db = db
        self.flags = list(flags)
        self.tokens = db.with_name("tokens.toml")
        write_tokens(self.tokens, {ADA: ALL_TOOLS, BOB: ALL_TOOLS} if tokens is None else tokens)
        self.port = 0
        self.process: subprocess.Popen | None = None

    def start(self, server: str | None = None, env: dict[str, str] | None = None) -> "Server":
        """Starts it, and waits until it listens."""
        command = scenario.serve(server or self.server, self.db, *self.flags)
        command += ["--http", f"127.0.0.1:{self.port}", "--tokens", str(self.tokens)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        # The first line says where it listens. Later ones would be errors; the pipe holds them.
        line = self.process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/mcp", line)
        check(found is not None, "a server that says where it listens", line)
        self.port = int(found[1])
        return self

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        """Kills it if it still runs, so that a failed test leaves nothing behind."""
        if self.is_alive():
            self.end(signal.SIGKILL)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def end(self, number: int = signal.SIGTERM) -> int:
        """Sends a signal, and returns the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """The exit code, once the process has ended."""
        code = self.process.wait(timeout=300)
        self.process.stderr.close()
        return code

    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def memory(self) -> int:
        """Its resident memory, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024


@contextlib.contextmanager
def serving(server: str, flags: Sequence[str] = ()):
    """A server on a new database."""
    with scenario.database() as db, Server(server, db, flags=flags) as notes:
        yield notes.start()


def call(arguments: dict, version: str = NEWEST, tool: str = "create_note", **meta) -> dict:
    """A request to call a tool."""
    params = {"name": tool, "arguments": arguments}
    return request("tools/call", params, version, **meta)


_last_id = 0


def request(method: str, params: dict, version: str = NEWEST, **meta) -> dict:
    """A request with an id that was never used before."""
    global _last_id
    _last_id += 1
    meta = {**(META if version == NEWEST else {}), **meta}
    if meta:
        params = {**params, "_meta": meta}
    return {"jsonrpc": "2.0", "id": _last_id, "method": method, "params": params}


def headers(message: dict | None, token: str | None = ADA, version: str = NEWEST) -> dict:
    """What every request must carry; the newest protocol repeats some of the body."""
    carried = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": version,
    }
    if token is not None:
        carried["Authorization"] = f"Bearer {token}"
    if version == NEWEST and message is not None:
        carried["Mcp-Method"] = message["method"]
        if message["method"] == "tools/call":
            carried["Mcp-Name"] = message["params"]["name"]
    return carried


class Connection:
    """One connection, kept from request to request."""

    def __init__(self, port: int, token: str | None = ADA, version: str = NEWEST):
        self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        self.token = token
        self.version = version

    def post(self, message: dict, **extra: str) -> tuple[int, dict | None]:
        """The status, and the message that answers."""
        carried = {**headers(message, self.token, self.version), **extra}
        try:
            self.http.request("POST", "/mcp", json.dumps(message), carried)
        except (BrokenPipeError, ConnectionResetError):
            # A body that is too large is answered before its end; the answer is there.
            check(self.http.sock is not None, "a connection", None)
        response = self.http.getresponse()
        body = response.read()
        if response.status >= 400:
            # A refusal may leave the body unread, and the connection ends then.
            self.http.close()
        return response.status, json.loads(body) if body else None

    def reply(self, arguments: dict, **extra: str) -> dict:
        """The reply of `create_note`."""
        status, answer = self.post(call(arguments, self.version), **extra)
        check(status == 200 and "result" in answer, "a result", (status, answer))
        return answer["result"]["structuredContent"]

    def close(self) -> None:
        self.http.close()


def once(port: int, arguments: dict, token: str = ADA, version: str = NEWEST, **extra) -> dict:
    """The reply of `create_note` on a connection of its own."""
    connection = Connection(port, token, version)
    try:
        return connection.reply(arguments, **extra)
    finally:
        connection.close()


def raw(message: dict, token: str | None = ADA, version: str = NEWEST) -> bytes:
    """A whole request as bytes."""
    body = json.dumps(message).encode()
    carried = headers(message, token, version) | {"Host": "localhost", "Content-Length": len(body)}
    head = "".join(f"{name}: {value}\r\n" for name, value in carried.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body


def open_socket(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=300)
