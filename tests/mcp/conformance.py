"""The protocol's own conformance suite against the notes server.

Its scenarios for servers that need no particular tool, resource or prompt must pass. All
others are named here with the reason, so that a new one in the suite is noticed.
"""

import json
import re
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

import notes_http
import scenario
from notes_http import NEWEST, OLDER, serving
from scenario import check

SUITE = Path(__file__).with_name("node_modules") / "@modelcontextprotocol" / "conformance"

# The versions of the protocol that each scenario runs under.
PASS = {
    "server-initialize": [OLDER],
    "server-session-lifecycle": [OLDER],
    "server-stateless": [NEWEST],
    "ping": [OLDER],
    "tools-list": [OLDER, NEWEST],
    "dns-rebinding-protection": [OLDER, NEWEST],
    "http-header-validation": [NEWEST],
}

# What the suite says of a server without protocol sessions: its checks of them don't apply.
WITHOUT_CHECKS = {"server-session-lifecycle"}
STATELESS = r"Server is stateless .* lifecycle checks not applicable"

# What the suite says of a check that calls a tool which this server doesn't have.
UNTESTABLE = "Not testable: server does not list the diagnostic tool"

# Beginnings of the other names, and why they don't apply.
OTHERS = {
    "tools-call-": "calls a tool of the suite's own reference server",
    "json-schema-2020-12": "lists a tool of the suite's own reference server",
    "elicitation-": "calls a tool that asks the client; idempotent tools ask nothing",
    "input-required-": "calls a tool that asks the client; idempotent tools ask nothing",
    "server-sse-": "calls a tool of the reference server whose stream is broken and resumed; "
    "a call is repeated here, not resumed",
    "http-custom-header-": "calls a tool whose arguments are repeated in headers",
    "resources-": "the server has no resources",
    "sep-2164-": "the server has no resources",
    "prompts-": "the server has no prompts",
    "completion-": "the server has nothing to complete",
    "logging-": "the server sends no log to its clients",
    "caching": "reads resources and prompts",
    "sep-2640-": "the server has no skills",
    "tasks-": "calls the reference server's tools that run as tasks",
}


class AddToken(threading.Thread):
    """A proxy that adds the token to each request: the suite can't send one.

    Each connection has one request, so that only its head is looked at.
    """

    def __init__(self, port: int):
        super().__init__(daemon=True)
        self.server_port = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def run(self) -> None:
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client: socket.socket) -> None:
        with client, notes_http.open_socket(self.server_port) as server:
            received = b""
            while b"\r\n\r\n" not in received:
                part = client.recv(65536)
                if not part:
                    return
                received += part
            head, _, body = received.partition(b"\r\n\r\n")
            first, *lines = head.split(b"\r\n")
            lines = [line for line in lines if not line.lower().startswith(b"connection:")]
            lines += [b"Connection: close", f"Authorization: Bearer {notes_http.ADA}".encode()]
            server.sendall(b"\r\n".join([first, *lines]) + b"\r\n\r\n" + body)
            threading.Thread(target=self.pump, args=(client, server), daemon=True).start()
            self.pump(server, client)

    @staticmethod
    def pump(source: socket.socket, sink: socket.socket) -> None:
        try:
            while part := source.recv(65536):
                sink.sendall(part)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            # One of the two has gone; the other sees the end.
            return


def suite(node: str, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [node, str(SUITE / "dist" / "index.js"), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def check_that_all_are_known(node: str) -> None:
    listed = suite(node, "list", "--server").stdout
    names = re.findall(r"^\s+- (\S+) ", listed, re.MULTILINE)
    check(len(names) > 30, "the suite's scenarios", listed)
    unknown = [
        name for name in names
        if name not in PASS and not any(name.startswith(prefix) for prefix in OTHERS)
    ]
    check(unknown == [], "every scenario run, or left out for a reason", unknown)
    check(set(PASS) <= set(names), "the scenarios that are run", set(PASS) - set(names))


def run(node: str, url: str, name: str, version: str) -> None:
    """Runs a scenario; each of its checks succeeds, or needs a tool of the reference server."""
    with tempfile.TemporaryDirectory() as folder:
        process = suite(
            node,
            *("server", "--url", url, "--scenario", name),
            *("--spec-version", version, "--output-dir", folder),
        )
        output = process.stdout + process.stderr
        files = list(Path(folder).glob("**/checks.json"))
        check(len(files) == 1, f"the results of {name} under {version}", output)
        checks = json.loads(files[0].read_text())
    succeeded = [one for one in checks if one["status"] == "SUCCESS"]
    failed = [
        (one["id"], one.get("errorMessage"))
        for one in checks
        if one["status"] in ("FAILURE", "WARNING")
    ]
    untestable = [one for one in failed if str(one[1]).startswith(UNTESTABLE)]
    check(failed == untestable, f"{name} under {version} to pass", failed)
    enough = bool(succeeded) or (name in WITHOUT_CHECKS and bool(re.search(STATELESS, output)))
    check(enough, f"checks of {name} under {version}", output)
    left_out = f", {len(untestable)} need a tool of the reference server" if untestable else ""
    print(f"conformance: {name} under {version}: {len(succeeded)} checks passed{left_out}")


def main() -> None:
    options = scenario.options()
    check_that_all_are_known(options.node)
    with serving(options.server) as notes:
        proxy = AddToken(notes.port)
        proxy.start()
        url = f"http://127.0.0.1:{proxy.port}/mcp"
        for name, versions in PASS.items():
            for version in versions:
                run(options.node, url, name, version)


main()
