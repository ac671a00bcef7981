"""`mcp-assert` against the notes server: its linter, strict, and its fuzzer, on both transports."""

import re
import subprocess
import sys
from pathlib import Path

import notes_http
import scenario
from notes_http import serving
from scenario import check

PROGRAM = Path(sys.executable).with_name("mcp-assert")
RUNS = 200

# W111 wants descriptions of less than 500 characters. Ours says when a key is to be reused,
# which models get wrong without being told.
SKIPPED = "W111"


def run(*arguments: str) -> str:
    process = subprocess.run(
        [str(PROGRAM), *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    output = process.stdout + process.stderr
    check(process.returncode == 0, f"mcp-assert {arguments[0]} to pass", output)
    return output


def lint_and_fuzz(*target: str) -> None:
    output = run("lint", *target, "--strict", "--skip-rules", SKIPPED)
    check("no issues found" in output, "no finding", output)
    output = run("fuzz", *target, "--runs", str(RUNS))
    counts = re.search(r"(\d+) tools fuzzed, (\d+) runs, (\d+) passed", output)
    check(counts is not None and counts[1] == "2", "both tools fuzzed", output)
    check(counts[2] == counts[3], "all runs passed", output)
    print(f"mcp-assert: no finding, {counts[3]} fuzzed calls passed")


def main() -> None:
    server = scenario.options().server
    with scenario.database() as db:
        lint_and_fuzz("--server", " ".join(scenario.serve(server, db)))
    with serving(server) as notes:
        authorization = f"Authorization=Bearer {notes_http.ADA}"
        lint_and_fuzz(
            *("--server", notes.url, "--transport", "http", "--headers", authorization)
        )
        check(notes.end() == 0, "an orderly end", notes.process.returncode)


main()
