"""A client among the servers that it calls: the notes, and the deployments with their provider."""

import contextlib
import json
from argparse import Namespace
from collections.abc import Iterator

import scenario
from clients import Inspector, Result, Sdk
from lab import TOOLS, Lab, is_at_rest, wait_until
from scenario import check
from targets import Example, Http, Stdio

Client = Sdk | Inspector

OWN_TOOLS = ["get_operation", "cancel_operation"]

# What `get_operation` tells beside the operation's own reply.
INSPECTION = {"attempts", "next_check_at", "key_expires_at"}

# What a mutating tool's reply is an error with; the toolbox's own only if it is rejected.
ERRORS = {"failed", "rejected", "cancelled", "outcome_unknown"}


def call(client: Client, tool: str, arguments: dict) -> dict:
    """The reply of one of our tools, after the checks that hold for all of them."""
    result: Result = client.call(tool, arguments)
    reply, texts = result.reply, result.texts
    check(isinstance(reply, dict), "structured content", result)
    check(len(texts) == 2 and json.loads(texts[0]) == reply, "the same as text", texts)
    check(texts[1].endswith("."), "a sentence", texts)
    is_error = reply["status"] in ({"rejected"} if tool in OWN_TOOLS else ERRORS)
    check(result.is_error == is_error, "a fitting isError", result)
    return reply


class Case:
    """A client, and what its situations share: the notes, and the deployments' provider."""

    def __init__(self, client: Client, notes: Stdio | Http, deployments: Stdio | Http, lab: Lab):
        self.client = client
        self.notes = notes
        self.deployments = deployments
        self.lab = lab
        self.first: dict = {}

    def call(self, tool: str, arguments: dict) -> dict:
        return call(self.client, tool, arguments)

    def create_note(self, arguments: dict) -> dict:
        return self.call("create_note", arguments)

    def deploy(self, tool: str, key: str) -> dict:
        order = {"idempotency_key": key, "service": key, "image": "web:7"}
        return self.call(tool, order)

    def deploy_to_its_end(self, tool: str, key: str) -> dict:
        """The reply of a call that nobody holds up. On a busy machine the call's own wait may be
        over first; the reply is then what it came to."""
        first = self.deploy(tool, key)
        if is_at_rest(first):
            return first
        operation_id = first["operation_id"]
        wait_until("an operation at rest", lambda: is_at_rest(self.look(operation_id)))
        end = self.look(operation_id)
        if not end.get("retryable"):
            # The tool itself tells it; of what may run again the same call begins another run.
            end = self.deploy(tool, key)
        told = {name: value for name, value in end.items() if name not in INSPECTION}
        return {**told, "replayed": first["replayed"]}

    def look(self, operation_id: str) -> dict:
        reply = self.call("get_operation", {"operation_id": operation_id})
        check(isinstance(reply["attempts"], list), "the attempts", reply)
        return reply

    def held(self, service: str) -> int:
        """How many deployments of a service the provider really holds."""
        return sum(line["order"]["service"] == service for line in self.lab.log("created"))


def check_external_listing(tools: dict[str, dict]) -> None:
    """The tools are listed with the toolbox's own, and say how to be called."""
    check(set(tools) == {*TOOLS, *OWN_TOOLS, "release_service"}, "all tools", set(tools))
    for name in TOOLS:
        tool = tools[name]
        check("idempotency_key" in tool["inputSchema"]["required"], "a required key", tool)
        check("get_operation" in tool["description"], "how to inspect it", tool)
        hints = tool["annotations"]
        check(hints["idempotentHint"] is True and hints["openWorldHint"] is True, "hints", hints)
    check(tools["get_operation"]["annotations"]["readOnlyHint"] is True, "a reader", tools)
    check("idempotency_key" not in str(tools["cancel_operation"]["inputSchema"]), "no key", tools)


@contextlib.contextmanager
def case_of(client: Client, transport: type, options: Namespace) -> Iterator[Case]:
    with contextlib.ExitStack() as stack:
        db = stack.enter_context(scenario.database())
        notes = stack.enter_context(transport(Example.notes(options, db)))
        lab = Lab(options.deployments, options.deployments, stack)
        external = Example(lab.binary, lab.db, [*TOOLS, "release_service"], ["--provider", lab.url])
        deployments = stack.enter_context(transport(external))
        yield Case(client, notes, deployments, lab)
