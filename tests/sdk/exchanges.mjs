// Runs requests of the unmodified SDK 0.4.3, all at once, and prints one JSON line for each progress event and each end.
// node --import ./register.mjs exchanges.mjs <cases.json>
// A case: {name, operation, url, payload?, jobId?, auth?, timeout?, abortOn?}. `jobId` resumes; `abortOn` aborts at that event.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { modules, cases } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const library = pathToFileURL(`${modules}/node_modules/@zama-fhe/relayer-sdk/lib/node.js`);
const { RelayerV2AsyncRequest } = await import(library);

const print = (line) => process.stdout.write(JSON.stringify(line) + "\n");

async function run(one) {
  const controller = new AbortController();
  const onProgress = (event) => {
    print({ case: one.name, event: [event.type, event.method ?? null, event.status ?? null], retryAfterMs: event.retryAfterMs ?? null, jobId: event.jobId ?? null });
    if (event.type === one.abortOn) controller.abort();
  };
  const options = { auth: one.auth, onProgress, timeout: one.timeout, signal: one.abortOn ? controller.signal : undefined };
  try {
    const request = new RelayerV2AsyncRequest({ relayerOperation: one.operation, url: one.url, payload: one.payload ?? {}, options });
    const result = await request.run(one.jobId ? { existingJobId: one.jobId } : undefined);
    print({ case: one.name, end: "resolved", result });
  } catch (error) {
    print({ case: one.name, end: error.name, label: error.relayerApiError?.label ?? null, details: error.relayerApiError?.details ?? null, status: error.status ?? null, message: String(error.message) });
  }
}

print({ ready: true });
await Promise.all(cases.map(run));
process.exit(0);
