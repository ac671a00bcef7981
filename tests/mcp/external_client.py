"""The Python SDK against the deployments server: every status, each reply validated.

The SDK validates `structuredContent` against the listed output schema; a strict client does
so for errors as well.
"""

import argparse
import contextlib
import json
import sys
from pathlib import Path

import anyio
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult

sys.path.append(str(Path(__file__).parents[1] / "crash"))
from lab import BY_KEY, TOOLS, UNAIDED, Lab, check  # noqa: E402

OWN_TOOLS = {"get_operation", "cancel_operation"}
MODES = ["2026-07-28", "legacy"]

# What a mutating tool's reply is an error with; the toolbox's own only if it is rejected.
ERRORS = {"failed", "rejected", "cancelled", "outcome_unknown"}


class Statuses:
    """Calls of one client; every reply is validated, and its status remembered."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.seen: set[tuple[str, str]] = set()

    async def call(self, tool: str, status: str | None = None, **arguments: object) -> dict:
        result: CallToolResult = await self.client.call_tool(tool, arguments)
        await self.client.session.validate_tool_result(tool, result)
        reply = result.structured_content
        check(isinstance(reply, dict), "structured content", result)
        texts = [block.text for block in result.content]
        check(len(texts) == 2 and json.loads(texts[0]) == reply, "the same as text", texts)
        check(texts[1].endswith("."), "a sentence", texts)
        is_error = reply["status"] in ({"rejected"} if tool in OWN_TOOLS else ERRORS)
        check(bool(result.is_error) == is_error, "a fitting isError", result)
        check(status in (None, reply["status"]), str(status), reply)
        self.seen.add((tool, reply["status"]))
        return reply

    async def deploy(self, tool: str, key: str, status: str | None = None) -> dict:
        order = {"idempotency_key": key, "service": key, "image": "web:7"}
        return await self.call(tool, status, **order)

    async def look(self, operation_id: str, status: str | None = None) -> dict:
        reply = await self.call("get_operation", status, operation_id=operation_id)
        check(isinstance(reply["attempts"], list), "the attempts", reply)
        return reply

    async def follow(self, operation_id: str, status: str) -> dict:
        """Looks until the operation has this status; `get_operation` says how often."""
        with anyio.fail_after(90):
            while (reply := await self.look(operation_id))["status"] != status:
                await anyio.sleep(0.1)
        return reply


def check_listing(tools: dict[str, dict]) -> None:
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


async def every_status(lab: Lab, mode: str) -> None:
    command = ["serve", "--db", str(lab.db), "--provider", lab.url]
    parameters = StdioServerParameters(command=lab.binary, args=command)
    async with Client(parameters, mode=mode, read_timeout_seconds=60) as client:
        listing = (await client.list_tools()).tools
        check_listing({tool.name: tool.model_dump(by_alias=True, mode="json") for tool in listing})
        calls = Statuses(client)

        # succeeded, and rejected for another payload and for what no schema allows.
        first = await calls.deploy(BY_KEY, "made", "succeeded")
        again = await calls.deploy(BY_KEY, "made", "succeeded")
        check(again == {**first, "replayed": True}, "the first reply", again)
        await calls.look(first["operation_id"], "succeeded")
        order = {"idempotency_key": "made", "service": "made", "image": "web:8"}
        conflict = await calls.call(BY_KEY, "rejected", **order)
        check(conflict["error"]["code"] == "payload_conflict", "a conflict", conflict)
        bad = await calls.call(BY_KEY, "rejected", **{**order, "image": 7, "colour": "red"})
        paths = {detail["path"] for detail in bad["error"]["details"]}
        check(paths == {"/image", "/colour"}, "every path", bad)
        for tool in sorted(OWN_TOOLS):
            for operation_id in ("op_no", "op_0190163d8694739b8ab4a3c0d1f2e3a4"):
                reply = await calls.call(tool, "rejected", operation_id=operation_id)
                check(reply["error"]["code"] == "not_found", "nothing found", reply)

        # failed, for good and for now.
        lab.script({"kind": "refuse"}, {"kind": "too_many", "seconds": 3600})
        refused = await calls.deploy(BY_KEY, "refused", "failed")
        check(refused["retryable"] is False, "a final refusal", refused)
        busy = await calls.deploy(BY_KEY, "busy", "failed")
        check(busy["retryable"] is True and busy["next_action"], "what to do", busy)
        await calls.look(busy["operation_id"], "failed")

        # running, cancel_requested, and what really happened.
        lab.script({"kind": "hold"})
        running = await calls.deploy(BY_KEY, "held", "running")
        operation_id = running["operation_id"]
        check(operation_id in running["next_action"], "the exact call", running)
        await calls.look(operation_id, "running")
        await calls.call("cancel_operation", "cancel_requested", operation_id=operation_id)
        await calls.look(operation_id, "cancel_requested")
        await calls.deploy(BY_KEY, "held", "cancel_requested")
        lab.release()
        await calls.follow(operation_id, "succeeded")
        await calls.call("cancel_operation", "succeeded", operation_id=operation_id)

        # cancelled: the provider has asked to wait, so that nothing is under way.
        lab.script({"kind": "too_many", "seconds": 12})
        waiting = await calls.deploy(BY_KEY, "waiting", "running")
        operation_id = waiting["operation_id"]
        await calls.call("cancel_operation", "cancelled", operation_id=operation_id)
        await calls.look(operation_id, "cancelled")
        await calls.deploy(BY_KEY, "waiting", "cancelled")

        # outcome_unknown: the answer is lost, and nothing but a person can tell.
        lab.script({"kind": "drop_response"})
        unknown = await calls.deploy(UNAIDED, "lost", "outcome_unknown")
        check("list of deployments" in unknown["next_action"], "where to look", unknown)
        await calls.look(unknown["operation_id"], "outcome_unknown")
        await calls.call(
            "cancel_operation", "outcome_unknown", operation_id=unknown["operation_id"]
        )

        # accepted: enqueued, and the provider takes nothing for now.
        lab.script({"kind": "too_many", "seconds": 3600})
        order = {"idempotency_key": "later", "service": "later", "image": "web:7"}
        released = await calls.call("release_service", "succeeded", **order)
        operation_id = released["result"]["deployment_operation_id"]
        accepted = await calls.follow(operation_id, "accepted")
        check("next_check_at" in accepted, "when it is looked at again", accepted)

        every = {"accepted", "running", "succeeded", "failed", "cancel_requested", "cancelled"}
        every |= {"outcome_unknown", "rejected"}
        seen = {status for _, status in calls.seen}
        check(seen == every, "every status", seen)
        held = {line["order"]["service"] for line in lab.log("created")}
        check(held >= {"made", "held", "lost"}, "what the provider holds", held)
        check(not held & {"refused", "busy", "waiting"}, "nothing that was not applied", held)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True, help="the deployments example")
    options = parser.parse_args()
    for mode in MODES:
        with contextlib.ExitStack() as stack:
            anyio.run(every_status, Lab(options.server, options.server, stack), mode)
        print(f"python mcp: every status of external tools validated (mode {mode})")


main()
