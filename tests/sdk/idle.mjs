// Key URL, then nothing for a while, then a POST, over the connection that fetch keeps: as while the SDK proves.
// The event loop is blocked meanwhile, like by its WebAssembly, so that this side cannot close the connection.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { modules, base, auth, payload, seconds } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const library = pathToFileURL(`${modules}/node_modules/@zama-fhe/relayer-sdk/lib/node.js`);
const { RelayerV2Provider } = await import(library);

const provider = new RelayerV2Provider({ relayerUrl: `${base}/v2` });
const keys = await provider.fetchGetKeyUrl();
Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, seconds * 1000);
try {
  const result = await provider.fetchPostPublicDecrypt(payload, { auth });
  console.log(JSON.stringify({ ok: true, keys: Object.keys(keys), value: result.decryptedValue }));
} catch (error) {
  console.log(JSON.stringify({ ok: false, name: error.name, message: String(error.message), cause: String(error.cause?.cause ?? error.cause ?? "") }));
}
process.exit(0);
