// The TypeScript SDKs against the notes server, on standard streams and over HTTP: SDK 1.x,
// and the client of 2.x in both of its negotiations. All validate structured content against
// the output schema; 1.x even when `isError` is true.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { constants, tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { DatabaseSync } from "node:sqlite";
import { parseArgs } from "node:util";

import * as v2 from "@modelcontextprotocol/client";
import * as v2stdio from "@modelcontextprotocol/client/stdio";
import { Client as Client1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as Stdio1 } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as Http1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const { values: options } = parseArgs({
  options: {
    server: { type: "string" },
    "crash-server": { type: "string" },
    failpoint: { type: "string" },
  },
});
const RECORD_EXIT = join(import.meta.dirname, "record_exit.py");
const ALL_TOOLS = ["create_note", "list_notes"];

const BODY = "Investigate the failing parser fixture.";
const NOTE = { idempotency_key: "note-request-7b025dc8", body: BODY };
const REFUSED = [
  [{ ...NOTE, body: "Another body" }, "payload_conflict"],
  [{ body: BODY }, "invalid_key"],
  [{ idempotency_key: " ", body: BODY }, "invalid_key"],
  [
    { idempotency_key: "k", body: "", pinned: 7, colour: "red" },
    "invalid_arguments",
    ["/body", "/colour", "/pinned"],
  ],
];

/** A client of 2.x that negotiates in this way. */
function client2(mode) {
  return {
    Stdio: v2stdio.StdioClientTransport,
    Http: v2.StreamableHTTPClientTransport,
    client: (info) => new v2.Client(info, { versionNegotiation: { mode } }),
    version: (client) => client.getNegotiatedProtocolVersion(),
  };
}

const CLIENTS = {
  "sdk 1.x": {
    Stdio: Stdio1,
    Http: Http1,
    client: (info) => new Client1(info),
    version: () => "2025-11-25",
    negotiates: "2025-11-25",
  },
  "client 2.x (legacy)": { ...client2("legacy"), negotiates: "2025-11-25" },
  "client 2.x (auto)": { ...client2("auto"), negotiates: "2026-07-28" },
};

/** The server on standard streams: a process for each connection. */
class Streams {
  constructor(db) {
    this.db = db;
    this.exitFile = `${db}.exit`;
  }

  serve(...denied) {
    const flags = denied.flatMap((tool) => ["--deny", tool]);
    return { command: [options.server, "serve", "--db", this.db, ...flags] };
  }

  serveDoomed() {
    const command = [options["crash-server"], "serve", "--db", this.db];
    return {
      command: ["python3", RECORD_EXIT, this.exitFile, ...command],
      env: { IDEMPOTENT_TOOL_FAILPOINT: options.failpoint },
    };
  }

  async exitCode() {
    return Number(readFileSync(this.exitFile, "utf8"));
  }

  async end() {}
}

/** The server over HTTP: one process, whose tokens are a file. */
class Http {
  constructor(db) {
    this.db = db;
    this.tokens = `${db}.toml`;
  }

  async serve(...denied) {
    const permitted = ALL_TOOLS.filter((tool) => !denied.includes(tool));
    writeFileSync(
      `${this.tokens}.new`,
      `[[token]]\ntoken = "ada-token"\nprincipal = "ada"\npermissions = ${JSON.stringify(permitted)}\n`,
    );
    renameSync(`${this.tokens}.new`, this.tokens);
    if (!this.process) {
      await this.start(options.server, {});
    }
    return { url: this.url };
  }

  async serveDoomed() {
    writeFileSync(
      this.tokens,
      `[[token]]\ntoken = "ada-token"\nprincipal = "ada"\npermissions = ["create_note"]\n`,
    );
    await this.start(options["crash-server"], { IDEMPOTENT_TOOL_FAILPOINT: options.failpoint });
    return { url: this.url };
  }

  async start(server, env) {
    const flags = ["--http", "127.0.0.1:0", "--tokens", this.tokens];
    this.process = spawn(server, ["serve", "--db", this.db, ...flags], {
      env: { ...process.env, ...env },
      stdio: ["ignore", "ignore", "pipe"],
    });
    this.exited = once(this.process, "exit");
    const lines = createInterface(this.process.stderr);
    const [line] = await once(lines, "line");
    this.url = line.match(/http:\S+/)[0];
  }

  async exitCode() {
    const [, signal] = await this.exited;
    this.process = undefined;
    return -constants.signals[signal];
  }

  async end() {
    if (this.process) {
      this.process.kill("SIGTERM");
      assert.deepEqual(await this.exited, [0, null]);
    }
  }
}

/** A connected client whose listing, and with it its output validators, is loaded. */
async function connect(kind, target) {
  const client = kind.client({ name: "notes-test", version: "1.0.0" });
  const { command, env, url } = await target;
  const headers = { Authorization: "Bearer ada-token" };
  await client.connect(
    command
      ? new kind.Stdio({ command: command[0], args: command.slice(1), env })
      : new kind.Http(new URL(url), { requestInit: { headers } }),
  );
  assert.equal(kind.version(client), kind.negotiates);
  const { tools } = await client.listTools();
  assert.deepEqual(tools.map((tool) => tool.name).sort(), ALL_TOOLS);
  return client;
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

async function happyPath(kind, server) {
  const client = await connect(kind, server.serve());
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
  assert.deepEqual(noteIds(server.db), [first.result.note_id]);

  const denied = await connect(kind, server.serve("create_note"));
  assert.equal((await call(denied, NOTE)).error.code, "denied");
  await denied.close();
}

async function lostAnswer(kind, server) {
  const client = await connect(kind, server.serveDoomed());
  await assert.rejects(call(client, NOTE));
  assert.equal(await server.exitCode(), -constants.signals.SIGKILL);
  await client.close();
  const committed = noteIds(server.db);
  assert.equal(committed.length, 1);

  const restarted = await connect(kind, server.serve());
  const retry = await call(restarted, NOTE);
  assert.equal(retry.replayed, true);
  assert.deepEqual([retry.result.note_id], committed);
  await restarted.close();
  assert.deepEqual(noteIds(server.db), committed);
}

/** The client gives up while another process holds the write lock; its retry is one note. */
async function ownTimeOut(kind, server) {
  const client = await connect(kind, server.serve());
  const other = new DatabaseSync(server.db);
  other.exec("BEGIN IMMEDIATE");
  const args = { name: "create_note", arguments: NOTE };
  // In 2.x the second argument is the options; in 1.x the third.
  const late =
    kind.client === CLIENTS["sdk 1.x"].client
      ? client.callTool(args, undefined, { timeout: 500 })
      : client.callTool(args, { timeout: 500 });
  await assert.rejects(late, /timed out/i);
  other.exec("ROLLBACK");
  other.close();
  assert.equal((await call(client, NOTE)).status, "succeeded");
  await client.close();
  assert.equal(noteIds(server.db).length, 1);
}

for (const Server of [Streams, Http]) {
  for (const [name, kind] of Object.entries(CLIENTS)) {
    for (const scenario of [happyPath, lostAnswer, ownTimeOut]) {
      const folder = mkdtempSync(join(tmpdir(), "notes-"));
      const server = new Server(join(folder, "notes.sqlite3"));
      try {
        await scenario(kind, server);
        await server.end();
      } finally {
        server.process?.kill("SIGKILL");
        rmSync(folder, { recursive: true });
      }
    }
    console.log(`typescript ${name} over ${Server.name}: passed, an answer lost and replayed`);
  }
}
