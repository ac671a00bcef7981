"""What a client connects to: the notes server on standard streams, or over HTTP.

Each scenario runs on both. A target is a command to start or a URL to call, on one database.
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

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {notes_http.ADA}"}


class Stdio:
    """A server process for each connection, started by the client."""

    name = "stdio"

    def __init__(self, options: Namespace, db: Path):
        self.options = options
        self.db = db
        self.exit_file = db.with_name("exit")

    def __enter__(self) -> "Stdio":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def serve(self, *denied: str) -> Target:
        """A server that denies these tools."""
        flags = [flag for tool in denied for flag in ("--deny", tool)]
        return Target(command=scenario.serve(self.options.server, self.db, *flags))

    def serve_doomed(self) -> Target:
        """A server that is killed between the commit of its first call and the answer."""
        command = scenario.serve(self.options.crash_server, self.db)
        env = {scenario.FAILPOINT: self.options.failpoint}
        return Target(command=scenario.recorded(command, self.exit_file), env=env)

    def check_killed(self) -> None:
        code = int(self.exit_file.read_text())
        check(code == -signal.SIGKILL, "a server ended by SIGKILL", code)


class Http:
    """One server process for all connections."""

    name = "http"

    def __init__(self, options: Namespace, db: Path):
        self.options = options
        self.notes = notes_http.Server(options.server, db)

    def __enter__(self) -> "Http":
        return self

    def __exit__(self, *_: object) -> None:
        if self.notes.is_alive():
            check(self.notes.end() == 0, "an orderly end", self.notes.process.returncode)

    def serve(self, *denied: str) -> Target:
        """A server that denies these tools, from now on."""
        permitted = [tool for tool in notes_http.ALL_TOOLS if tool not in denied]
        notes_http.write_tokens(self.notes.tokens, {notes_http.ADA: permitted})
        if not self.notes.is_alive():
            self.notes.start()
        return Target(url=self.notes.url)

    def serve_doomed(self) -> Target:
        """A server that is killed between the commit of its first call and the answer."""
        env = {scenario.FAILPOINT: self.options.failpoint}
        self.notes.start(self.options.crash_server, env)
        return Target(url=self.notes.url)

    def check_killed(self) -> None:
        code = self.notes.wait()
        check(code == -signal.SIGKILL, "a server ended by SIGKILL", code)


TRANSPORTS = [Stdio, Http]
