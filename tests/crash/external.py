"""Kills and stops servers of external effects at every point, with every recovery.

Each case runs in a folder of its own, with a provider of its own; what really happened is
read from the provider's log. Usage: external.py --server BINARY --crash-server BINARY [CASE…]
"""

import argparse
import contextlib
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from lab import ATTEMPT, BY_KEY, HALTED, TOOLS, UNAIDED, Again, Ended, Lab, Server, check
from lab import is_at_rest, lasting, tried, wait_until

ORDER = {"idempotency_key": "one-intended-deployment", "service": "web", "image": "web:7"}
HOLD, REFUSE, DROP = {"kind": "hold"}, {"kind": "refuse"}, {"kind": "drop_response"}

# How many cases run at a time: they mostly wait for leases to end.
AT_A_TIME = 12

# How many operations two recoverers find.
MANY = 30

# More statements of the ledger than one call has.
STATEMENTS = 60


def later(seconds: int) -> dict:
    return {"kind": "too_many", "seconds": seconds}


def check_truth(lab: Lab, reply: dict, status: str, deployments: int) -> None:
    """The reply has the status, and matches what the provider holds."""
    held = lab.held()
    check(reply["status"] == status, status, (reply, held))
    check(len(held) == deployments, f"{deployments} deployments", (reply, held))
    if status == "succeeded":
        check(reply["result"]["deployment_id"] == held[0], "what the provider holds", (reply, held))
    if status == "outcome_unknown":
        check(bool(reply["next_action"]), "what to do", reply)


def check_recovered(lab: Lab, tool: str, unaided: tuple[str, int]) -> None:
    """After one same-key call the effect exists once, or a person is told what to do."""
    server = lab.server()
    reply = server.recover(tool, ORDER)
    status, deployments = unaided if tool == UNAIDED else ("succeeded", 1)
    check_truth(lab, reply, status, deployments)
    if status == "outcome_unknown":
        check(reply["retryable"] is False, "no retry", reply)
        check("list of deployments" in reply["next_action"], "the tool's own words", reply)
    # Whatever it is, it stays so.
    requests = lab.requests()
    again = server.call(tool, ORDER)
    check_truth(lab, again, status, deployments)
    check(lab.requests() == requests, "no further request", lab.requests())
    check(again["operation_id"] == reply["operation_id"], "one operation", again)


def kill_while_held(lab: Lab, server: Server, requests: int) -> None:
    """Kills a server while the provider holds its requests; on a busy machine their time may be
    over before, and they are sent once more."""
    server.kill()
    if lab.requests() != requests:
        raise Again


def killed_when_accepted(lab: Lab, tool: str) -> None:
    """The identity is recorded, and no attempt has begun: every tool just runs it."""
    server = lab.server(failpoint="kill:after-commit")
    server.send(tool, ORDER)
    server.was_killed()
    check((lab.states(), lab.requests()) == (["accepted"], 0), "a record alone", lab.states())
    check_recovered(lab, tool, ("succeeded", 1))
    check(lab.requests() == 1, "one request", lab.requests())


def killed_before_dispatch(lab: Lab, tool: str) -> None:
    """The attempt has begun and nothing has left; the ledger can't tell."""
    server = lab.server("--halt", "before-sending")
    server.send(tool, ORDER)
    server.says(HALTED["before-sending"])
    server.kill()
    check(lab.requests() == 0, "no request", lab.requests())
    check_recovered(lab, tool, ("outcome_unknown", 0))


def killed_when_provider_accepted(lab: Lab, tool: str) -> None:
    """The deployment exists, and the answer never came."""
    lab.script(HOLD)
    server = lab.server()
    server.send(tool, ORDER)
    wait_until("a deployment", lambda: len(lab.held()) == 1)
    kill_while_held(lab, server, 1)
    check_recovered(lab, tool, ("outcome_unknown", 1))


def killed_when_provider_replied(lab: Lab, tool: str) -> None:
    """The answer came, and the receipt was not written."""
    server = lab.server("--halt", "after-answer")
    server.send(tool, ORDER)
    server.says(HALTED["after-answer"])
    server.kill()
    check(lab.states() == ["attempting"], "no receipt", lab.states())
    check_recovered(lab, tool, ("outcome_unknown", 1))


