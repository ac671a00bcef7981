"""External operations over HTTP, against the deployments example and its real provider."""

import argparse
import contextlib
import signal
import sys
from pathlib import Path

import notes_http
from notes_http import ADA, BOB, NEWEST, OLDER, Connection

sys.path.append(str(Path(__file__).parents[1] / "crash"))
from lab import BY_KEY, HALTED, TOOLS, UNAIDED, Lab, check, wait_until  # noqa: E402

RUNS = 20
OWN_TOOLS = ["get_operation", "cancel_operation"]


class Deployments(notes_http.Server):
    """The deployments example over HTTP."""

    def __init__(self, lab: Lab):
        super().__init__(lab.binary, lab.db, {ADA: TOOLS, BOB: TOOLS})
        self.lab = lab
        self.flags: list[str] = []

    def command(self, server: str) -> list[str]:
        target = ["serve", "--db", str(self.db), "--provider", self.lab.url]
        return [server, *target, *self.flags]


class Client:
    """Calls by one token, on one version of the protocol."""

    def __init__(self, server: Deployments, token: str = ADA, version: str = NEWEST):
        self.connection = Connection(server.port, token, version)
        self.version = version

    def call(self, tool: str, **arguments: object) -> dict:
        message = notes_http.call(arguments, self.version, tool)
        status, answer = self.connection.post(message)
        check(status == 200 and "result" in answer, "a result", (status, answer))
        result = answer["result"]
        reply = result["structuredContent"]
        errors = {"rejected"} if tool in OWN_TOOLS else {
            "failed", "rejected", "cancelled", "outcome_unknown"
        }
        check(result["isError"] == (reply["status"] in errors), "a fitting isError", result)
        return reply

    def deploy(self, tool: str, key: str) -> dict:
        return self.call(tool, idempotency_key=key, service=key, image="web:7")

    def until(self, operation_id: str, *statuses: str) -> dict:
        replies = []

        def is_there() -> bool:
            replies.append(self.call("get_operation", operation_id=operation_id))
            return replies[-1]["status"] in statuses

        wait_until(f"one of {statuses}", is_there)
        return replies[-1]


@contextlib.contextmanager
def laboratory(options: argparse.Namespace):
    with contextlib.ExitStack() as stack:
        lab = Lab(options.server, options.server, stack)
        yield lab, stack.enter_context(Deployments(lab))


def every_status(options: argparse.Namespace, version: str) -> None:
    with laboratory(options) as (lab, server):
        server.start()
        hers, his = Client(server, ADA, version), Client(server, BOB, version)
        lab.script({"kind": "hold"})
        running = hers.deploy(BY_KEY, "held")
        check(running["status"] == "running", "a handle", running)
        operation_id = running["operation_id"]
        check(hers.until(operation_id, "running")["attempts"] != [], "an attempt", operation_id)
        # Another principal has another operation under the same key, and can't see this one.
        other = his.deploy(BY_KEY, "held")
        check(other["operation_id"] != operation_id, "another operation", other)
        for tool in OWN_TOOLS:
            hidden = his.call(tool, operation_id=operation_id)
            check(hidden["error"]["code"] == "not_found", "nothing found", hidden)
            unknown = his.call(tool, operation_id="op_0190163d8694739b8ab4a3c0d1f2e3a4")
            check(hidden == unknown, "the same words", (hidden, unknown))
        asked = hers.call("cancel_operation", operation_id=operation_id)
        check(asked["status"] == "cancel_requested", "a request", asked)
        lab.release()
        hers.until(operation_id, "succeeded")

        lab.script({"kind": "too_many", "seconds": 12})
        waiting = hers.deploy(BY_KEY, "waiting")
        cancelled = hers.call("cancel_operation", operation_id=waiting["operation_id"])
        check(cancelled["status"] == "cancelled", "an established end", cancelled)

        lab.script({"kind": "drop_response"})
        lost = hers.deploy(UNAIDED, "lost")
        check(lost["status"] == "outcome_unknown", "an unknown outcome", lost)
        check("list of deployments" in lost["next_action"], "where to look", lost)
        check(hers.deploy(UNAIDED, "lost")["status"] == "outcome_unknown", "no second try", lost)
        check(server.end() == 0, "an orderly end", server.process.returncode)


def crash_before_the_effect(options: argparse.Namespace) -> None:
    """The key is reserved and its attempt has begun; the server is killed before it sends."""
    with laboratory(options) as (lab, server):
        for run in range(RUNS):
            key = f"reserved-{run}"
            server.flags = ["--halt", "before-sending"]
            server.start()
            doomed = notes_http.open_socket(server.port)
            arguments = {"idempotency_key": key, "service": key, "image": "web:7"}
            doomed.sendall(notes_http.raw(notes_http.call(arguments, tool=BY_KEY)))
            line = server.process.stderr.readline()
            check(HALTED["before-sending"] in line, "a halted server", line)
            check(server.end(signal.SIGKILL) == -signal.SIGKILL, "a killed server", line)
            doomed.close()

            server.flags = []
            server.start()
            client = Client(server, version=(NEWEST, OLDER)[run % 2])
            reply = client.deploy(BY_KEY, key)
            if reply["status"] != "succeeded":
                client.until(reply["operation_id"], "succeeded", "outcome_unknown")
                reply = client.deploy(BY_KEY, key)
            if reply["status"] != "succeeded":
                reply = client.until(reply["operation_id"], "succeeded")
            created = [line for line in lab.log("created") if line["order"]["service"] == key]
            check(len(created) == 1, "one deployment", created)
            check(server.end() == 0, "an orderly end", server.process.returncode)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True, help="the deployments example")
    options = parser.parse_args()
    for version in (NEWEST, OLDER):
        every_status(options, version)
        print(f"http: every status of an external operation under {version}")
    crash_before_the_effect(options)
    print(f"http: {RUNS} of {RUNS} reserved keys recovered with one effect each")


main()
