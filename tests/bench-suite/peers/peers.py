"""The article's note with what a Python user could pick: `peers.py WHICH FILE CALLERS SECONDS`.

Prints calls per second, and the 50th and 99th percentile of their latency in microseconds.
"""

import json
import os
import sqlite3
import sys
import threading
import time
import uuid
from contextlib import closing

SCOPE = '["account-17","user-42","project-9"]'
BODY = "Investigate the failing parser fixture."
NOTES = "CREATE TABLE IF NOT EXISTS notes (id TEXT PRIMARY KEY, scope TEXT NOT NULL, body TEXT NOT NULL)"
INSERT_NOTE = "INSERT INTO notes (id, scope, body) VALUES (?, ?, ?)"


def connect(path, timeout=5):
    return sqlite3.connect(path, timeout=timeout, isolation_level=None)


def article(path):
    """A connection per call and one transaction, in SQLite's default journal mode."""
    with closing(connect(path)) as db:
        db.execute(NOTES)
        db.execute(
            "CREATE TABLE IF NOT EXISTS receipts (scope TEXT NOT NULL, operation TEXT NOT NULL, "
            "request_key TEXT NOT NULL, request_json TEXT NOT NULL, result_json TEXT NOT NULL, "
            "PRIMARY KEY (scope, operation, request_key))"
        )

    def call(key):
        request = json.dumps({"body": BODY}, sort_keys=True, separators=(",", ":"))
        identity = (SCOPE, "create_note:v1", key)
        with closing(connect(path)) as db:
            try:
                db.execute("BEGIN IMMEDIATE")
                found = db.execute(
                    "SELECT request_json, result_json FROM receipts "
                    "WHERE scope = ? AND operation = ? AND request_key = ?",
                    identity,
                ).fetchone()
                if found is None:
                    note_id = str(uuid.uuid4())
                    db.execute(INSERT_NOTE, (note_id, SCOPE, BODY))
                    result = {"status": "succeeded", "note_id": note_id}
                    db.execute(
                        "INSERT INTO receipts VALUES (?, ?, ?, ?, ?)",
                        (*identity, request, json.dumps(result)),
                    )
                db.commit()
            except BaseException:
                if db.in_transaction:
                    db.rollback()
                raise

    return call


def dbos(path):
    """A workflow with one step, its identity the workflow's; dbos' own SQLite settings."""
    from dbos import DBOS, DBOSConfig, SetWorkflowID

    with closing(connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(NOTES)
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": f"sqlite:///{path}.dbos",
        "log_level": "ERROR",
    }
    DBOS(config=config)

    @DBOS.step()
    def insert(body):
        note_id = str(uuid.uuid4())
        with closing(connect(path)) as db:
            db.execute(INSERT_NOTE, (note_id, SCOPE, body))
        return note_id

    @DBOS.workflow()
    def create_note(body):
        return insert(body)

    DBOS.launch()

    def call(key):
        with SetWorkflowID(key):
            create_note(BODY)

    return call


def powertools(path):
    """The idempotency utility over a persistence layer on SQLite, with a write-ahead log."""
    from aws_lambda_powertools.utilities.idempotency import (
        IdempotencyConfig,
        idempotent_function,
    )
    from aws_lambda_powertools.utilities.idempotency.exceptions import (
        IdempotencyItemAlreadyExistsError,
        IdempotencyItemNotFoundError,
    )
    from aws_lambda_powertools.utilities.idempotency.persistence.base import BasePersistenceLayer
    from aws_lambda_powertools.utilities.idempotency.persistence.datarecord import DataRecord

    local = threading.local()

    def database():
        if not hasattr(local, "db"):
            local.db = connect(path)
        return local.db

    class SqliteLayer(BasePersistenceLayer):
        def _get_record(self, idempotency_key):
            row = database().execute("SELECT * FROM records WHERE id = ?", (idempotency_key,)).fetchone()
            if row is None:
                raise IdempotencyItemNotFoundError
            return DataRecord(
                idempotency_key=row[0], status=row[1], expiry_timestamp=row[2], response_data=row[3]
            )

        def _put_record(self, data_record):
            try:
                database().execute(
                    "INSERT INTO records VALUES (?, ?, ?, NULL)",
                    (data_record.idempotency_key, data_record.status, data_record.expiry_timestamp),
                )
            except sqlite3.IntegrityError as error:
                raise IdempotencyItemAlreadyExistsError from error

        def _update_record(self, data_record):
            database().execute(
                "UPDATE records SET status = ?, expiry = ?, response = ? WHERE id = ?",
                (
                    data_record.status,
                    data_record.expiry_timestamp,
                    data_record.response_data,
                    data_record.idempotency_key,
                ),
            )

        def _delete_record(self, data_record):
            database().execute("DELETE FROM records WHERE id = ?", (data_record.idempotency_key,))

    with closing(connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(NOTES)
        db.execute(
            "CREATE TABLE IF NOT EXISTS records (id TEXT PRIMARY KEY, status TEXT, expiry INTEGER, response TEXT)"
        )

    config = IdempotencyConfig(event_key_jmespath="key", expires_after_seconds=30 * 24 * 3600)

    @idempotent_function(
        data_keyword_argument="request",
        persistence_store=SqliteLayer(),
        config=config,
        key_prefix="create_note",
    )
    def create_note(request):
        note_id = str(uuid.uuid4())
        database().execute(INSERT_NOTE, (note_id, SCOPE, request["body"]))
        return {"note_id": note_id}

    return lambda key: create_note(request={"key": key, "body": BODY})


def main():
    which, path, callers, seconds = sys.argv[1:]
    call = {"article": article, "dbos": dbos, "powertools": powertools}[which](path)
    stop = threading.Event()
    latencies = [[] for _ in range(int(callers))]

    def run(own):
        while not stop.is_set():
            began = time.perf_counter()
            while True:
                try:
                    call(str(uuid.uuid4()))
                    break
                except sqlite3.OperationalError as error:
                    if "locked" not in str(error):
                        raise
            own.append((time.perf_counter() - began) * 1e6)

    threads = [threading.Thread(target=run, args=(own,)) for own in latencies]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    time.sleep(float(seconds))
    stop.set()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - began
    every = sorted(latency for own in latencies for latency in own)
    at = lambda permille: every[len(every) * permille // 1000] if every else 0.0
    print(len(every) / elapsed, at(500), at(990), flush=True)
    # dbos keeps threads that would hold the process.
    os._exit(0)


if __name__ == "__main__":
    main()