def killed_after_receipt(lab: Lab, tool: str) -> None:
    """The receipt was written, and the answer never read."""
    server = lab.server()
    server.send(tool, ORDER)
    wait_until("a receipt", lambda: is_ended(lab))
    server.kill()
    check_recovered(lab, tool, ("succeeded", 1))
    check(lab.requests() == 1, "one request", lab.requests())


def response_dropped(lab: Lab, tool: str) -> None:
    """Nobody is killed: the connection ends without an answer."""
    lab.script(DROP)
    server = lab.server()
    operation_id = server.call(tool, ORDER)["operation_id"]
    reply = server.follow(operation_id, is_at_rest)
    status = "outcome_unknown" if tool == UNAIDED else "succeeded"
    check_truth(lab, reply, status, 1)


def provider_of_no_help(lab: Lab, tool: str) -> None:
    """It neither deduplicates nor can be asked: nothing is sent that might be a second one."""
    lab.switches(deduplicates=False, finds=False)
    if tool == BY_KEY:
        return  # Its declaration says that the provider deduplicates.
    lab.script(HOLD)
    server = lab.server()
    server.send(tool, ORDER)
    wait_until("a deployment", lambda: len(lab.held()) == 1)
    kill_while_held(lab, server, 1)
    server = lab.server()
    operation_id = server.call(tool, ORDER)["operation_id"]
    reply = server.follow(operation_id, is_at_rest)
    check_truth(lab, reply, "outcome_unknown", 1)
    server.call(tool, ORDER)
    check(lab.requests() == 1, "one request", lab.requests())


def stopped_before_lease_check(lab: Lab, tool: str) -> None:
    """A worker that was stopped past its lease sends nothing when it goes on."""
    stale, request = lab.stopped_server("before-sending", tool, ORDER)
    server = lab.server()
    operation_id = server.call(tool, ORDER)["operation_id"]
    reply = server.follow(operation_id, is_at_rest)
    if reply.get("retryable"):
        server.call(tool, ORDER)
    expected = "outcome_unknown" if tool == UNAIDED else "succeeded"
    reply = server.follow(operation_id, lambda reply: reply["status"] == expected)
    requests = lab.requests()
    stale.go_on()
    stale.receive(request)
    stale.close()
    reply = server.look(operation_id)
    if tool != UNAIDED:
        check(lab.requests() == requests, "nothing sent by the stale worker", lab.requests())
        check_truth(lab, reply, "succeeded", 1)
        return
    # Its time was over before it could say more, or it has said that it had sent nothing.
    check(reply["status"] in ("outcome_unknown", "failed"), "no effect", reply)
    check_truth(lab, reply, reply["status"], 0)
    check(lab.requests() == 0, "nothing sent", lab.requests())
    if reply["status"] == "failed":
        # That settles it, and the same key runs it again.
        check(reply["retryable"] is True, "that it may run again", reply)
        check_truth(lab, server.recover(tool, ORDER), "succeeded", 1)
        check(lab.requests() == 1, "one request", lab.requests())


def stopped_after_answer(lab: Lab, tool: str) -> None:
    """A worker that was stopped past its lease with the answer in hand: its late success
    settles what is unknown, and changes nothing that is settled."""
    stale, request = lab.stopped_server("after-answer", tool, ORDER)
    server = lab.server()
    before = server.recover(tool, ORDER)
    expected = "outcome_unknown" if tool == UNAIDED else "succeeded"
    check_truth(lab, before, expected, 1)
    stale.go_on()
    stale.receive(request)
    stale.close()
    operation_id = before["operation_id"]
    reply = server.follow(operation_id, lambda reply: reply["status"] == "succeeded")
    check_truth(lab, reply, "succeeded", 1)
    if expected == "succeeded":
        # The late success may be recorded among the attempts; it changes nothing else.
        ids = [[attempt["attempt_id"] for attempt in it["attempts"]] for it in (before, reply)]
        check(ids[0] == ids[1], "no newer attempt", (before, reply))
        check(reply["result"] == before["result"], "the first result", (before, reply))


