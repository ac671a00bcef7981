"""Answers that are lost on the way over HTTP, and what the same call does afterwards.

The cases of the protocol's own report of mutating calls that ran twice (specification issue
3394) are among them, each twenty times: the call is always repeated with a new request id.
"""

import random
import socket
import sqlite3
import threading
import time
from argparse import Namespace
from contextlib import closing

import notes_http
import scenario
from notes_http import NEWEST, OLDER, Connection, Server, once, serving
from scenario import BODY, check

RUNS = 20
CUTS = 200
VERSIONS = (NEWEST, OLDER)


def note(key: str, body: str = BODY) -> dict:
    return {"idempotency_key": key, "body": body}


def wait_for_notes(db, count: int) -> None:
    """Waits until this many notes are committed."""
    until = time.monotonic() + 300
    while len(scenario.note_ids(db)) < count:
        check(time.monotonic() < until, f"{count} notes in time", scenario.note_ids(db))
        time.sleep(0.002)


def a_lost_response_is_replayed(options: Namespace) -> None:
    """The socket is closed once the note is committed, its answer unread."""
    for version in VERSIONS:
        with serving(options.server) as notes:
            for run in range(RUNS):
                arguments = note(f"lost-{run}")
                lost = notes_http.open_socket(notes.port)
                lost.sendall(notes_http.raw(notes_http.call(arguments, version), version=version))
                wait_for_notes(notes.db, run + 1)
                lost.close()
                retry = once(notes.port, arguments, version=version)
                note_id = scenario.check_succeeded(retry, replayed=True)
                ids = scenario.note_ids(notes.db)
                check(len(ids) == run + 1 and note_id in ids, "one note for each run", ids)


def a_connection_that_is_closed_at_once_leaves_one_note(options: Namespace) -> None:
    """Whether the call had begun or not: after the retry there is one note."""
    for version in VERSIONS:
        with serving(options.server) as notes:
            replays = 0
            for run in range(RUNS):
                arguments = note(f"closed-{run}")
                lost = notes_http.open_socket(notes.port)
                lost.sendall(notes_http.raw(notes_http.call(arguments, version), version=version))
                lost.close()
                retry = once(notes.port, arguments, version=version)
                check(retry["status"] == "succeeded", "a success", retry)
                replays += retry["replayed"]
            check(len(scenario.note_ids(notes.db)) == RUNS, "one note for each run", replays)


