"""What a client connects to: an example's server on standard streams, or over HTTP.

Each situation is tried on both. A target is a command to start or a URL to call, on one database.
"""

import dataclasses
import signal
from argparse import Namespace
from pathlib import Path

import notes_http
import scenario
from scenario import check


@dataclasses.dataclass
class Target:
    """How to reach a server."""

    command: list[str] | None = None
    env: dict[str, str] | None = None
    url: str | None = None
    headers: dict[str, str] | None = None


@dataclasses.dataclass
class Example:
    """A server's program, its build that can kill itself, and what it is started with."""

    server: str
    db: Path
    tools: list[str]
    flags: list[str] = dataclasses.field(default_factory=list)
    crash_server: str | None = None
    failpoint: str | None = None

    @staticmethod
    def notes(options: Namespace, db: Path) -> "Example":
        doomed = {"crash_server": options.crash_server, "failpoint": options.failpoint}
        return Example(options.server, db, notes_http.ALL_TOOLS, **doomed)

    @property
    def doomed_env(self) -> dict[str, str]:
        """Has it killed between the commit of its first call and the answer."""
        return {scenario.FAILPOINT: self.failpoint}


class Stdio:
    """A server process for each connection, started by the client."""

    name = "stdio"

    def __init__(self, example: Example):
        self.example = example
        self.exit_file = example.db.with_name("exit")

    def __enter__(self) -> "Stdio":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def serve(self, *denied: str) -> Target:
        """A server that denies these tools."""
        flags = [flag for tool in denied for flag in ("--deny", tool)]
        return Target(command=self.command(self.example.server) + flags)

    def serve_relayed(self, how: str) -> Target:
        """A server whose results pass through `relay.py`."""
        return Target(command=scenario.relayed(how, self.command(self.example.server)))

    def serve_doomed(self) -> Target:
        """A server that is killed between the commit of its first call and the answer."""
        command = scenario.recorded(self.command(self.example.crash_server), self.exit_file)
        return Target(command=command, env=self.example.doomed_env)

    def command(self, server: str) -> list[str]:
        return scenario.serve(server, self.example.db, *self.example.flags)

    def check_killed(self) -> None:
        code = int(self.exit_file.read_text())
        check(code == -signal.SIGKILL, "a server ended by SIGKILL", code)


class Http:
    """One server process for all connections."""

    name = "http"

    def __init__(self, example: Example):
        self.example = example
        self.server = notes_http.Server(example.server, example.db, {}, example.flags)

    def __enter__(self) -> "Http":
        return self

    def __exit__(self, failure: type | None, *_: object) -> None:
        with self.server as server:
            if failure is None and server.is_alive():
                check(server.end() == 0, "an orderly end", server.process.returncode)

    def serve(self, *denied: str) -> Target:
        """A server that denies these tools, from now on."""
        permitted = [tool for tool in self.example.tools if tool not in denied]
        notes_http.write_tokens(self.server.tokens, {notes_http.ADA: permitted})
        if not self.server.is_alive():
            self.server.start()
        return self.target()

    def serve_doomed(self) -> Target:
        """A server that is killed between the commit of its first call and the answer."""
        notes_http.write_tokens(self.server.tokens, {notes_http.ADA: self.example.tools})
        self.server.start(self.example.crash_server, self.example.doomed_env)
        return self.target()

    def target(self) -> Target:
        headers = {"Authorization": f"Bearer {notes_http.ADA}"}
        return Target(url=self.server.url, headers=headers)

    def check_killed(self) -> None:
        code = self.server.wait()
        check(code == -signal.SIGKILL, "a server ended by SIGKILL", code)


TRANSPORTS = [Stdio, Http]
