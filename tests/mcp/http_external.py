"""External operations over HTTP, against the deployments example and its real provider."""

import argparse
import contextlib
import signal

import notes_http
from lab import ATTEMPT, BY_KEY, HALTED, PAUSE, TOOLS, UNAIDED, Lab, check
from lab import is_at_rest, lasting, tried, wait_until
from notes_http import ADA, BOB, NEWEST, OLDER, Connection, Server

RUNS = 20
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
TASKS = "io.modelcontextprotocol/tasks"
COLLEAGUE, READER = f"{ADA}/colleague", f"{ADA}/reader"
AT_REST = ["succeeded", "failed", "cancelled", "outcome_unknown"]
OWN_TOOLS = ["get_operation", "cancel_operation"]


class Client:
    """Calls by one token, on one version of the protocol."""

    def __init__(self, server: Server, token: str = ADA, version: str = NEWEST):
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

    def is_hidden(self, operation_id: str) -> None:
        """An operation that this token may not see reads like one that doesn't exist."""
        for tool in OWN_TOOLS:
            hidden = self.call(tool, operation_id=operation_id)
            check(hidden["error"]["code"] == "not_found", "nothing found", hidden)
            unknown = self.call(tool, operation_id="op_0190163d8694739b8ab4a3c0d1f2e3a4")
            check(hidden == unknown, "the same words", (hidden, unknown))

    def listing(self, **meta: object) -> dict:
        message = notes_http.request("tools/list", {}, self.version, **meta)
        _, answer = self.connection.post(message)
        return answer["result"]

    def until(self, operation_id: str, *statuses: str) -> dict:
        replies = []

        def is_there() -> bool:
            replies.append(self.call("get_operation", operation_id=operation_id))
            return replies[-1]["status"] in statuses

        wait_until(f"one of {statuses}", is_there)
        return replies[-1]

    def at_rest(self, tool: str, key: str) -> dict:
        """A call, and what it came to: on a busy machine its own wait may be over first."""
        reply = self.deploy(tool, key)
        if is_at_rest(reply):
            return reply
        operation_id = reply["operation_id"]
        return self.until(operation_id, *AT_REST)


@contextlib.contextmanager
def laboratory(options: argparse.Namespace):
    with contextlib.ExitStack() as stack:
        lab = Lab(options.server, options.server, stack)
        tokens = {ADA: TOOLS, BOB: TOOLS}
        server = Server(lab.binary, lab.db, tokens, ["--provider", lab.url])
        yield lab, stack.enter_context(server)


def held_and_cancelled(lab: Lab, hers: Client, his: Client, key: str) -> None:
    lab.script({"kind": "hold"})
    with lasting(ATTEMPT):
        running = hers.deploy(BY_KEY, key)
        check(running["status"] == "running", "a handle", running)
        operation_id = running["operation_id"]
        check(hers.until(operation_id, "running")["attempts"] != [], "an attempt", operation_id)
        # Another principal has another operation under the same key; neither sees the other's.
        other = his.deploy(BY_KEY, key)
        check(other["operation_id"] != operation_id, "another operation", other)
        his.is_hidden(operation_id)
        hers.is_hidden(other["operation_id"])
        asked = hers.call("cancel_operation", operation_id=operation_id)
        check(asked["status"] == "cancel_requested", "a request", asked)
        lab.release()
        ended = hers.until(operation_id, "succeeded", "outcome_unknown")
        check(ended["status"] == "succeeded", "what really happened", ended)


def cancelled_in_a_pause(lab: Lab, hers: Client, key: str) -> None:
    lab.script({"kind": "too_many", "seconds": PAUSE})
    with lasting(PAUSE):
        operation_id = hers.deploy(BY_KEY, key)["operation_id"]

        def is_reported() -> bool:
            attempts = hers.call("get_operation", operation_id=operation_id)["attempts"]
            return attempts != [] and attempts[-1]["outcome"] != "unreported"

        wait_until("a pause", is_reported)
        cancelled = hers.call("cancel_operation", operation_id=operation_id)
        check(cancelled["status"] == "cancelled", "an established end", cancelled)


