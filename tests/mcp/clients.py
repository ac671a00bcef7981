"""The clients that users have, behind one interface: each connects, lists and calls.

The SDKs run in processes of their own, for each a whole run long; the Inspector's command line
is a process and a connection for each request. All validate what a tool returns against the
schema that it lists, errors included.
"""

import contextlib
import dataclasses
import json
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from scenario import check
from targets import Target

HERE = Path(__file__).parent
LAUNCHER = HERE / "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"

# The Inspector's exit codes.
OK = 0
TOOL_ERROR = 5


class NoReply(Exception):
    """The client says that a call had no result, or none that it accepts."""


@dataclasses.dataclass
class Result:
    """What a tool returned, after the client's own validation."""

    reply: dict
    texts: list[str]
    is_error: bool


class Sdk:
    """An SDK in a process that does what lines tell it."""

    # Whether each request has a connection of its own, and over stdio a server.
    connects_anew = False
    follows_tasks = False

    def __init__(self, name: str, command: list[str], version: str):
        self.name = name
        self.command = command
        self.version = version

    def __enter__(self) -> "Sdk":
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def ask(self, what: str, how: object = None) -> dict:
        self.process.stdin.write(json.dumps({what: how}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        check(line != "", f"an answer of {self.name} to `{what}`", self.process.poll())
        return json.loads(line)

    @contextlib.contextmanager
    def connect(self, target: Target) -> Iterator["Sdk"]:
        answer = self.ask("connect", dataclasses.asdict(target))
        check(answer.get("version") == self.version, self.version, answer)
        yield self
        # Of a server that was killed, the end of the connection may be an error as well.
        self.ask("close")

    def tools(self) -> dict[str, dict]:
        answer = self.ask("list")
        check("tools" in answer, "a listing", answer)
        return {tool["name"]: tool for tool in answer["tools"]}

    def call(self, tool: str, arguments: dict, timeout: float | None = None) -> Result:
        """Calls, and gives up after so many seconds."""
        answer = self.ask("call", {"tool": tool, "arguments": arguments, "timeout": timeout})
        if "error" in answer:
            raise NoReply(answer["error"])
        result = answer["result"]
        return Result(result["structuredContent"], result["texts"], result["isError"])


class Inspector:
    """The Inspector's command line, in one era of the protocol."""

    connects_anew = True

    def __init__(self, node: str, era: str):
        self.name = f"inspector ({era} era)"
        self.node = node
        self.era = era
        # It declares the extension, which the older protocol doesn't have.
        self.follows_tasks = era == "modern"

    def __enter__(self) -> "Inspector":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @contextlib.contextmanager
    def connect(self, target: Target) -> Iterator["Inspector"]:
        self.target = target
        yield self

    def run(self, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess:
        """Runs it once."""
        target = self.target
        if target.command is None:
            headers = [f"{name}: {value}" for name, value in target.headers.items()]
            reach = ["--server-url", target.url, "--transport", "http", "--header", *headers]
        else:
            variables = [f"{name}={value}" for name, value in (target.env or {}).items()]
            reach = [part for variable in variables for part in ("-e", variable)]
            reach += ["--", *target.command]
        return subprocess.run(
            [
                *(self.node, str(LAUNCHER), "--cli"),
                *("--protocol-era", self.era, "--format", "json", *arguments, *reach),
            ],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def tools(self) -> dict[str, dict]:
        # `--strict` fails for schemas that some hosts can't use.
        process = self.run("--method", "tools/list", "--strict")
        check(process.returncode == OK, "portable schemas", process)
        listing = json.loads(process.stdout)
        tools = {tool["name"]: tool for tool in listing["result"]["tools"]}
        for found in listing.get("schemaFindings", []):
            # The schemas of the application's own tools are the SDK's.
            if "idempotentHint" in tools[found["toolName"]]["annotations"]:
                check(found["findings"] == [], "no finding in our schemas", found)
        return tools

    def call(self, tool: str, arguments: dict, timeout: float = 300) -> Result:
        """Calls, and is ended after so many seconds: its command line has no time-out for a
        call, and passes none on from its file (2.12.0)."""
        try:
            process = self.run(
                *("--method", "tools/call", "--tool-name", tool),
                *("--tool-args-json", json.dumps(arguments)),
                timeout=timeout,
            )
        except subprocess.TimeoutExpired as error:
            raise NoReply(str(error)) from error
        if process.returncode not in (OK, TOOL_ERROR) or not process.stdout:
            raise NoReply(process.stderr)
        result = json.loads(process.stdout)["result"]
        is_error = result.get("isError", False)
        check(is_error == (process.returncode == TOOL_ERROR), "a fitting exit code", process)
        texts = [block["text"] for block in result["content"]]
        return Result(result.get("structuredContent"), texts, is_error)


def clients(options: Namespace) -> list[Sdk | Inspector]:
    """Each client, as it negotiates the newest protocol and the one before."""
    python = [sys.executable, str(HERE / "client.py")]
    node = [options.node, str(HERE / "client.mjs")]
    newest, older = "2026-07-28", "2025-11-25"
    return [
        Sdk("python mcp (auto)", [*python, "auto"], newest),
        Sdk("python mcp (2026-07-28)", [*python, newest], newest),
        Sdk("python mcp (legacy)", [*python, "legacy"], older),
        Sdk("typescript client 2.x (auto)", [*node, "auto"], newest),
        Sdk("typescript client 2.x (legacy)", [*node, "legacy"], older),
        Sdk("typescript sdk 1.x", [*node, "sdk"], older),
        Inspector(options.node, "modern"),
        Inspector(options.node, "legacy"),
    ]
