"""Serves what a command serves on standard streams, but for the results of calls.

`corrupt` gives a member of each a type that no schema allows: a client that accepts such a reply
validates nothing. `withhold` never passes them on: a client waits until it has had enough.
"""

import subprocess
import sys

# In `structuredContent` alone: in a text block the quotes are escaped.
LIES = [(b'"replayed":false', b'"replayed":"no"'), (b'"retryable":false', b'"retryable":"no"')]


def relayed(how: str, line: bytes) -> bytes:
    if b'"structuredContent"' not in line:
        return line
    if how == "withhold":
        return b""
    for truth, lie in LIES:
        line = line.replace(truth, lie)
    return line


how, *command = sys.argv[1:]
with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
    for line in server.stdout:
        sys.stdout.buffer.write(relayed(how, line))
        sys.stdout.buffer.flush()
sys.exit(server.returncode)
