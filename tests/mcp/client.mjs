// A client of a TypeScript SDK that does what lines on its standard input say: of SDK 1.x, or
// of the client of 2.x in one of its negotiations.
//
// One JSON object a line asks for one thing, and one line answers; `clients.py` writes them.

import { createInterface } from "node:readline";

import * as v2 from "@modelcontextprotocol/client";
import * as v2stdio from "@modelcontextprotocol/client/stdio";
import { AjvJsonSchemaValidator } from "@modelcontextprotocol/client/validators/ajv";
import { Client as Client1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as Stdio1 } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as Http1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const INFO = { name: "tests", version: "1.0.0" };

/** SDK 1.x, which validates errors as well. */
const sdk1 = {
  Stdio: Stdio1,
  Http: Http1,
  client: () => new Client1(INFO),
  version: () => "2025-11-25",
  call: (client, params, options) => client.callTool(params, undefined, options),
  validate: () => {},
};

/** The client of 2.x, which leaves errors unvalidated; a strict client does not. */
function client2(mode) {
  const validator = new AjvJsonSchemaValidator();
  return {
    Stdio: v2stdio.StdioClientTransport,
    Http: v2.StreamableHTTPClientTransport,
    client: () =>
      new v2.Client(INFO, { versionNegotiation: { mode }, jsonSchemaValidator: validator }),
    version: (client) => client.getNegotiatedProtocolVersion(),
    call: (client, params, options) => client.callTool(params, options),
    validate(tool, result) {
      const { valid, errorMessage } = validator.getValidator(tool.outputSchema)(
        result.structuredContent,
      );
      if (!valid) {
        throw new Error(`structured content of an error is invalid: ${errorMessage}`);
      }
    },
  };
}

const KINDS = { sdk: sdk1, legacy: client2("legacy"), auto: client2("auto") };
const kind = KINDS[process.argv[2]];

let client;
let tools;

const doing = {
  async connect({ command, env, url, headers }) {
    client = kind.client();
    await client.connect(
      command
        ? new kind.Stdio({ command: command[0], args: command.slice(1), env: env ?? undefined })
        : new kind.Http(new URL(url), { requestInit: { headers } }),
    );
    // The listing brings the output validators.
    ({ tools } = await client.listTools());
    return { version: kind.version(client) };
  },

  async list() {
    ({ tools } = await client.listTools());
    return { tools };
  },

  async call({ tool, arguments: args, timeout }) {
    const options = { timeout: (timeout ?? 300) * 1000 };
    const result = await kind.call(client, { name: tool, arguments: args }, options);
    kind.validate(
      tools.find(({ name }) => name === tool),
      result,
    );
    return {
      result: {
        structuredContent: result.structuredContent,
        texts: result.content.map(({ text }) => text),
        isError: Boolean(result.isError),
      },
    };
  },

  async close() {
    await client.close();
    return {};
  },
};

for await (const line of createInterface(process.stdin)) {
  const [[asked, how]] = Object.entries(JSON.parse(line));
  let answer;
  try {
    answer = await doing[asked](how);
  } catch (error) {
    answer = { error: `${error.name}: ${error.message}` };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
