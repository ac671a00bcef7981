"""`mcp-assert` against the examples: its linter, strict, and its fuzzer, on both transports."""

import contextlib
import re
import subprocess
import sys
from pathlib import Path

import notes_http
import scenario
from cases import OWN_TOOLS
from lab import TOOLS, Lab
from notes_http import serving
from scenario import check

PROGRAM = Path(sys.executable).with_name("mcp-assert")
RUNS = 200

# Descriptions of 500 characters and more.
TOO_LONG = "W111"


def run(*arguments: str, passes: bool = True) -> str:
    process = subprocess.run(
        [str(PROGRAM), *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    output = process.stdout + process.stderr
    check((process.returncode == 0) == passes, f"mcp-assert {arguments[0]}: {passes}", output)
    return output


def lint(*target: str) -> None:
    output = run("lint", *target, "--strict")
    check("no issues found" in output, "no finding", output)


def lint_own_tools(*target: str) -> None:
    """The example itself has three tools that are alike on purpose, which no linter likes."""
    output = run("lint", *target, "--strict", passes=False)
    found = re.findall(r"^ +[EW] +([EW]\d+) +(\S+)", output, re.MULTILINE)
    check(found != [], "findings", output)
    ours = [(rule, tool) for rule, tool in found if tool in OWN_TOOLS or rule == TOO_LONG]
    check(ours == [], "no finding in what the toolbox says", ours)


def fuzz(tools: int, *target: str) -> None:
    output = run("fuzz", *target, "--runs", str(RUNS))
    counts = re.search(r"(\d+) tools fuzzed, (\d+) runs, (\d+) passed", output)
    check(counts is not None and counts[1] == str(tools), f"{tools} tools fuzzed", output)
    check(counts[2] == counts[3], "all runs passed", output)
    print(f"mcp-assert: no finding, {counts[3]} fuzzed calls passed")


def main() -> None:
    options = scenario.options()
    with scenario.database() as db:
        target = ("--server", " ".join(scenario.serve(options.server, db)))
        lint(*target)
        fuzz(2, *target)
    with serving(options.server) as notes:
        authorization = f"Authorization=Bearer {notes_http.ADA}"
        target = ("--server", notes.url, "--transport", "http", "--headers", authorization)
        lint(*target)
        fuzz(2, *target)
        check(notes.end() == 0, "an orderly end", notes.process.returncode)
    with contextlib.ExitStack() as stack:
        lab = Lab(options.deployments, options.deployments, stack)
        command = scenario.serve(lab.binary, lab.db, "--provider", lab.url)
        target = ("--server", " ".join(command))
        lint_own_tools(*target)
        fuzz(len(TOOLS) + len(OWN_TOOLS) + 1, *target)


main()
