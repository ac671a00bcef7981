"""Real processes: the provider with its own log, and servers that are killed and stopped."""

import contextlib
import json
import os
import queue
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

# The tools, by the recovery that they declare.
BY_KEY = "start_deployment"
BY_REFERENCE = "start_deployment_by_reference"
UNAIDED = "start_deployment_unaided"
TOOLS = [BY_KEY, BY_REFERENCE, UNAIDED]

# What a server says on its error output where it halts or stops.
HALTED = {
    "before-sending": "halted before the request is sent",
    "after-answer": "halted after the provider's answer",
}

# The variable that tells the crash-test build where to kill itself.
FAILPOINT = "IDEMPOTENT_TOOL_FAILPOINT"

# Longer than anything takes, on a busy machine as well; what takes longer hangs.
PATIENCE = 300.0

# How long the tools leave an attempt; one that is held is given up then.
ATTEMPT = 4.0

# How long they leave a call, with all of its attempts.
DEADLINE = 20.0

# For how long a provider asks callers to wait, if what is looked at is a pause.
PAUSE = 12

# How often a case is begun that chance spoils.
TRIES = 5


class Ended(AssertionError):
    """The server ended instead of answering."""


class Again(Exception):
    """Chance has spoilt the case: it is run again."""


def check(holds: bool, what: str, observed: object) -> None:
    """Fails with a sentence unless `holds`."""
    if not holds:
        raise AssertionError(f"expected {what}, observed {observed!r}")


@contextlib.contextmanager
def lasting(seconds: float) -> Iterator[None]:
    """Looks at what lasts for so many seconds only. A failure before they are over counts; after
    them the machine was too slow to see it, and the case is run again."""
    started = time.monotonic()
    try:
        yield
    except AssertionError as error:
        if time.monotonic() - started < seconds:
            raise
        raise Again from error


def tried(case: Callable[[int], T]) -> T:
    """Runs a case, again if chance has spoilt it; it is given the number of its run."""
    for run in range(TRIES):
        try:
            return case(run)
        except Again as again:
            spoilt = again
    raise AssertionError(f"chance has spoilt it {TRIES} times") from spoilt


def wait_until(what: str, holds: Callable[[], bool]) -> None:
    """Waits, within bounds, for another process to have done something."""
    until = time.monotonic() + PATIENCE
    while not holds():
        check(time.monotonic() < until, what, "nothing in time")
        time.sleep(0.02)


def reader(stream) -> queue.Queue:
    """The lines of a process's output, read as they come; `None` is the end."""
    lines: queue.Queue = queue.Queue()

    def read() -> None:
        with contextlib.suppress(ValueError):  # The stream was closed under us.
            for line in stream:
                lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return lines


class Server:
    """A server process, and MCP spoken with it line by line."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env={**os.environ, **env}
        )
        self.output, self.errors = reader(self.process.stdout), reader(self.process.stderr)
        self.answered: dict[int, dict] = {}
        self.last_id = 0
        client = {"name": "crash tests", "version": "1"}
        parameters = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        self.response(self.request("initialize", parameters))
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def write(self, message: dict) -> None:
        try:
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise Ended("the server ended and takes no request") from error

    def request(self, method: str, parameters: dict) -> int:
        self.last_id += 1
        request = {"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": parameters}
        self.write(request)
        return self.last_id

    def response(self, request: int) -> dict:
        while request not in self.answered:
            line = self.output.get(timeout=PATIENCE)
            if line is None:
                said = "".join(iter(lambda: self.errors.get(timeout=PATIENCE) or "", ""))
                raise Ended(f"the server ended and did not answer; it said: {said}")
            message = json.loads(line)
            if "id" in message:
                self.answered[message["id"]] = message
        return self.answered.pop(request)

    def send(self, tool: str, arguments: dict) -> int:
        """Sends a call and does not wait."""
        return self.request("tools/call", {"name": tool, "arguments": arguments})

    def receive(self, request: int) -> dict:
        """The reply to a call that was sent."""
        response = self.response(request)
        check("result" in response, "a result", response)
        return response["result"]["structuredContent"]

    def call(self, tool: str, arguments: dict) -> dict:
        return self.receive(self.send(tool, arguments))

    def look(self, operation_id: str) -> dict:
        return self.call("get_operation", {"operation_id": operation_id})

    def cancel(self, operation_id: str) -> dict:
        return self.call("cancel_operation", {"operation_id": operation_id})

    def follow(self, operation_id: str, done: Callable[[dict], bool]) -> dict:
        """Looks at an operation until `done` with it."""
        replies = []

        def is_done() -> bool:
            replies.append(self.look(operation_id))
            return done(replies[-1])

        try:
            wait_until("the operation's end", is_done)
        except Ended:
            raise
        except AssertionError as error:
            raise AssertionError(f"{error}: {replies[-1]}") from error
        return replies[-1]

    def recover(self, tool: str, arguments: dict) -> dict:
        """The same call again, then what the replies ask for."""
        operation_id = self.call(tool, arguments)["operation_id"]
        reply = self.follow(operation_id, is_at_rest)
        if reply.get("retryable"):
            # The first call's own time may be over by now.
            self.call(tool, arguments)
        return self.follow(operation_id, is_settled)

    def says(self, text: str) -> None:
        """Waits until the server has said `text` on its error output."""
        line = ""
        while text not in line:
            line = self.errors.get(timeout=PATIENCE)
            check(line is not None, text, "the end of the server")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.was_killed()

    def was_killed(self) -> None:
        """The process ends by SIGKILL, whoever sent it."""
        code = self.process.wait(PATIENCE)
        check(code == -signal.SIGKILL, "a server ended by SIGKILL", code)

    def is_stopped(self) -> None:
        """Waits until every thread of the process is stopped."""
        status = Path(f"/proc/{self.process.pid}/stat")
        wait_until("a stopped server", lambda: status.read_text().rpartition(")")[2].split()[0] == "T")

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Ends the conversation; the server finishes what it has in hand and ends."""
        self.process.stdin.close()
        check(self.process.wait(PATIENCE) == 0, "a server that ends well", self.process.returncode)


