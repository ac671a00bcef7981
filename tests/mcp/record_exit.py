"""Runs a command on its own standard streams and writes its exit code to a file.

A process that a signal ended has the signal's number, negated.
"""

import subprocess
import sys

exit_file, *command = sys.argv[1:]
code = subprocess.call(command)
with open(exit_file, "w", encoding="utf-8") as file:
    file.write(str(code))
sys.exit(0 if code == 0 else 1)
