// Module hook: the published file as it is, with the classes named here exported as well. Nothing on disk changes.
const EXTRA = ["RelayerV2AsyncRequest", "RelayerV2Provider"];

export async function load(url, context, next) {
  const loaded = await next(url, context);
  if (!url.endsWith("/relayer-sdk/lib/node.js")) return loaded;
  return { ...loaded, source: String(loaded.source) + `\nexport { ${EXTRA.join(", ")} };` };
}
