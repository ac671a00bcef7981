"""Ten thousand mutated bodies over HTTP: no crash, no hang, no 5xx, no row but a valid call's."""

import http.client
import json
import random
import time

import notes_http
import scenario
from notes_http import NEWEST, OLDER, serving
from scenario import BODY, check

BODIES = 10_000
# What a request may need, and what the server may grow by, at most.
SECONDS = 120
GROWTH = 64 * 1024 * 1024

STRINGS = [
    "", " ", "\0", "a\0b", "\u202e", "\ud800", "\uffff", "null", "{}", "' OR 1=1 --", "../x",
    "__proto__", "\U0001f600" * 129, "a" * 10_001, "%s%n", "\r\nX-Injected: 1",
]
NUMBERS = [0, -1, 1, 2**53 + 1, 2**64, -(2**63) - 1, 1e308, -0.0, 0.1]


class Raw(str):
    """JSON text that is put in as it is."""


RAW = [Raw("1e400"), Raw("NaN"), Raw("-"), Raw("01"), Raw('"\\ud800"'), Raw('"\\x"'), Raw("")]


def anything(rng: random.Random, depth: int = 0) -> object:
    kind = rng.randrange(9 if depth < 4 else 6)
    if kind < 2:
        return rng.choice(STRINGS)
    if kind == 2:
        return rng.choice(NUMBERS)
    if kind == 3:
        return rng.choice([True, False, None])
    if kind == 4:
        return rng.choice(RAW)
    if kind == 5:
        return "x" * rng.randrange(2000)
    if kind == 6:
        return [anything(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 7:
        return {rng.choice(STRINGS): anything(rng, depth + 1) for _ in range(rng.randrange(4))}
    value: object = rng.choice(NUMBERS)
    for _ in range(rng.choice([3, 50, 127, 128, 200, 5000])):
        value = Deep(value)
    return value


class Deep:
    def __init__(self, inner: object):
        self.inner = inner


def text(value: object) -> str:
    """JSON, or something near it: members twice, raw text, deep nesting."""
    depth = 0
    while isinstance(value, Deep):
        value = value.inner
        depth += 1
    if isinstance(value, Raw):
        inner = str(value)
    elif isinstance(value, Members):
        inner = "{" + ",".join(f"{json.dumps(k)}:{text(v)}" for k, v in value.members) + "}"
    elif isinstance(value, dict):
        inner = "{" + ",".join(f"{json.dumps(k)}:{text(v)}" for k, v in value.items()) + "}"
    elif isinstance(value, list):
        inner = "[" + ",".join(map(text, value)) + "]"
    else:
        inner = json.dumps(value)
    return "[" * depth + inner + "]" * depth


class Members:
    """An object whose members may occur twice."""

    def __init__(self, members: list[tuple[str, object]]):
        self.members = members


def arguments(rng: random.Random) -> object:
    """Arguments, most of which no call may succeed with."""
    broken = rng.randrange(8)
    if broken == 0:
        return anything(rng)
    if broken == 1:
        return {"idempotency_key": rng.choice(["", " a", "a\n", "a" * 129, None, 7]), "body": BODY}
    if broken == 2:
        return {"idempotency_key": "k", "body": rng.choice(["", "b" * 10_001, None, 1, [], {}])}
    if broken == 3:
        return {"idempotency_key": "k", "body": BODY, "pinned": rng.choice(["no", 1, [], None])}
    if broken == 4:
        return {"idempotency_key": "k", "body": BODY, rng.choice(STRINGS): anything(rng)}
    if broken == 5:
        # The last of two members counts, and it is invalid.
        return Members([("idempotency_key", "k"), ("body", BODY), ("body", rng.choice(NUMBERS))])
    if broken == 6:
        return {"body": BODY}
    return {"idempotency_key": f"valid-{rng.randrange(1000)}", "body": BODY}


def is_valid(message: bytes) -> bool:
    """Whether a call of `create_note` with this body may succeed, by rules of our own."""
    arguments = dict(json.loads(message)["params"]["arguments"])
    key = arguments.pop("idempotency_key")
    text = arguments.pop("body")
    pinned = arguments.pop("pinned", False)
    return (
        not arguments
        and isinstance(key, str) and 1 <= len(key) <= 128
        and isinstance(text, str) and 1 <= len(text) <= 10_000
        and isinstance(pinned, bool)
    )


def body(rng: random.Random, version: str) -> bytes:
    meta: object = notes_http.META if version == NEWEST else {}
    if rng.random() < 0.1:
        meta = anything(rng)
    elif rng.random() < 0.1:
        meta = {**notes_http.META, "io.modelcontextprotocol/protocolVersion": anything(rng)}
    name: object = "create_note" if rng.random() < 0.9 else anything(rng)
    params: object = {"name": name, "arguments": arguments(rng), "_meta": meta}
    method: object = "tools/call"
    if rng.random() < 0.1:
        method = rng.choice([
            "tools/list", "initialize", "server/discover", "ping", "", "tools/Call",
            "resources/read", "tasks/get", "notifications/cancelled", anything(rng),
        ])
    if rng.random() < 0.05:
        params = anything(rng)
    identifier: object = rng.randrange(1000) if rng.random() < 0.9 else anything(rng)
    members = [("jsonrpc", "2.0"), ("id", identifier), ("method", method), ("params", params)]
    if rng.random() < 0.05:
        members = [member for member in members if rng.random() < 0.7]
    if rng.random() < 0.05:
        members.append(rng.choice(members) if members else ("id", 1))
    message = text(Members(members)).encode(errors="surrogatepass")
    mutation = rng.random()
    if mutation < 0.05:
        message = message[: rng.randrange(len(message))]
    elif mutation < 0.1:
        spoiled = bytearray(message)
        for _ in range(rng.randrange(1, 5)):
            spoiled[rng.randrange(len(spoiled))] = rng.choice(b'\0\xff\x80"{}[]\\')
        message = bytes(spoiled)
    elif mutation < 0.12:
        message = b"[" + message + b"]"
    return message


def fuzz(server: str) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    statuses: dict[int, int] = {}
    written: set[str] = set()
    message = b""
    try:
        with serving(server) as notes:
            connection = http.client.HTTPConnection("127.0.0.1", notes.port, timeout=SECONDS)
            memory = None
            for count in range(BODIES):
                version = rng.choice([NEWEST, OLDER])
                message = body(rng, version)
                carried = {
                    "Content-Type": "application/json",
                    "Accept": "application/json, text/event-stream",
                    "Authorization": f"Bearer {notes_http.ADA}",
                    "MCP-Protocol-Version": version,
                }
                if version == NEWEST:
                    carried |= {"Mcp-Method": "tools/call", "Mcp-Name": "create_note"}
                if rng.random() < 0.05:
                    carried["MCP-Protocol-Version"] = rng.choice(
                        ["", "1999-01-01", "2026-07-29", "latest", "\u00e9"]
                    )
                started = time.monotonic()
                connection.request("POST", "/mcp", message, carried)
                response = connection.getresponse()
                answer = response.read()
                if response.status >= 400:
                    connection.close()
                taken = time.monotonic() - started
                statuses[response.status] = statuses.get(response.status, 0) + 1
                check(response.status < 500, "no 5xx", (response.status, answer))
                check(taken < SECONDS, "an answer in time", taken)
                if response.status == 200 and b'"structuredContent"' in answer:
                    reply = json.loads(answer)["result"]["structuredContent"]
                    if reply["status"] == "succeeded":
                        check(is_valid(message), "a rejection", reply)
                        written.add(reply["result"]["note_id"])
                    else:
                        check(reply["status"] == "rejected", "a rejection", reply)
                if count == BODIES // 10:
                    memory = notes.memory()
            grown = notes.memory() - memory
            check(grown < GROWTH, "bounded memory", grown)
            stored = scenario.note_ids(notes.db)
            check(stored == sorted(written), "the valid calls' rows", len(stored))
            check(len(stored) > 100, "some valid calls", len(stored))
            check(notes.end() == 0, "an orderly end", notes.process.returncode)
    except BaseException:
        print(f"the seed was {seed}, the body {message[:2000]!r}")
        raise
    print(
        f"http: {BODIES} mutated bodies, answered with {statuses}, {len(written)} notes, "
        f"{grown >> 10} KiB grown"
    )


fuzz(scenario.options().server)