def every_status(options: argparse.Namespace, version: str) -> None:
    with laboratory(options) as (lab, server):
        server.start()
        hers, his = Client(server, ADA, version), Client(server, BOB, version)
        tried(lambda run: held_and_cancelled(lab, hers, his, f"held-{run}"))
        tried(lambda run: cancelled_in_a_pause(lab, hers, f"waiting-{run}"))

        lab.script({"kind": "drop_response"})
        lost = hers.at_rest(UNAIDED, "lost")
        check(lost["status"] == "outcome_unknown", "an unknown outcome", lost)
        check("list of deployments" in lost["next_action"], "where to look", lost)
        check(hers.deploy(UNAIDED, "lost")["status"] == "outcome_unknown", "no second try", lost)
        check(server.end() == 0, "an orderly end", server.process.returncode)


def looked_at_and_cancelled(
    lab: Lab, server: Server, tokens: dict[str, list[str]], version: str, key: str
) -> None:
    hers = Client(server, ADA, version)
    notes_http.write_tokens(server.tokens, tokens)
    lab.script({"kind": "hold"})
    with lasting(ATTEMPT):
        operation_id = hers.deploy(BY_KEY, key)["operation_id"]
        hers.until(operation_id, "running")
        Client(server, READER, version).is_hidden(operation_id)
        # Taken away between the call and the look: the operation is hidden from its own caller.
        notes_http.write_tokens(server.tokens, {**tokens, ADA: [UNAIDED]})
        hers.is_hidden(operation_id)
        denied = hers.deploy(BY_KEY, key)
        check(denied["error"]["code"] == "denied", "a denial", denied)
        notes_http.write_tokens(server.tokens, tokens)
        hers.until(operation_id, "running")
        # Nobody but a holder of the permission has cancelled anything.
        asked = Client(server, COLLEAGUE, version).call(
            "cancel_operation", operation_id=operation_id
        )
        check(asked["status"] == "cancel_requested", "a colleague's request", asked)
        lab.release()
        ended = hers.until(operation_id, "succeeded", "outcome_unknown")
        check(ended["status"] == "succeeded", "what really happened", ended)


def whoever_may_call_may_look_and_cancel(options: argparse.Namespace, version: str) -> None:
    """In one scope, by the permission for the operation's own tool; token files name no other."""
    tokens = {ADA: [BY_KEY], COLLEAGUE: [BY_KEY], READER: [UNAIDED], BOB: []}
    with laboratory(options) as (lab, server):
        notes_http.write_tokens(server.tokens, tokens)
        server.start()
        hers = Client(server, ADA, version)
        permitted = lambda run: looked_at_and_cancelled(lab, server, tokens, version, f"held-{run}")
        tried(permitted)

        # The listing is one and the same for all of them, and for every client's capabilities.
        listed = hers.listing()
        for token in tokens:
            other = Client(server, token, version).listing()
            check(other == listed, "one listing", (token, other))
        if version == NEWEST:
            declared = hers.listing(**{CAPABILITIES: {"extensions": {TASKS: {}}}})
            check(declared == listed, "one listing", declared)
        check(server.end() == 0, "an orderly end", server.process.returncode)


def crash_before_the_effect(options: argparse.Namespace) -> None:
    """The key is reserved and its attempt has begun; the server is killed before it sends."""
    with laboratory(options) as (lab, server):
        ordinary = server.flags
        for run in range(RUNS):
            key = f"reserved-{run}"
            server.flags = [*ordinary, "--halt", "before-sending"]
            server.start()
            doomed = notes_http.open_socket(server.port)
            arguments = {"idempotency_key": key, "service": key, "image": "web:7"}
            doomed.sendall(notes_http.raw(notes_http.call(arguments, tool=BY_KEY)))
            line = server.process.stderr.readline()
            check(HALTED["before-sending"] in line, "a halted server", line)
            check(server.end(signal.SIGKILL) == -signal.SIGKILL, "a killed server", line)
            doomed.close()

            server.flags = ordinary
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
        whoever_may_call_may_look_and_cancel(options, version)
        print(f"http: whoever may call may look and cancel under {version}")
    crash_before_the_effect(options)
    print(f"http: {RUNS} of {RUNS} reserved keys recovered with one effect each")


main()
