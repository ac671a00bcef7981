"""64 clients for a minute, while the server is killed every five seconds.

The clients keep their own ledger of what was acknowledged to them. At the end the database
must have exactly that: nothing that was acknowledged is lost, nothing is doubled.
"""

import http.client
import random
import threading
import time

import notes_http
import scenario
from notes_http import NEWEST, OLDER, Connection, serving
from scenario import BODY, check

CLIENTS = 64
SECONDS = 60
KILL_EVERY = 5
# Of the calls, how many repeat one that was acknowledged.
RETRIES = 0.1


class Client(threading.Thread):
    """Calls until it is told to end; repeats a call that was not answered until it is."""

    def __init__(self, number: int, port: int, end: threading.Event):
        super().__init__(daemon=True)
        self.rng = random.Random(number)
        self.number = number
        self.port = port
        self.end = end
        self.acknowledged: dict[str, dict] = {}
        self.retries = 0
        self.unanswered = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.version = self.rng.choice([NEWEST, OLDER])
            self.connection = Connection(self.port, version=self.version)
            while not self.end.is_set():
                self.one_call()
        except BaseException as error:
            self.failure = error

    def one_call(self) -> None:
        if self.acknowledged and self.rng.random() < RETRIES:
            key = self.rng.choice(list(self.acknowledged))
            self.retries += 1
        else:
            key = f"{self.number}-{len(self.acknowledged)}"
        reply = self.answered({"idempotency_key": key, "body": f"{BODY} {key}"})
        check(reply["status"] == "succeeded", "a success", reply)
        known = self.acknowledged.get(key)
        if known is None:
            self.acknowledged[key] = reply
        else:
            expected = {**known, "replayed": True}
            check(reply == expected, "the acknowledged reply", (known, reply))

    def answered(self, arguments: dict) -> dict:
        """The reply, however often the call must be repeated until one arrives."""
        while True:
            try:
                reply = self.connection.reply(arguments)
                if reply["status"] == "succeeded" or not reply["retryable"]:
                    return reply
            except (OSError, http.client.HTTPException):
                self.unanswered += 1
                self.connection.close()
            # The server may be starting again.
            time.sleep(0.01 + self.rng.random() * 0.02)


def main() -> None:
    options = scenario.options()
    with serving(options.server) as notes:
        end = threading.Event()
        clients = [Client(number, notes.port, end) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        kills = 0
        until = time.monotonic() + SECONDS
        while time.monotonic() + KILL_EVERY < until:
            time.sleep(KILL_EVERY)
            check(notes.is_alive(), "a server that nobody killed", notes.process.returncode)
            notes.end(9)
            kills += 1
            notes.start()
        time.sleep(max(0.0, until - time.monotonic()))
        end.set()
        for client in clients:
            client.join(300)
            check(not client.is_alive() and client.failure is None, "no failure", client.failure)
        check(notes.end() == 0, "an orderly end", notes.process.returncode)

        acknowledged = [reply for client in clients for reply in client.acknowledged.values()]
        ids = sorted(reply["result"]["note_id"] for reply in acknowledged)
        check(len(set(ids)) == len(ids), "one note for each key", len(ids))
        # Each client ends with every call of its own acknowledged, so the two are equal.
        stored = scenario.note_ids(notes.db)
        check(stored == ids, "exactly the acknowledged notes", (len(stored), len(ids)))

        notes.start()
        connection = Connection(notes.port)
        for client in clients:
            for key, known in client.acknowledged.items():
                if client.rng.random() < 0.02:
                    arguments = {"idempotency_key": key, "body": f"{BODY} {key}"}
                    again = connection.reply(arguments)
                    check(again == {**known, "replayed": True}, "the acknowledged reply", again)
    retries = sum(client.retries for client in clients)
    unanswered = sum(client.unanswered for client in clients)
    check(unanswered > 0 and retries > 0, "lost answers and retries", (unanswered, retries))
    print(
        f"http: {CLIENTS} clients, {kills} kills, {len(ids)} notes acknowledged and stored, "
        f"{retries} deliberate retries, {unanswered} calls unanswered and repeated"
    )


main()
