// The newer client @fhevm/sdk 1.0.0-alpha.5 by file path, as far as it goes without a wallet: key source, proof, decryptions, errors.
// It speaks v2 only; the version that speaks v3 is not published.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const settings = JSON.parse(readFileSync(process.argv[2], "utf8"));
const part = (name) => import(pathToFileURL(`${settings.modules}/node_modules/@fhevm/sdk/_esm/core/modules/relayer/module/${name}.js`));
const print = (line) => console.log(JSON.stringify(line, (_, value) => (typeof value === "bigint" ? value.toString() : value)));

const [{ fetchFheEncryptionKeySource }, { fetchPublicDecrypt }, { fetchUserDecrypt }, { fetchCoprocessorSignatures }, { RelayerAsyncRequest }] =
  await Promise.all(["fetchFheEncryptionKeySource", "fetchPublicDecrypt", "fetchUserDecrypt", "fetchCoprocessorSignatures", "RelayerAsyncRequest"].map(part));

// This version puts the key on its POSTs only; its polls of a relayer that wants a key need help from the application.
const plainFetch = globalThis.fetch;
const helpedFetch = (url, init) => plainFetch(url, init?.method === "GET" ? { ...init, headers: { ...init.headers, "x-api-key": settings.apiKey } } : init);

const client = { relayerUrl: settings.base, chainId: settings.chainId, chain: { id: settings.chainId, fhevm: { relayerUrl: settings.base } }, runtime: { config: {} } };
const options = { auth: { type: "ApiKeyHeader", value: settings.apiKey } };
const handle = (text) => ({ bytes32Hex: text, chainId: settings.chainId });

async function attempt(step, work) {
  try {
    print({ step, ok: true, value: await work() });
  } catch (error) {
    print({ step, ok: false, name: error.constructor.name, label: error.relayerApiError?.label ?? null, status: error.status ?? null, message: String(error.message) });
  }
}

const { publicDecrypt, userDecrypt, inputProof } = settings.bodies;
const publicly = () => fetchPublicDecrypt(client, { options, payload: { orderedHandles: publicDecrypt.ciphertextHandles.map(handle), extraData: publicDecrypt.extraData } });
await attempt("unhelped", publicly);
globalThis.fetch = helpedFetch;
await Promise.all([
  attempt("keys", () => fetchFheEncryptionKeySource(client, { options })),
  attempt("publicDecrypt", publicly),
  attempt("userDecrypt", () =>
    fetchUserDecrypt(client, {
      options,
      payload: {
        handleContractPairs: userDecrypt.handleContractPairs.map((pair) => ({ handle: handle(pair.handle), contractAddress: pair.contractAddress })),
        kmsDecryptEip712Message: { ...userDecrypt.requestValidity, contractAddresses: userDecrypt.contractAddresses, extraData: userDecrypt.extraData, publicKey: "0x" + userDecrypt.publicKey },
        kmsDecryptEip712Signer: userDecrypt.userAddress,
        kmsDecryptEip712Signature: "0x" + userDecrypt.signature,
      },
    }),
  ),
  attempt("inputProof", () =>
    fetchCoprocessorSignatures(client, {
      options,
      payload: {
        zkProof: {
          ciphertextWithZkProof: Uint8Array.from(Buffer.from(inputProof.ciphertextWithInputVerification, "hex")),
          contractAddress: inputProof.contractAddress,
          userAddress: inputProof.userAddress,
          chainId: BigInt(settings.chainId),
          getExtraData: () => inputProof.extraData,
        },
      },
    }),
  ),
  ...settings.failing.map(({ name, operation, url, payload, auth }) =>
    attempt(name, () => new RelayerAsyncRequest({ relayerOperation: operation, url, payload, options: auth === false ? {} : options }).run()),
  ),
]);
process.exit(0);