def a_call_that_waits_is_dropped_with_its_connection(options: Namespace) -> None:
    """While another process holds the write lock, nothing has begun."""
    for version in VERSIONS:
        with serving(options.server) as notes:
            with closing(sqlite3.connect(notes.db, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                lost = notes_http.open_socket(notes.port)
                message = notes_http.call(note("waits"), version)
                lost.sendall(notes_http.raw(message, version=version))
                lost.settimeout(0.3)
                try:
                    answer = lost.recv(1)
                except socket.timeout:
                    answer = None
                check(answer is None, "no answer while the lock is held", answer)
                lost.close()
                # The server is alive and has seen the end of the connection.
                Connection(notes.port, version=version).post(
                    notes_http.request("tools/list", {}, version)
                )
                other.execute("ROLLBACK")
            retry = once(notes.port, note("waits"), version=version)
            check(retry["status"] == "succeeded", "a success", retry)
            check(len(scenario.note_ids(notes.db)) == 1, "one note", retry)


def three_at_once_are_one(options: Namespace) -> None:
    for version in VERSIONS:
        with serving(options.server) as notes:
            for run in range(RUNS):
                arguments = note(f"three-{run}")
                barrier = threading.Barrier(3)
                replies = []

                def client(arguments: dict) -> None:
                    connection = Connection(notes.port, version=version)
                    connection.http.connect()
                    barrier.wait()
                    replies.append(connection.reply(arguments))
                    connection.close()

                threads = [threading.Thread(target=client, args=(arguments,)) for _ in range(3)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(60)
                check(len(replies) == 3, "three answers", replies)
                firsts = [reply for reply in replies if reply["replayed"] is False]
                check(len(firsts) == 1, "one first answer", replies)
                same = all(reply == {**firsts[0], "replayed": True} for reply in replies
                           if reply is not firsts[0])
                check(same, "its replays", replies)
                check(len(scenario.note_ids(notes.db)) == run + 1, "one note a run", replies)


def other_arguments_are_refused(options: Namespace) -> None:
    for version in VERSIONS:
        with serving(options.server) as notes:
            for run in range(RUNS):
                first = once(notes.port, note(f"same-{run}"), version=version)
                scenario.check_succeeded(first, replayed=False)
                other = once(notes.port, note(f"same-{run}", "Other words."), version=version)
                scenario.check_rejected(other, "payload_conflict")
                again = once(notes.port, note(f"same-{run}"), version=version)
                scenario.check_succeeded(again, replayed=True)
                check(len(scenario.note_ids(notes.db)) == run + 1, "one note a run", other)


def crash(options: Namespace, place: str, version: str) -> bool:
    """Kills the server at a place of the call; the retry, at a new process, finds all or
    nothing. Returns whether it found all."""
    with scenario.database() as db, Server(options.server, db) as notes:
        notes.start(options.crash_server, {scenario.FAILPOINT: place})
        doomed = notes_http.open_socket(notes.port)
        message = notes_http.call(note("crash"), version)
        doomed.sendall(notes_http.raw(message, version=version))
        try:
            answer = doomed.recv(1)
        except ConnectionResetError:
            answer = b""
        check(answer == b"", "no answer from a killed server", answer)
        check(notes.wait() == -9, "a killed server", notes.process.returncode)
        committed = scenario.note_ids(db)

        notes.start()
        retry = once(notes.port, note("crash"), version=version)
        note_id = scenario.check_succeeded(retry, replayed=committed != [])
        check(scenario.note_ids(db) == [note_id], "one note", place)
        check(committed in ([], [note_id]), "the committed note", committed)
        return committed != []


def a_crash_between_effect_and_receipt_leaves_one_note(options: Namespace) -> None:
    """The handler has written its note, and what would commit it with its receipt isn't run."""
    commit = int(options.failpoint.rpartition(":")[2])
    for run in range(RUNS):
        committed = crash(options, f"kill-before:{commit}", VERSIONS[run % 2])
        check(not committed, "no effect without its receipt", run)


def a_crash_at_any_statement_leaves_one_note(options: Namespace) -> None:
    """Before the effect, between it and its receipt, after the commit."""
    commit = int(options.failpoint.rpartition(":")[2])
    for run in range(RUNS):
        # Every statement in turn, up to the commit and including it.
        statement = run % commit + 1
        committed = crash(options, f"kill-after:{statement}", VERSIONS[run % 2])
        check(committed == (statement == commit), "all after the commit alone", statement)


def random_disconnects_double_and_lose_nothing(options: Namespace) -> None:
    """Requests are cut at a random byte, or their answer is; each call is repeated later."""
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    try:
        with serving(options.server) as notes:
            seen: dict[str, str] = {}
            keys = [f"cut-{number}" for number in range(CUTS // 2)]
            for _ in range(CUTS):
                version = rng.choice(VERSIONS)
                key = rng.choice(keys)
                whole = notes_http.raw(notes_http.call(note(key), version), version=version)
                connection = notes_http.open_socket(notes.port)
                if rng.random() < 0.5:
                    connection.sendall(whole[: rng.randrange(len(whole))])
                else:
                    connection.sendall(whole)
                    connection.settimeout(rng.random() * 0.02 + 0.0001)
                    try:
                        connection.recv(rng.randrange(1, 400))
                    except TimeoutError:
                        pass
                connection.close()
                if rng.random() < 0.3:
                    reply = once(notes.port, note(key), version=version)
                    note_id = reply["result"]["note_id"]
                    check(seen.setdefault(key, note_id) == note_id, "the same note", reply)
            for key in keys:
                reply = once(notes.port, note(key))
                note_id = reply["result"]["note_id"]
                check(seen.setdefault(key, note_id) == note_id, "the same note", reply)
            stored = scenario.note_ids(notes.db)
            check(sorted(seen.values()) == stored, "a row for each key", len(stored))
            check(notes.is_alive(), "a server that is alive", None)
    except BaseException:
        print(f"the seed was {seed}")
        raise


def main() -> None:
    options = scenario.options()
    for test in (
        a_lost_response_is_replayed,
        a_connection_that_is_closed_at_once_leaves_one_note,
        a_call_that_waits_is_dropped_with_its_connection,
        three_at_once_are_one,
        other_arguments_are_refused,
        a_crash_between_effect_and_receipt_leaves_one_note,
        a_crash_at_any_statement_leaves_one_note,
        random_disconnects_double_and_lose_nothing,
    ):
        test(options)
        print(f"http: {test.__name__.replace('_', ' ')}")


main()