def two_recoverers(lab: Lab, tool: str) -> None:
    """Two servers on one file find what a third has left: one of them settles it."""
    lab.script(HOLD)
    server = lab.server()
    server.send(tool, ORDER)
    wait_until("a deployment", lambda: len(lab.held()) == 1)
    kill_while_held(lab, server, 1)
    servers = [lab.server(), lab.server()]
    requests = [server.send(tool, ORDER) for server in servers]
    ids = {server.receive(request)["operation_id"] for server, request in zip(servers, requests)}
    check(len(ids) == 1, "one operation", ids)
    operation_id = ids.pop()
    status = "outcome_unknown" if tool == UNAIDED else "succeeded"
    replies = [
        server.follow(operation_id, lambda reply: reply["status"] == status) for server in servers
    ]
    for reply in replies:
        check_truth(lab, reply, status, 1)
        check(reply["attempts"] == replies[0]["attempts"], "one truth", replies)
    # By key one of the two has sent it again; nobody else has.
    check(lab.requests() == (2 if tool == BY_KEY else 1), "one recovery", lab.requests())


def two_recoverers_of_many(lab: Lab, tool: str) -> None:
    """The same for many operations, with both servers at all of them at once."""
    orders = [{**ORDER, "idempotency_key": f"deployment-{number}"} for number in range(MANY)]
    lab.script(*[HOLD] * MANY)
    server = lab.server()
    for order in orders:
        server.send(tool, order)
    wait_until("all deployments", lambda: len(lab.held()) == MANY)
    kill_while_held(lab, server, MANY)
    servers = [lab.server(), lab.server()]
    sent = [[(server, server.send(tool, order)) for server in servers] for order in orders]
    status = "outcome_unknown" if tool == UNAIDED else "succeeded"
    held, told = lab.held(), []
    for calls in sent:
        ids = {server.receive(request)["operation_id"] for server, request in calls}
        check(len(ids) == 1, "one operation", ids)
        operation_id = ids.pop()
        replies = [
            server.follow(operation_id, lambda reply: reply["status"] == status)
            for server in servers
        ]
        attempts = [reply["attempts"] for reply in replies]
        check(attempts[0] == attempts[1], "one truth", replies)
        told += [reply["result"]["deployment_id"] for reply in replies[:1] if "result" in reply]
    check(lab.held() == held, "no further deployment", lab.held())
    check(tool == UNAIDED or sorted(told) == sorted(held), "what the provider holds", told)
    check(lab.requests() == MANY * (2 if tool == BY_KEY else 1), "one recovery each", lab.requests())


def cancelled_before_dispatch(lab: Lab, tool: str) -> None:
    """What was never dispatched is cancelled, and the provider saw nothing."""
    server = lab.server(failpoint="kill:after-commit")
    server.send(tool, ORDER)
    server.was_killed()
    server = lab.server()
    operation_id = lab.operation_id()
    check(server.look(operation_id)["status"] == "accepted", "an operation at rest", operation_id)
    check_truth(lab, server.cancel(operation_id), "cancelled", 0)
    check_truth(lab, server.call(tool, ORDER), "cancelled", 0)
    check(lab.requests() == 0, "no request", lab.requests())


def cancelled_during(lab: Lab, tool: str) -> None:
    """What was sent is not undone: the end tells what really happened."""
    lab.script(HOLD)
    server = lab.server()
    with lasting(ATTEMPT):
        operation_id = server.call(tool, ORDER)["operation_id"]
        wait_until("a deployment", lambda: len(lab.held()) == 1)
        check_truth(lab, server.cancel(operation_id), "cancel_requested", 1)
        lab.release()
        check_truth(lab, server.follow(operation_id, is_at_rest), "succeeded", 1)
        check_truth(lab, server.cancel(operation_id), "succeeded", 1)
        check(lab.requests() == 1, "one request", lab.requests())


def attempts_are_bounded(lab: Lab, tool: str) -> None:
    """Three attempts at most, and the same key may run again, since nothing was applied."""
    lab.script(*[later(0)] * 4)
    server = lab.server()
    operation_id = server.call(tool, ORDER)["operation_id"]
    reply = server.follow(operation_id, is_at_rest)
    check_truth(lab, reply, "failed", 0)
    check(lab.requests() == 3, "three requests", lab.requests())
    check(reply["retryable"] is True, "that it may run again", reply)
    check_truth(lab, server.recover(tool, ORDER), "succeeded", 1)


