"""Prints the failpoint that kills the server between the commit and the answer.

Failpoints count the statements of a call, which change with the store. So it is looked for:
the first statement after which a killed process leaves a committed note. Until then each
killed call must leave nothing.
"""

import json
import os
import signal
import subprocess
import sys

import scenario
from scenario import NOTE, check

# Far more statements than a call has.
LIMIT = 100


def killed_after(statement: int, crash_server: str) -> tuple[int, int]:
    """The exit code of a call that is killed after `statement`, and the notes it left."""
    with scenario.database() as db:
        command = [crash_server, "call", "create_note", "--db", str(db), json.dumps(NOTE)]
        env = {**os.environ, scenario.FAILPOINT: f"kill-after:{statement}"}
        process = subprocess.run(command, env=env, capture_output=True, check=False)
        return process.returncode, len(scenario.note_ids(db))


def main() -> None:
    crash_server = sys.argv[1]
    for statement in range(1, LIMIT):
        code, notes = killed_after(statement, crash_server)
        check(code == -signal.SIGKILL, f"a kill after statement {statement}", code)
        if notes == 1:
            print(f"kill-after:{statement}")
            return
    check(False, f"a commit within {LIMIT} statements", None)


main()