def is_at_rest(reply: dict) -> bool:
    """Whether no attempt is under way, by the reply's own word."""
    return reply["status"] not in ("accepted", "running", "cancel_requested")


def is_settled(reply: dict) -> bool:
    """Whether the same call would change nothing."""
    return is_at_rest(reply) and not reply.get("retryable")


class Lab:
    """A provider, and a folder with its log and the servers' ledger."""

    def __init__(self, binary: str, crash_binary: str, stack: contextlib.ExitStack) -> None:
        self.binary, self.crash_binary, self.stack = binary, crash_binary, stack
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.log_file, self.db = folder / "provider.log", folder / "ledger.sqlite3"
        provider = subprocess.Popen(
            [binary, "provider", "--log", str(self.log_file)], stdout=subprocess.PIPE, text=True
        )
        stack.callback(provider.wait)
        stack.callback(provider.kill)
        self.url = provider.stdout.readline().removeprefix("listening on ").strip()
        # A proxy of the environment is not for this machine.
        self.http = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def server(self, *flags: str, failpoint: str | None = None) -> Server:
        """A server on the lab's ledger; with a failpoint, its build that kills itself."""
        binary = self.crash_binary if failpoint else self.binary
        command = [binary, "serve", "--db", str(self.db), "--provider", self.url, *flags]
        server = Server(command, {FAILPOINT: failpoint} if failpoint else {})
        self.stack.callback(server.process.wait)
        self.stack.callback(server.process.kill)
        return server

    def script(self, *behaviours: dict) -> None:
        """How the provider takes the next requests."""
        self.ask("PUT", "script", list(behaviours))

    def switches(self, **switches: object) -> None:
        """What the provider is able to do."""
        self.ask("PUT", "switches", switches)

    def release(self) -> None:
        """Has the requests answered that are held."""
        self.ask("POST", "release", None)

    def ask(self, method: str, path: str, body: object) -> None:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/{path}", data, method=method)
        request.add_header("content-type", "application/json")
        self.http.open(request, timeout=PATIENCE).close()

    def log(self, event: str) -> list[dict]:
        """The provider's log, from the disk."""
        lines = self.log_file.read_text().split("\n")[:-1]
        entries = [json.loads(line) for line in lines]
        return [entry for entry in entries if entry["event"] == event]

    def requests(self) -> int:
        return len(self.log("received"))

    def held(self) -> list[str]:
        """The ids of the deployments that the provider really holds."""
        return [created["deployment_id"] for created in self.log("created")]

    def states(self) -> list[str]:
        """The states of all external operations in the ledger."""
        with contextlib.closing(sqlite3.connect(self.db, timeout=PATIENCE)) as connection:
            return [row[0] for row in connection.execute("SELECT state FROM idempotent_external")]

    def stopped_server(self, point: str, tool: str, arguments: dict) -> tuple[Server, int]:
        """A server that has stopped at `point` of a call, and the call's request.

        One that was stopped while a thread of it wrote keeps the ledger locked, which nobody
        can pass; and on a busy machine the stop may take hold only after the handler has gone
        on. Both are other cases than the one that is tried here.
        """
        server = self.server("--stop", point)
        request = server.send(tool, arguments)
        server.says(HALTED[point])
        server.is_stopped()
        sent = self.requests()
        if self.states() != ["attempting"] or (point == "before-sending" and sent > 0):
            raise Again
        with contextlib.closing(sqlite3.connect(self.db, timeout=0)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                raise Again from error
            connection.rollback()
        return server, request

    def operation_id(self) -> str:
        """The id of the latest external operation in the ledger."""
        query = (
            "SELECT lower(hex(operation_id)) FROM idempotent_external"
            " ORDER BY operation_id DESC LIMIT 1"
        )
        with contextlib.closing(sqlite3.connect(self.db, timeout=PATIENCE)) as connection:
            [[operation_id]] = connection.execute(query).fetchall()
        return f"op_{operation_id}"
