// Drives the unmodified @zama-fhe/relayer-sdk against a running relayer and prints one JSON line a step.
// usage: node round.mjs <settings.json>; the settings name the chains' addresses, the relayer and what to ask for.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const settings = JSON.parse(readFileSync(process.argv[2], "utf8"));
const require = createRequire(settings.modules + "/package.json");
const { createInstance } = await import(pathToFileURL(require.resolve("@zama-fhe/relayer-sdk/node")));
const { Wallet } = require("ethers");

const auth = { __type: "ApiKeyHeader", value: settings.apiKey };
const report = (step, details) => console.log(JSON.stringify({ step, ...details }, (_, v) => (typeof v === "bigint" ? v.toString() : v)));
const hex = (bytes) => "0x" + Buffer.from(bytes).toString("hex");

async function attempt(step, work) {
  const started = Date.now();
  try {
    report(step, { ok: true, ...(await work()), milliseconds: Date.now() - started });
  } catch (error) {
    report(step, { ok: false, name: error.name, message: String(error.message), cause: String(error.cause ?? ""), milliseconds: Date.now() - started });
  }
}

const instance = await createInstance({ ...settings.instance, auth });
report("createInstance", { ok: true, publicKeyBytes: instance.getPublicKey().publicKey.length });

// Both wait for the relayer most of their time, and the proof below keeps this process busy once they are under way.
let underWay;
const posted = new Promise((resolve) => (underWay = resolve));
const decryptions = [
  attempt("publicDecrypt", async () => {
    const events = [];
    const onProgress = (e) => (events.push([e.type, e.method, e.status]), underWay());
    const result = await instance.publicDecrypt(settings.publicHandles, { auth, onProgress });
    return { clearValues: result.clearValues, events };
  }),
  attempt("userDecrypt", async () => {
    const { handles, contract, userKey } = settings.userDecrypt;
    const wallet = new Wallet(userKey);
    const keypair = instance.generateKeypair();
    const start = Math.floor(Date.now() / 1000) - 60;
    const typed = instance.createEIP712(keypair.publicKey, [contract], start, 1);
    const { EIP712Domain, ...types } = typed.types;
    const signature = (await wallet.signTypedData(typed.domain, types, typed.message)).replace("0x", "");
    const pairs = handles.map((handle) => ({ handle, contractAddress: contract }));
    const clear = await instance.userDecrypt(pairs, keypair.privateKey, keypair.publicKey, signature, [contract], wallet.address, start, 1, { auth });
    return { clear };
  }),
];
await Promise.race([posted, decryptions[0]]);

await attempt("encrypt", async () => {
  const input = instance.createEncryptedInput(settings.encrypt.contract, settings.encrypt.user);
  input.addBool(true).add32(7);
  const { handles, inputProof } = await input.encrypt({ auth });
  return { handles: handles.map(hex), proofBytes: inputProof.length };
});
await Promise.all(decryptions);
process.exit(0);
