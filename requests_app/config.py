"""The chains and limits this process works with, read once from the settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from django.conf import settings

from requests_app.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class PaymentToken:
    """A token in which payments settle on the gateway chain. `name` and `version` make its EIP-712 domain; `address` is 20 bytes."""

    address: bytes
    name: str
    version: str
    symbol: str
    decimals: int


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """The gateway chain. Addresses are 20 bytes, keys 32 bytes."""

    chain_id: int
    rpc_urls: tuple[str, ...]
    decryption: bytes
    input_verification: bytes
    signer_keys: tuple[bytes, ...]
    fee_token: bytes | None
    start_block: int
    fee_ceiling: int = 500 * 10**9  # wei a gas
    payment: bytes | None = None  # takes the fee tokens
    tokens: Mapping[bytes, PaymentToken] = field(default_factory=dict)  # by address: what payments may move
    finality_depth: int = 0  # blocks below the head that are final; 0: those that the chain marks


@dataclass(frozen=True, slots=True)
class HostChain:
    """A host chain whose ciphertexts may be decrypted. Addresses are 20 bytes."""

    chain_id: int
    url: str
    acl: bytes
    protocol_config: bytes | None
    kms_generation: bytes | None
    finality_depth: int = 0  # as the gateway's


@dataclass(frozen=True, slots=True)
class Config:
    """Everything about the chains, in one value."""

    gateway: GatewayConfig
    host_chains: dict[int, HostChain]
    shares_threshold: int

    @property
    def protocol_host(self) -> HostChain | None:
        """The host chain that carries ProtocolConfig and KMSGeneration (the first that names them)."""
        return next((host for host in self.host_chains.values() if host.protocol_config), None)


def address(text: str) -> bytes:
    """20 bytes of a 0x address. Raises ConfigurationError for anything else."""
    return _hex(text, 20, "an address")


def private_key(text: str) -> bytes:
    """32 bytes of a private key. The text never enters the message. Raises ConfigurationError."""
    try:
        return _hex(text, 32, "a private key")
    except ConfigurationError:
        raise ConfigurationError("a signer key is not 32 bytes of hex") from None


def _hex(text: str, size: int, what: str) -> bytes:
    try:
        raw = bytes.fromhex(text.removeprefix("0x"))
    except (ValueError, TypeError, AttributeError):  # a JSON setting may hold anything
        raise ConfigurationError(f"{text!r} is not {what}") from None
    if len(raw) != size:
        raise ConfigurationError(f"{text!r} is not {what}: {len(raw)} bytes instead of {size}")
    return raw


def payment_token(entry: Mapping[str, Any]) -> PaymentToken:
    """One entry of PAYMENT_TOKENS. Raises ConfigurationError."""
    try:
        return PaymentToken(
            address(str(entry["address"])),
            str(entry["name"]),
            str(entry["version"]),
            str(entry["symbol"]),
            int(entry["decimals"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(f"an entry of PAYMENT_TOKENS lacks or garbles {error}") from None


def _depth(value: Any) -> int:
    """Blocks below the head; none given is 0, the chain's own mark. Raises ConfigurationError."""
    depth = 0 if value is None else value
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 0:
        raise ConfigurationError(f"a finality depth is a whole number of blocks, not {depth!r}")
    return depth


def host_chain(entry: Mapping[str, Any]) -> HostChain:
    """One entry of HOST_CHAINS. Raises ConfigurationError."""
    try:
        return HostChain(
            chain_id=int(entry["chain_id"]),
            url=str(entry["url"]),
            acl=address(entry["acl_address"]),
            protocol_config=_optional(entry.get("protocol_config_address")),
            kms_generation=_optional(entry.get("kms_generation_address")),
            finality_depth=_depth(entry.get("finality_depth")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(f"an entry of HOST_CHAINS lacks or garbles {error}") from None


def _optional(text: str | None) -> bytes | None:
    return address(text) if text else None


@lru_cache(maxsize=1)
def config() -> Config:
    """The configured chains. Raises ConfigurationError when a part is missing or malformed."""
    if not settings.GATEWAY_RPC_URLS:
        raise ConfigurationError("no gateway endpoint: set GATEWAY_RPC_URLS, or deploy the devnet first")
    gateway = GatewayConfig(
        chain_id=int(settings.GATEWAY_CHAIN_ID),
        rpc_urls=tuple(settings.GATEWAY_RPC_URLS),
        decryption=address(settings.DECRYPTION_ADDRESS),
        input_verification=address(settings.INPUT_VERIFICATION_ADDRESS),
        signer_keys=tuple(private_key(key) for key in settings.GATEWAY_SIGNER_KEYS),
        fee_token=_optional(settings.FEE_TOKEN_ADDRESS),
        start_block=int(settings.GATEWAY_START_BLOCK),
        fee_ceiling=int(settings.GATEWAY_FEE_CEILING_WEI),
        payment=_optional(settings.PAYMENT_ADDRESS),
        tokens={token.address: token for token in map(payment_token, settings.PAYMENT_TOKENS)},
        finality_depth=_depth(settings.GATEWAY_FINALITY_DEPTH),
    )
    hosts = {host.chain_id: host for host in map(host_chain, settings.HOST_CHAINS)}
    return Config(gateway, hosts, int(settings.USER_DECRYPT_SHARES_THRESHOLD))
