// The TypeScript SDK 1.x against the notes server. It validates structured content
// against the output schema even when `isError` is true.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { constants, tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { parseArgs } from "node:util";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

const { values: servers } = parseArgs({
  options: { server: { type: "string" }, "crash-server": { type: "string" } },
});
// How `scenario.py` says it: the crash-test build kills itself between commit and reply.
const KILL_AFTER_COMMIT = { IDEMPOTENT_TOOL_FAILPOINT: "kill:after-commit" };
const RECORD_EXIT = join(import.meta.dirname, "record_exit.py");

const BODY = "Investigate the failing parser fixture.";
const NOTE = { idempotency_key: "note-request-7b025dc8", body: BODY };
const REFUSED = [
  [{ ...NOTE, body: "Another body" }, "payload_conflict"],
  [{ body: BODY }, "invalid_key"],
  [{ idempotency_key: " ", body: BODY }, "invalid_key"],
  [
    { idempotency_key: "k", body: "", pinned: "yes", colour: "red" },
    "invalid_arguments",
    ["/body", "/colour", "/pinned"],
  ],
];

/** A connected client whose listing, and with it its output validators, is loaded. */
async function connect(command, env) {
  const client = new Client({ name: "notes-test", version: "1.0.0" });
  const [program, ...args] = command;
  await client.connect(new StdioClientTransport({ command: program, args, env }));
  const { tools } = await client.listTools();
  assert.deepEqual(tools.map((tool) => tool.name).sort(), ["create_note", "list_notes"]);
  return client;
}

function serve(server, db, ...flags) {
  return [server, "serve", "--db", db, ...flags];
}

/** The reply of `create_note`, after the SDK's own validation. */
async function call(client, args) {
  const result = await client.callTool({ name: "create_note", arguments: args });
  const reply = result.structuredContent;
  assert.equal(result.content.length, 2);
  assert.deepEqual(JSON.parse(result.content[0].text), reply);
  assert.equal(Boolean(result.isError), reply.status !== "succeeded");
  return reply;
}

function noteIds(db) {
  const database = new DatabaseSync(db, { readOnly: true });
  const rows = database.prepare("SELECT id FROM notes ORDER BY id").all();
  database.close();
  return rows.map((row) => row.id);
}

async function happyPath(db) {
  const client = await connect(serve(servers.server, db));
  const first = await call(client, NOTE);
  assert.equal(first.status, "succeeded");
  assert.equal(first.replayed, false);
  assert.deepEqual(await call(client, NOTE), { ...first, replayed: true });
  for (const [args, code, paths] of REFUSED) {
    const reply = await call(client, args);
    assert.equal(reply.status, "rejected");
    assert.equal(reply.error.code, code);
    if (paths) {
      assert.deepEqual(reply.error.details.map((detail) => detail.path).sort(), paths);
    }
  }
  const notes = await client.callTool({ name: "list_notes", arguments: {} });
  assert.match(JSON.stringify(notes), /Investigate the failing parser fixture/);
  await assert.rejects(client.callTool({ name: "no_such_tool", arguments: {} }), { code: -32602 });
  await client.close();
  assert.deepEqual(noteIds(db), [first.result.note_id]);

  const denied = await connect(serve(servers.server, db, "--deny", "create_note"));
  assert.equal((await call(denied, NOTE)).error.code, "denied");
  await denied.close();
}

async function lostAnswer(db) {
  const exitFile = `${db}.exit`;
  const doomed = serve(servers["crash-server"], db);
  const client = await connect(["python3", RECORD_EXIT, exitFile, ...doomed], KILL_AFTER_COMMIT);
  const closed = new Promise((resolve) => (client.onclose = resolve));
  await assert.rejects(call(client, NOTE), { code: -32000 });
  await closed;
  assert.equal(Number(readFileSync(exitFile, "utf8")), -constants.signals.SIGKILL);
  const committed = noteIds(db);
  assert.equal(committed.length, 1);

  const restarted = await connect(serve(servers.server, db));
  const retry = await call(restarted, NOTE);
  assert.equal(retry.replayed, true);
  assert.deepEqual([retry.result.note_id], committed);
  await restarted.close();
  assert.deepEqual(noteIds(db), committed);
}

for (const scenario of [happyPath, lostAnswer]) {
  const folder = mkdtempSync(join(tmpdir(), "notes-"));
  try {
    await scenario(join(folder, "notes.sqlite3"));
  } finally {
    rmSync(folder, { recursive: true });
  }
}
console.log("typescript sdk: passed, a key lost and replayed");
