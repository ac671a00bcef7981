"""What stands before the tools over HTTP: tokens, permissions, limits, carriers, the end."""

import contextlib
import http.client
import json
import socket
import sqlite3
import threading
import time

import notes_http
import scenario
from notes_http import ADA, ALL_TOOLS, BOB, NEWEST, OLDER, Connection, once, serving
from scenario import BODY, NOTE, check


def receipts(db) -> int:
    with contextlib.closing(sqlite3.connect(db)) as connection:
        return connection.execute("SELECT count(*) FROM idempotent_receipts").fetchone()[0]


def unauthenticated_requests_touch_nothing(server: str) -> None:
    with serving(server) as notes:
        for version in (NEWEST, OLDER):
            for token in (None, "unknown", "ada-toke", "ada-token2", ""):
                connection = Connection(notes.port, token, version)
                for message in (
                    notes_http.call(NOTE, version),
                    notes_http.request("tools/list", {}, version),
                ):
                    status, body = connection.post(message)
                    check((status, body) == (401, None), "401 and no word", (status, body))
            connection = Connection(notes.port, None, version)
            status, _ = connection.post(
                notes_http.call(NOTE, version), Authorization=f"Basic {ADA}"
            )
            check(status == 401, "401 for another scheme", status)
        check(scenario.note_ids(notes.db) == [] and receipts(notes.db) == 0, "no row", notes.db)


def one_key_of_two_principals_is_two(server: str) -> None:
    for version in (NEWEST, OLDER):
        with serving(server) as notes:
            hers = once(notes.port, NOTE, ADA, version)
            his = once(notes.port, NOTE, BOB, version)
            for reply in (hers, his):
                scenario.check_succeeded(reply, replayed=False)
            check(hers["operation_id"] != his["operation_id"], "two operations", (hers, his))
            again = once(notes.port, NOTE, BOB, version)
            check(again == {**his, "replayed": True}, "his own", again)
            check(len(scenario.note_ids(notes.db)) == 2, "two notes", notes.db)
            # Each lists its own note alone; the tools are the same for both.
            listings = []
            for token, reply in ((ADA, hers), (BOB, his)):
                connection = Connection(notes.port, token, version)
                message = notes_http.call({}, version, tool="list_notes")
                _, answer = connection.post(message)
                listed = answer["result"]["structuredContent"]["notes"]
                ids = [note["note_id"] for note in listed]
                check(ids == [reply["result"]["note_id"]], "the caller's note", ids)
                _, answer = connection.post(notes_http.request("tools/list", {}, version))
                listings.append(answer["result"]["tools"])
            check(listings[0] == listings[1], "one listing", listings)


def a_changed_token_file_counts_at_once(server: str) -> None:
    with serving(server) as notes:
        connection = Connection(notes.port)
        _, listed = connection.post(notes_http.request("tools/list", {}))
        first = connection.reply(NOTE)
        scenario.check_succeeded(first, replayed=False)

        notes_http.write_tokens(notes.tokens, {ADA: ["list_notes"], BOB: ALL_TOOLS})
        denied = connection.reply(NOTE)
        scenario.check_rejected(denied, "denied")
        never = connection.reply({**NOTE, "idempotency_key": "never-used"})
        check(denied == never, "the same words for a key that exists", (denied, never))
        _, answer = connection.post(notes_http.request("tools/list", {}))
        check(answer["result"] == listed["result"], "the whole listing still", answer)

        notes_http.write_tokens(notes.tokens, {BOB: ALL_TOOLS})
        status, body = connection.post(notes_http.call(NOTE))
        check((status, body) == (401, None), "401 once the token is gone", (status, body))

        # A file that can't be read identifies nobody, and says nothing.
        notes.tokens.write_text("[[token]]\ntoken = ")
        status, body = connection.post(notes_http.call(NOTE))
        check((status, body) == (503, None), "503", (status, body))

        notes_http.write_tokens(notes.tokens, {ADA: ALL_TOOLS})
        check(connection.reply(NOTE) == {**first, "replayed": True}, "the first reply", first)
        check(len(scenario.note_ids(notes.db)) == 1, "one note", notes.db)