def guidance_beyond_the_budget(lab: Lab, tool: str) -> None:
    """The provider's guidance doesn't fit: the truth at once, without another request."""
    lab.script(later(3600))
    server = lab.server()
    # On a slow machine the first reply may be a handle.
    reply = server.follow(server.call(tool, ORDER)["operation_id"], is_at_rest)
    check_truth(lab, reply, "failed", 0)
    check(reply["error"]["code"] == "too_many_requests", "the reason", reply)
    check(lab.requests() == 1, "one request", lab.requests())


def denied(lab: Lab, tool: str) -> None:
    """A denial reaches the provider once, and is replayed."""
    lab.script(REFUSE)
    server = lab.server()
    server.follow(server.call(tool, ORDER)["operation_id"], is_at_rest)
    reply = server.call(tool, ORDER)
    check_truth(lab, reply, "failed", 0)
    check(reply["retryable"] is False and reply["replayed"] is True, "a denial", reply)
    check(lab.requests() == 1, "one request", lab.requests())


def callers_share_one_request(lab: Lab, tool: str) -> None:
    """Eight callers in two processes, one key, a slow provider."""
    lab.script(HOLD)
    servers = [lab.server(), lab.server()]
    with lasting(ATTEMPT):
        sent = [(server, server.send(tool, ORDER)) for server in servers for _ in range(4)]
        wait_until("a request", lambda: lab.requests() == 1)
        other = servers[1].call(tool, {**ORDER, "image": "web:8"})
        check(other["error"]["code"] == "payload_conflict", "a conflict", other)
        lab.release()
        ids = {server.receive(request)["operation_id"] for server, request in sent}
        check(len(ids) == 1, "one operation", ids)
        check_truth(lab, servers[0].follow(ids.pop(), is_at_rest), "succeeded", 1)
        check(lab.requests() == 1, "one request", lab.requests())


def window_is_closed(lab: Lab) -> None:
    """Past the provider's window nothing is sent again."""
    lab.script(HOLD)
    server = lab.server()
    server.send(BY_KEY, ORDER)
    wait_until("a deployment", lambda: len(lab.held()) == 1)
    kill_while_held(lab, server, 1)
    lab.switches(remembers_ms=0)
    server = lab.server("--ahead", str(25 * 60 * 60))
    reply = server.recover(BY_KEY, ORDER)
    check_truth(lab, reply, "outcome_unknown", 1)
    check(reply["retryable"] is False, "no retry", reply)
    check(lab.requests() == 1, "one request", lab.requests())


def outbox_killed_before_dispatch(lab: Lab) -> None:
    """Killed between commit and dispatch: sent by the next start."""
    server = lab.server(failpoint="kill:after-commit")
    server.send("release_service", ORDER)
    server.was_killed()
    check((lab.states(), lab.requests()) == (["accepted"], 0), "an intent alone", lab.states())
    check_dispatched(lab, lab.server())
    check(lab.requests() == 1, "one request", lab.requests())


def outbox_killed_before_mark(lab: Lab) -> None:
    """Killed between dispatch and mark: sent again, under the same identity."""
    server = lab.server("--halt", "after-answer")
    server.send("release_service", ORDER)
    server.says(HALTED["after-answer"])
    server.kill()
    check((lab.states(), lab.requests()) == (["attempting"], 1), "no mark", lab.states())
    check_dispatched(lab, lab.server())
    received = lab.log("received")
    check(len(received) == 2, "two requests", received)
    check(received[0]["key"] == received[1]["key"], "one identity", received)


def check_dispatched(lab: Lab, server: Server) -> None:
    """The worker sends it without being asked; replays enqueue nothing."""
    wait_until("a receipt", lambda: lab.states() == ["succeeded"])
    reply = server.call("release_service", ORDER)
    check(reply["replayed"] is True, "a replay", reply)
    operation_id = reply["result"]["deployment_operation_id"]
    check_truth(lab, server.look(operation_id), "succeeded", 1)
    check(lab.states() == ["succeeded"], "nothing further enqueued", lab.states())


