"""Every status of external tools through the SDKs, each reply validated by the client's own means."""

from argparse import Namespace

from cases import OWN_TOOLS, Case, Client, case_of, check_external_listing
from clients import Sdk, clients
from lab import ATTEMPT, BY_KEY, PAUSE, UNAIDED, check
from lab import is_at_rest, lasting, tried, wait_until
from scenario import options as parse_options
from targets import TRANSPORTS

STATUSES = {
    *("accepted", "running", "succeeded", "failed", "cancel_requested", "cancelled"),
    *("outcome_unknown", "rejected"),
}


class Statuses:
    """Calls of one client that expect a status; each status is remembered."""

    def __init__(self, case: Case):
        self.case = case
        self.seen: set[str] = set()

    def call(self, tool: str, status: str, **arguments: object) -> dict:
        reply = self.case.call(tool, arguments)
        check(reply["status"] == status, status, reply)
        self.seen.add(status)
        return reply

    def deploy(self, tool: str, key: str, status: str) -> dict:
        """A call that is answered at once, since its operation is held up or has ended."""
        return self.call(tool, status, idempotency_key=key, service=key, image="web:7")

    def deploy_to_its_end(self, tool: str, key: str, status: str) -> dict:
        reply = self.case.deploy_to_its_end(tool, key)
        check(reply["status"] == status, status, reply)
        self.seen.add(status)
        return reply

    def look(self, operation_id: str, status: str) -> dict:
        return self.call("get_operation", status, operation_id=operation_id)

    def cancel(self, operation_id: str, status: str) -> dict:
        return self.call("cancel_operation", status, operation_id=operation_id)

    def follow(self, operation_id: str, status: str) -> dict:
        """Looks until the operation has this status."""
        wait_until(status, lambda: self.case.look(operation_id)["status"] == status)
        return self.look(operation_id, status)


def held_and_cancelled(calls: Statuses, key: str) -> str:
    """running, cancel_requested, and what really happened."""
    lab = calls.case.lab
    lab.script({"kind": "hold"})
    with lasting(ATTEMPT):
        operation_id = calls.deploy(BY_KEY, key, "running")["operation_id"]
        calls.look(operation_id, "running")
        calls.cancel(operation_id, "cancel_requested")
        calls.look(operation_id, "cancel_requested")
        calls.deploy(BY_KEY, key, "cancel_requested")
        lab.release()
        # What is held is answered now, if the attempt still waits for it.
        wait_until("an end", lambda: is_at_rest(calls.case.look(operation_id)))
        calls.look(operation_id, "succeeded")
        calls.cancel(operation_id, "succeeded")
    return key


def cancelled_in_a_pause(calls: Statuses, key: str) -> str:
    """cancelled: the provider has asked to wait, so that nothing is under way."""
    calls.case.lab.script({"kind": "too_many", "seconds": PAUSE})
    with lasting(PAUSE):
        operation_id = calls.deploy(BY_KEY, key, "running")["operation_id"]
        wait_until("a pause", lambda: is_reported(calls.case.look(operation_id)))
        calls.cancel(operation_id, "cancelled")
        calls.look(operation_id, "cancelled")
        calls.deploy(BY_KEY, key, "cancelled")
    return key


def is_reported(reply: dict) -> bool:
    """Whether the last attempt has ended."""
    return reply["attempts"] != [] and reply["attempts"][-1]["outcome"] != "unreported"


def every_status(client: Client, transport: type, options: Namespace) -> None:
    with case_of(client, transport, options) as case, client.connect(case.deployments.serve()):
        check_external_listing(client.tools())
        calls, lab = Statuses(case), case.lab

        # succeeded, and rejected for another payload and for what no schema allows.
        first = calls.deploy_to_its_end(BY_KEY, "made", "succeeded")
        again = calls.deploy(BY_KEY, "made", "succeeded")
        check(again == {**first, "replayed": True}, "the first reply", again)
        calls.look(first["operation_id"], "succeeded")
        order = {"idempotency_key": "made", "service": "made", "image": "web:8"}
        conflict = calls.call(BY_KEY, "rejected", **order)
        check(conflict["error"]["code"] == "payload_conflict", "a conflict", conflict)
        bad = calls.call(BY_KEY, "rejected", **{**order, "image": 7, "colour": "red"})
        paths = {detail["path"] for detail in bad["error"]["details"]}
        check(paths == {"/image", "/colour"}, "every path", bad)
        for tool in OWN_TOOLS:
            for operation_id in ("op_no", "op_0190163d8694739b8ab4a3c0d1f2e3a4"):
                reply = calls.call(tool, "rejected", operation_id=operation_id)
                check(reply["error"]["code"] == "not_found", "nothing found", reply)

        # failed, for good and for now.
        lab.script({"kind": "refuse"}, {"kind": "too_many", "seconds": 3600})
        refused = calls.deploy_to_its_end(BY_KEY, "refused", "failed")
        check(refused["retryable"] is False, "a final refusal", refused)
        busy = calls.deploy_to_its_end(BY_KEY, "busy", "failed")
        check(busy["retryable"] is True and busy["next_action"], "what to do", busy)
        calls.look(busy["operation_id"], "failed")

        held = tried(lambda run: held_and_cancelled(calls, f"held-{run}"))
        waiting = tried(lambda run: cancelled_in_a_pause(calls, f"waiting-{run}"))

        # outcome_unknown: the answer is lost, and nothing but a person can tell.
        lab.script({"kind": "drop_response"})
        unknown = calls.deploy_to_its_end(UNAIDED, "lost", "outcome_unknown")
        calls.look(unknown["operation_id"], "outcome_unknown")
        calls.cancel(unknown["operation_id"], "outcome_unknown")

        # accepted: enqueued, and the provider takes nothing for now.
        lab.script({"kind": "too_many", "seconds": 3600})
        order = {"idempotency_key": "later", "service": "later", "image": "web:7"}
        released = calls.call("release_service", "succeeded", **order)
        accepted = calls.follow(released["result"]["deployment_operation_id"], "accepted")
        check("next_check_at" in accepted, "when it is looked at again", accepted)

        check(calls.seen == STATUSES, "every status", calls.seen)
        made = {line["order"]["service"] for line in lab.log("created")}
        check(made >= {"made", held, "lost"}, "what the provider holds", made)
        check(not made & {"refused", "busy", waiting}, "nothing that was not applied", made)


def main() -> None:
    options = parse_options()
    for client in clients(options):
        # The Inspector ends the server with each call, and with it what is under way.
        if isinstance(client, Sdk):
            with client:
                for transport in TRANSPORTS:
                    every_status(client, transport, options)
                    print(f"{client.name} over {transport.name}: every status validated")


main()
