"""Every client in every situation, on standard streams and over HTTP.

The situations are the same for all: a listing, a first call, its replay, a conflict, invalid
arguments, a denial, a handle of an operation that runs, an unknown outcome. Then answers that
are lost, the client's own time-out, and a server whose replies don't fit its schemas.
"""

import contextlib
import sqlite3
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import scenario
from cases import Case, Client, call, case_of, check_external_listing
from clients import NoReply, clients
from lab import BY_KEY, DEADLINE, PATIENCE, UNAIDED, lasting, tried, wait_until
from scenario import BODY, NOTE, check
from targets import TRANSPORTS, Example, Http, Stdio


# How the clients say that a reply doesn't fit.
MISFIT = ["structured content", "Structured content", "must be boolean"]


def listing(case: Case) -> None:
    scenario.check_listing(case.client.tools())


def first_call(case: Case) -> None:
    case.first = case.create_note(NOTE)
    scenario.check_succeeded(case.first, replayed=False)


def replay(case: Case) -> None:
    again = case.create_note(NOTE)
    check(again == {**case.first, "replayed": True}, "the first reply", again)
    # The default, given: the same arguments.
    scenario.check_succeeded(case.create_note({**NOTE, "pinned": False}), replayed=True)


def conflict(case: Case) -> None:
    scenario.check_rejected(case.create_note({**NOTE, "body": "Another body"}), "payload_conflict")


def invalid_arguments(case: Case) -> None:
    for arguments in ({"body": BODY}, {"idempotency_key": " ", "body": BODY}):
        scenario.check_rejected(case.create_note(arguments), "invalid_key")
    invalid = {"idempotency_key": "k", "body": "", "pinned": 7, "colour": "red"}
    reply = case.create_note(invalid)
    scenario.check_rejected(reply, "invalid_arguments")
    named = {detail["path"] for detail in reply["error"]["details"]}
    check(named == {"/body", "/pinned", "/colour"}, "each path", named)
    notes = case.client.call("list_notes", {})
    check(not notes.is_error and BODY in str(notes), "the note in the list", notes)
    note_id = case.first["result"]["note_id"]
    stored = scenario.note_ids(case.notes.example.db)
    check(stored == [note_id], "one note", stored)


def denied(case: Case) -> None:
    """A key that exists and one that doesn't read alike."""
    known = case.create_note(NOTE)
    scenario.check_rejected(known, "denied")
    unknown = case.create_note({**NOTE, "idempotency_key": "never-used"})
    check(known == unknown, "the same words", unknown)


def external_listing(case: Case) -> None:
    check_external_listing(case.client.tools())


def running_handle(case: Case) -> None:
    tried(lambda run: held_up(case, f"held-{run}"))


def held_up(case: Case, key: str) -> None:
    """The provider holds every request of it, until it is told to answer."""
    case.lab.script(*[{"kind": "hold"}] * 10)
    try:
        with lasting(DEADLINE):
            reply, operation_id = handled(case, key)
    finally:
        answer_held(case)
    check(reply["operation_id"] == operation_id, "the same operation", reply)
    check(case.held(key) == 1, "one deployment", case.held(key))


def handled(case: Case, key: str) -> tuple[dict, str]:
    """The end of a call that is held up, and the operation's id from what was told before."""
    if case.client.follows_tasks:
        reply, operation_id = followed(case, key)
    else:
        handle = case.deploy(BY_KEY, key)
        check(handle["status"] == "running" and handle["replayed"] is False, "a handle", handle)
        operation_id = handle["operation_id"]
        check(operation_id in handle["next_action"], "the exact call", handle)
        check(handle["retry_after_ms"] > 0, "when to ask", handle)
        look_at_running(case, operation_id)
        answer_held(case)
        # The same key finds it, and ends it if the server that began it has gone.
        until = time.monotonic() + PATIENCE
        while (reply := case.deploy(BY_KEY, key))["status"] != "succeeded":
            check(time.monotonic() < until, "an end in time", reply)
            time.sleep(0.1)
    return reply, operation_id


def followed(case: Case, key: str) -> tuple[dict, str]:
    """A client that knows tasks gets one instead of the handle, and follows it to its end; the
    handle is what it asks `get_operation` by."""
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(case.deploy, BY_KEY, key)
        try:
            wait_until("a held request", lambda: case.held(key) == 1)
            operation_id = case.lab.operation_id()
            look_at_running(case, operation_id)
            check(not call.done(), "a call that follows its task", call)
        finally:
            answer_held(case)
        reply = call.result()
    check(reply["status"] == "succeeded", "the task's end", reply)
    return reply, operation_id


def look_at_running(case: Case, operation_id: str) -> None:
    looked = case.look(operation_id)
    check(looked["status"] == "running" and looked["attempts"] != [], "it runs", looked)
    check(operation_id in looked["next_action"], "the exact call", looked)
    check(looked["retry_after_ms"] > 0, "when to ask", looked)


def answer_held(case: Case) -> None:
    case.lab.script()
    case.lab.release()


