// Runs the checks of a client in Node.js; the same lines of JSON as _checks.py.

import assert from "node:assert/strict";

export const TEXT = "It is sunny in Rome.";
export const QUESTION = "How is the weather in Rome?";
export const [URL, MODEL] = process.argv.slice(2);

export async function run(checks) {
  let failed = 0;
  for (const [check, call] of Object.entries(checks)) {
    const began = performance.now();
    let detail = "";
    try {
      await call();
    } catch (error) {
      detail = error?.stack ?? String(error);
    }
    failed += detail ? 1 : 0;
    const seconds = Math.round((performance.now() - began) / 10) / 100;
    console.log(JSON.stringify({ check, ok: !detail, detail, seconds }));
  }
  process.exit(failed ? 1 : 0);
}

export { assert };
