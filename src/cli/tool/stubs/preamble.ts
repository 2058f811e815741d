// Tools behind ati as typed functions. Made by `ati tool stubs --lang ts`.
//
// Each function runs `ati run`, which has to be on PATH (or named by ATI_BIN), and resolves to the
// tool's result. Node.js 18 and later, nothing else.

import { spawn } from "node:child_process";

/** A call that failed. `code` and `hint` are those of ati, `exitCode` says whose fault it is. */
export class AtiError extends Error {
  constructor(
    message: string,
    readonly code: string,
    readonly exitCode: number,
    readonly hint?: string,
  ) {
    super(message);
    this.name = "AtiError";
  }
}

function call(tool: string, args: object): Promise<unknown> {
  return run(tool, ["-"], JSON.stringify(args));
}

function run(tool: string, words: string[], input: string): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const ati = process.env.ATI_BIN ?? "ati";
    const child = spawn(ati, ["--output", "json", "run", tool, ...words]);
    const out: Buffer[] = [];
    const err: Buffer[] = [];
    child.stdout.on("data", (piece: Buffer) => out.push(piece));
    child.stderr.on("data", (piece: Buffer) => err.push(piece));
    child.on("error", (error) =>
      reject(new AtiError(`${ati} can't be run: ${error.message}`, "unknown", 127, "put ati on PATH, or name it by ATI_BIN")),
    );
    // A tool may end without reading its input.
    child.stdin.on("error", () => undefined);
    child.stdin.end(input);
    child.on("close", (code) => {
      const text = Buffer.concat(out).toString("utf8").trim();
      if (code === 0) {
        resolve(text === "" ? null : JSON.parse(text));
        return;
      }
      const said = Buffer.concat(err).toString("utf8").trim();
      let error: { message: string; code: string; hint?: string };
      try {
        error = JSON.parse(said.split("\n").pop() ?? "").error;
        reject(new AtiError(error.message, error.code, code ?? -1, error.hint));
      } catch {
        reject(new AtiError(said, "unknown", code ?? -1));
      }
    });
  });
}