def outcome_unknown(case: Case) -> None:
    case.lab.script({"kind": "drop_response"})
    unknown = case.deploy_to_its_end(UNAIDED, "lost")
    check(unknown["status"] == "outcome_unknown", "an unknown outcome", unknown)
    check(unknown["replayed"] is False, "no replay", unknown)
    check("list of deployments" in unknown["next_action"], "where to look", unknown)
    looked = case.look(unknown["operation_id"])
    check(looked["status"] == "outcome_unknown", "unknown still", looked)
    again = case.deploy(UNAIDED, "lost")
    check(again == {**unknown, "replayed": True}, "the same reply", again)
    check(case.held("lost") == 1, "one deployment", case.held("lost"))


def all_situations(client: Client, transport: type, options: Namespace) -> None:
    with case_of(client, transport, options) as case:
        with client.connect(case.notes.serve()):
            for situation in (listing, first_call, replay, conflict, invalid_arguments):
                situation(case)
        with client.connect(case.notes.serve("create_note")):
            denied(case)
        with client.connect(case.deployments.serve()):
            for situation in (external_listing, running_handle, outcome_unknown):
                situation(case)


@contextlib.contextmanager
def notes_server(transport: type, options: Namespace) -> Iterator[Stdio | Http]:
    with scenario.database() as db, transport(Example.notes(options, db)) as server:
        yield server


def lost_answer(client: Client, transport: type, options: Namespace) -> None:
    """The server is killed between commit and answer; the retry gets the same note."""
    with notes_server(transport, options) as server:
        db = server.example.db
        with client.connect(server.serve_doomed()):
            try:
                answer = client.call("create_note", NOTE)
            except NoReply:
                answer = None
        check(answer is None, "no answer", answer)
        server.check_killed()
        committed = scenario.note_ids(db)
        check(len(committed) == 1, "one committed note", committed)

        with client.connect(server.serve()):
            retry = call(client, "create_note", NOTE)
        check(scenario.check_succeeded(retry, replayed=True) == committed[0], "it", retry)
        check(scenario.note_ids(db) == committed, "one note", scenario.note_ids(db))


def gives_up(client: Client, seconds: float) -> None:
    """The call has no answer in time, and the client says so."""
    try:
        answer = client.call("create_note", NOTE, timeout=seconds)
    except NoReply as error:
        check("timed out" in str(error).lower(), "a time-out", error)
    else:
        check(False, "no answer", answer)


def own_time_out(client: Client, transport: type, options: Namespace) -> None:
    """The client gives up while another process holds the write lock; its retry is one note."""
    with notes_server(transport, options) as server:
        db = server.example.db
        with client.connect(server.serve()):
            client.tools()
            with contextlib.closing(sqlite3.connect(db, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                gives_up(client, seconds=2)
                other.execute("ROLLBACK")
            reply = call(client, "create_note", NOTE)
            check(reply["status"] == "succeeded", "a success", reply)
        check(len(scenario.note_ids(db)) == 1, "one note", scenario.note_ids(db))


def late_answer(client: Client, transport: type, options: Namespace) -> None:
    """The client gives up while the answer to a committed call is on its way."""
    with notes_server(transport, options) as server:
        db = server.example.db
        with client.connect(server.serve_relayed("withhold")):
            # A client that connects anew has to start first. On a busy machine the call may not
            # have arrived by then; the same call with more time makes the same note.
            for seconds in (5 if client.connects_anew else 2, 60):
                gives_up(client, seconds)
                committed = scenario.note_ids(db)
                if committed:
                    break
        check(len(committed) == 1, "one committed note", committed)
        with client.connect(server.serve()):
            retry = call(client, "create_note", NOTE)
        check(scenario.check_succeeded(retry, replayed=True) == committed[0], "it", retry)
        check(scenario.note_ids(db) == committed, "one note", scenario.note_ids(db))


def misfit(client: Client, transport: type, options: Namespace) -> None:
    """A reply that doesn't fit is refused: the validation that all tests rely on is there."""
    with notes_server(transport, options) as server:
        with client.connect(server.serve_relayed("corrupt")):
            # A success, and an error.
            for arguments in (NOTE, {"body": BODY}):
                try:
                    accepted = client.call("create_note", arguments)
                except NoReply as error:
                    known = any(words in str(error) for words in MISFIT)
                    check(known, "a reply that doesn't fit", error)
                else:
                    check(False, "no such reply to be accepted", accepted)


def tests_of(client: Client, transport: type) -> Iterator[Callable]:
    yield all_situations
    yield lost_answer
    if transport is Http or not client.connects_anew:
        # Else its server would have to start while the lock is held.
        yield own_time_out
    if transport is Stdio:
        # What withholds and corrupts answers is a process on standard streams.
        yield late_answer
        yield misfit


def main() -> None:
    options = scenario.options()
    for client in clients(options):
        with client:
            for transport in TRANSPORTS:
                for test in tests_of(client, transport):
                    started = time.monotonic()
                    test(client, transport, options)
                    taken = time.monotonic() - started
                    name = test.__name__.replace("_", " ")
                    print(f"{client.name} over {transport.name}: {name} ({taken:.1f} s)")


if __name__ == "__main__":
    main()