def the_header_is_a_carrier(server: str) -> None:
    for version in (NEWEST, OLDER):
        with serving(server) as notes:
            connection = Connection(notes.port, version=version)
            body = {"body": BODY}
            header = "Idempotency-Key"
            first = connection.reply(body, **{header: f'"{scenario.KEY}"'})
            scenario.check_succeeded(first, replayed=False)
            for arguments, value in ((body, scenario.KEY), (NOTE, f'"{scenario.KEY}"')):
                again = connection.reply(arguments, **{header: value})
                check(again == {**first, "replayed": True}, "the first reply", again)
            for value in ('"another"', "two tokens", '"unclosed', "caf\u00e9"):
                refused = connection.reply(NOTE, **{header: value})
                scenario.check_rejected(refused, "invalid_key")
            meta = {"idempotent-tool/key": "from-the-host"}
            _, answer = connection.post(notes_http.call(body, version, **meta))
            scenario.check_succeeded(answer["result"]["structuredContent"], replayed=False)
            _, answer = connection.post(
                notes_http.call(body, version, **meta), **{header: '"another"'}
            )
            scenario.check_rejected(answer["result"]["structuredContent"], "invalid_key")
            check(len(scenario.note_ids(notes.db)) == 2, "two notes", notes.db)


def status_of(port: int, key: str, extra: dict, method: str = "POST", path: str = "/mcp") -> int:
    """What a valid call is answered with, but for its headers, method or path."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    message = notes_http.call({"idempotency_key": key, "body": BODY})
    connection.request(method, path, json.dumps(message), notes_http.headers(message) | extra)
    return connection.getresponse().status


def requests_have_limits(server: str) -> None:
    with serving(server) as notes:
        # The largest valid note fits, however it is escaped.
        largest = {"idempotency_key": "largest", "body": "\U0001f600" * 10_000}
        scenario.check_succeeded(once(notes.port, largest), replayed=False)
        too_long = {"idempotency_key": "too-long", "body": "a" * 10_001}
        scenario.check_rejected(once(notes.port, too_long), "invalid_arguments")
        # Too large, announced or not.
        huge = {"idempotency_key": "huge", "body": "a" * 300_000}
        status, _ = Connection(notes.port).post(notes_http.call(huge))
        check(status == 413, "413", status)
        connection = http.client.HTTPConnection("127.0.0.1", notes.port, timeout=300)
        message = notes_http.call(huge)
        chunks = (b" " * 1024 for _ in range(300))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.request(
                "POST", "/mcp", chunks, notes_http.headers(message), encode_chunked=True
            )
        check(connection.getresponse().status == 413, "413 for chunks", None)
        # Deeper than any parser should follow.
        deep = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + b"[" * 100_000
        connection = http.client.HTTPConnection("127.0.0.1", notes.port, timeout=300)
        connection.request("POST", "/mcp", deep, notes_http.headers(message))
        status = connection.getresponse().status
        check(400 <= status < 500, "a refusal", status)
        # Another path, another method, another host.
        for method, path, extra, expected in (
            ("POST", "/", {}, 404),
            ("GET", "/mcp", {}, 405),
            ("DELETE", "/mcp", {}, 405),
            ("POST", "/mcp", {"Host": "attacker.example"}, 403),
            ("POST", "/mcp", {"Origin": "http://attacker.example"}, 403),
        ):
            status = status_of(notes.port, "elsewhere", extra, method, path)
            check(status == expected, str(expected), (method, path, extra, status))
        check(len(scenario.note_ids(notes.db)) == 1, "one note", notes.db)


def other_host_names_are_answered_if_they_are_allowed(server: str) -> None:
    allowed = ("--allowed-host", "notes.example.com", "--allowed-host", "10.0.0.7:8443")
    with serving(server, flags=allowed) as notes:
        for number, (extra, expected) in enumerate((
            ({"Host": "notes.example.com"}, 200),
            ({"Host": "Notes.Example.com:9000"}, 200),
            ({"Host": "10.0.0.7:8443"}, 200),
            ({"Host": "10.0.0.7"}, 403),
            ({"Host": "example.com"}, 403),
            ({"Host": "attacker.example"}, 403),
            ({"Host": "notes.example.com.attacker.example"}, 403),
            ({"Host": f"localhost:{notes.port}"}, 200),
            # Pages of other sites stay outside, whatever name they reach the server by.
            ({"Host": "notes.example.com", "Origin": "http://attacker.example"}, 403),
        )):
            status = status_of(notes.port, f"host-{number}", extra)
            check(status == expected, str(expected), (extra, status))
        check(len(scenario.note_ids(notes.db)) == 4, "a note of each allowed", notes.db)


def a_client_that_sends_nothing_is_cut(server: str) -> None:
    """Within the limit of ten seconds, and while others are served."""
    with serving(server) as notes:
        whole = notes_http.raw(notes_http.call(NOTE))
        started = time.monotonic()
        slow = []
        for part in (b"", whole[:40], whole[:-10]):
            idle = notes_http.open_socket(notes.port)
            idle.sendall(part)
            slow.append(idle)
        scenario.check_succeeded(once(notes.port, NOTE), replayed=False)
        for idle in slow:
            idle.settimeout(300)
            answer = idle.recv(4096)
            check(answer == b"" or b"408" in answer, "an end, or 408", answer)
            idle.close()
        taken = time.monotonic() - started
        # How much later a busy machine sees it says nothing; that it ends is waited for above.
        check(8 < taken, "no end before ten seconds", taken)


def connections_without_a_token_keep_nobody_out(server: str) -> None:
    """As many as callers may have, silent or with a wrong token: whoever has one is answered
    while all of them are still open at their end."""
    stranger = notes_http.raw(notes_http.call(NOTE), token="unknown")
    for sent in (b"", stranger[:40], stranger[:-10]):
        with serving(server) as notes:
            held = []
            for _ in range(512):
                connection = notes_http.open_socket(notes.port)
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    connection.sendall(sent)
                held.append(connection)
            started = time.monotonic()
            scenario.check_succeeded(once(notes.port, NOTE), replayed=False)
            taken = time.monotonic() - started
            # A stranger's own time is five seconds, a caller's for its head ten.
            check(taken < 4, "no wait for any of them", taken)
            check(len(scenario.note_ids(notes.db)) == 1, "one note", notes.db)
            for connection in held:
                connection.close()


def a_refused_connection_ends(server: str) -> None:
    """So that whoever was a caller once keeps no place without a token."""
    with serving(server) as notes:
        connection = notes_http.open_socket(notes.port)
        connection.settimeout(30)
        connection.sendall(notes_http.raw(notes_http.call(NOTE), token="unknown"))
        answer = b""
        while part := connection.recv(4096):
            answer += part
        check(answer.startswith(b"HTTP/1.1 401"), "401, then the end", answer)
        connection.close()


def callers_have_a_limit(server: str) -> None:
    """More callers than the limit wait; whoever finds a place in time is not lost."""
    for _ in range(5):
        with serving(server) as notes:
            if callers_reach_their_limit(notes):
                return
    check(False, "512 callers at a time", "the machine is too slow to hold them")


def callers_reach_their_limit(notes: notes_http.Server) -> bool:
    """Whether the first caller was still held when the one beyond the limit was looked at: a
    body has ten seconds to come."""
    whole = notes_http.raw(notes_http.call(NOTE))
    head, _, _ = whole.partition(b"\r\n\r\n")
    held = []
    started = time.monotonic()
    for _ in range(512):
        connection = notes_http.open_socket(notes.port)
        connection.settimeout(300)
        # The head has the token; the body never comes. It is asked for by whoever has let the
        # caller in.
        connection.sendall(head + b"\r\nExpect: 100-continue\r\n\r\n")
        answer = connection.recv(12)
        check(answer == b"HTTP/1.1 100", "a place", answer)
        held.append(connection)
    late = notes_http.open_socket(notes.port)
    late.sendall(whole)
    late.settimeout(1)
    try:
        answer = late.recv(1)
    except socket.timeout:
        answer = b""
    if time.monotonic() - started > 9:
        return False
    check(answer == b"", "no answer while the limit is reached", answer)
    for connection in held:
        connection.close()
    late.settimeout(300)
    check(late.recv(12) == b"HTTP/1.1 200", "an answer afterwards", None)
    late.close()
    return True


def an_orderly_end_answers_what_has_begun(server: str) -> None:
    """SIGTERM under load: every request that was accepted is answered, and nothing is lost."""
    with serving(server) as notes:
        acknowledged = []
        failures = []
        begun = threading.Barrier(9)

        def client(number: int) -> None:
            connection = Connection(notes.port)
            begun.wait()
            try:
                for count in range(10_000):
                    key = f"{number}-{count}"
                    reply = connection.reply({"idempotency_key": key, "body": BODY})
                    acknowledged.append(reply["result"]["note_id"])
            except (OSError, http.client.HTTPException):
                return
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        begun.wait()
        while len(acknowledged) < 50:
            time.sleep(0.005)
        code = notes.end()
        for thread in threads:
            thread.join(300)
        check(code == 0 and not failures, "an orderly end", (code, failures))
        stored = set(scenario.note_ids(notes.db))
        check(set(acknowledged) <= stored, "every acknowledged note", len(stored))
        # One call of each client may have committed without its answer being read.
        check(len(stored) - len(acknowledged) <= 8, "no more", (len(stored), len(acknowledged)))


def main() -> None:
    server = scenario.options().server
    for test in (
        unauthenticated_requests_touch_nothing,
        one_key_of_two_principals_is_two,
        a_changed_token_file_counts_at_once,
        the_header_is_a_carrier,
        requests_have_limits,
        other_host_names_are_answered_if_they_are_allowed,
        a_client_that_sends_nothing_is_cut,
        connections_without_a_token_keep_nobody_out,
        a_refused_connection_ends,
        callers_have_a_limit,
        an_orderly_end_answers_what_has_begun,
    ):
        test(server)
        print(f"http: {test.__name__.replace('_', ' ')}")


main()