def killed_after_statement(lab: Lab, tool: str, statement: int, killed: set[int]) -> None:
    """Killed after a statement of the ledger, whichever it is: never two, never a lie."""
    server = lab.server(failpoint=f"kill-after:{statement}")
    try:
        reply = server.call(tool, ORDER)
        reply = server.follow(reply["operation_id"], is_at_rest)
    except Ended:
        server.was_killed()
    else:
        check_truth(lab, reply, "succeeded", 1)
        return
    killed.add(statement)
    reply = lab.server().recover(tool, ORDER)
    held = len(lab.held())
    if tool == UNAIDED:
        check(lab.requests() <= 1, "one request at most", lab.requests())
        check(reply["status"] in ("succeeded", "outcome_unknown"), "no claim", (reply, held))
    else:
        check(reply["status"] == "succeeded", "a success", (reply, held))
    check_truth(lab, reply, reply["status"], 1 if reply["status"] == "succeeded" else held)
    check(held <= 1, "one deployment at most", held)


def is_ended(lab: Lab) -> bool:
    return lab.db.exists() and lab.states() == ["succeeded"]


WITH_EVERY_TOOL = [
    killed_when_accepted,
    killed_before_dispatch,
    killed_when_provider_accepted,
    killed_when_provider_replied,
    killed_after_receipt,
    response_dropped,
    provider_of_no_help,
    stopped_before_lease_check,
    stopped_after_answer,
    two_recoverers,
    two_recoverers_of_many,
    cancelled_before_dispatch,
    cancelled_during,
    attempts_are_bounded,
    guidance_beyond_the_budget,
    denied,
    callers_share_one_request,
]
ALONE = [window_is_closed, outbox_killed_before_dispatch, outbox_killed_before_mark]



@dataclass
class Case:
    name: str
    run: Callable[[Lab], None]


def all_cases(killed: dict[str, set[int]]) -> list[Case]:
    cases = [
        Case(f"{case.__name__} ({tool})", partial(case, tool=tool))
        for case in WITH_EVERY_TOOL
        for tool in TOOLS
    ]
    cases += [Case(case.__name__, case) for case in ALONE]
    for tool in TOOLS:
        for statement in range(1, STATEMENTS + 1):
            case = partial(
                killed_after_statement, tool=tool, statement=statement, killed=killed[tool]
            )
            cases.append(Case(f"killed_after_statement {statement} ({tool})", case))
    return cases


def run(options: argparse.Namespace, case: Case) -> str | None:
    """Runs one case; the text of its failure, if it fails."""
    def once(_: int) -> None:
        with contextlib.ExitStack() as stack:
            case.run(Lab(options.server, options.crash_server, stack))

    try:
        tried(once)
    except Exception:  # Whatever it is, it must not hide the other cases.
        return traceback.format_exc()
    return None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True, help="the deployments example")
    parser.add_argument("--crash-server", required=True, help="its build with failpoints")
    parser.add_argument("cases", nargs="*", help="beginnings of names of cases; all if none")
    options = parser.parse_args()
    killed: dict[str, set[int]] = {tool: set() for tool in TOOLS}
    cases = all_cases(killed)
    if options.cases:
        cases = [case for case in cases if case.name.startswith(tuple(options.cases))]
        check(bool(cases), "the name of a case", options.cases)
    failed = 0
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        results = [(case, pool.submit(run, options, case)) for case in cases]
        for case, result in results:
            failure = result.result()
            failed += failure is not None
            print(f"{'FAILED' if failure else 'passed'}: {case.name}", flush=True)
            if failure:
                print(failure)
    if failed:
        sys.exit(f"{failed} of {len(cases)} cases failed")
    for tool, statements in killed.items():
        if statements:
            # All of them, and then the call was over.
            every = set(range(1, max(statements) + 1))
            check(statements == every and max(statements) < STATEMENTS, "a whole sweep", statements)
            print(f"{tool} was killed after each of its {len(statements)} statements")
    print(f"crash tests: {len(cases)} cases passed")


if __name__ == "__main__":
    main()
