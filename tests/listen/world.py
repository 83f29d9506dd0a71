"""A gateway as the log shows it: requests of ours with their attempts in the database, and events as a node would answer them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from eth_abi import encode

from requests_app.states import REQUEST_KINDS, Kind
from requests_app.store import envelopes
from requests_app.store.signing import Fence
from workers.apply import Applier
from workers.chain.events import SIGNATURES, Envelope, decode_log
from workers.chain.keccak import topic
from workers.facts import Contracts, Reader
from workers.thresholds import Thresholds

SOURCE = 1
DECRYPTION = b"\xd1" * 20
INPUTS = b"\xd2" * 20
CONTRACTS = Contracts(DECRYPTION, INPUTS)
THRESHOLD = 9
FENCE = Fence("listener:1", "test", 1)
TABLES = [kind.table for kind in REQUEST_KINDS]

MATERIAL = {
    Kind.USER_DECRYPT: "UserDecryptionRequest(uint256,(bytes32,uint256,bytes32,address[])[],address,bytes,bytes)",
    Kind.PUBLIC_DECRYPT: "PublicDecryptionRequest(uint256,(bytes32,uint256,bytes32,address[])[],bytes)",
    Kind.INPUT_PROOF: "VerifyProofRequest(uint256,uint256,address,address,bytes,bytes)",
}
HANDLES = {
    Kind.USER_DECRYPT: "UserDecryptionRequest(uint256,bytes32[],address,bytes,bytes)",
    Kind.PUBLIC_DECRYPT: "PublicDecryptionRequest(uint256,bytes32[],bytes)",
    Kind.INPUT_PROOF: MATERIAL[Kind.INPUT_PROOF],
}
_serial = itertools.count(1)


def clean(conn: psycopg.Connection[Any]) -> None:
    """Empty the log (its tables are not Django's) and make a source that starts at block 1."""
    conn.execute("TRUNCATE envelope_meta, envelope_blob")
    conn.execute(
        "INSERT INTO exec_lease (resource, instance, epoch, lease_until) VALUES ('listener:1','test',1,'infinity')"
    )
    envelopes.add_source(conn, SOURCE, name="gateway", chain_id=1, start_block=1, band_blocks=1000)


def block_hash(block: int, fork: int = 0) -> bytes:
    return block.to_bytes(16, "big") + fork.to_bytes(16, "big")


@dataclass
class Ours:
    """A request of ours, sent, with the reference that the gateway will give it."""

    kind: Kind
    id: int
    tx_hash: bytes
    ref: bytes


def new_ref(kind: Kind) -> bytes:
    prefix = {Kind.USER_DECRYPT: 2, Kind.PUBLIC_DECRYPT: 1, Kind.INPUT_PROOF: 0}[kind]
    return bytes([prefix]) + next(_serial).to_bytes(31, "big")


def sent(
    conn: psycopg.Connection[Any], kind: Kind, count: int = 1, *, status: str = "tx_in_flight", attempts: bool = True
) -> list[Ours]:
    """`count` requests in `status` with a live slot and an accepted attempt each."""
    conn.execute("INSERT INTO client_account (name, status) VALUES ('one','active') ON CONFLICT (name) DO NOTHING")
    client = conn.execute("SELECT id FROM client_account WHERE name='one'").fetchone()[0]
    signer = conn.execute(
        "INSERT INTO signer (chain_id,address,next_nonce) VALUES (1,%s,0) ON CONFLICT (chain_id,address) DO UPDATE SET chain_id=1 RETURNING id",
        (b"\x01" * 20,),
    ).fetchone()[0]
    extra, value = {
        Kind.USER_DECRYPT: (", req_type", ", 'user_decrypt'"),
        Kind.PUBLIC_DECRYPT: ("", ""),
        Kind.INPUT_PROOF: (", int_request_id", ", gen_random_uuid()"),
    }[kind]
    ids = [row[0] for row in conn.execute(
        f"INSERT INTO {kind.table} (ext_job_id,int_job_id,status,deadline_at{extra}) "
        f"SELECT gen_random_uuid(), h, %s, clock_timestamp()+interval '1 hour'{value} FROM unnest(%s::bytea[]) h RETURNING id",
        (status, [os.urandom(32) for _ in range(count)]),
    )]  # fmt: skip
    conn.execute(
        "INSERT INTO request_client (client_id,kind,request_id,ext_job_id) SELECT %s,%s,i,gen_random_uuid() FROM unnest(%s::bigint[]) i",
        (client, kind.value, ids),
    )
    conn.execute(
        "INSERT INTO request_payload (kind,request_id,body) SELECT %s,i,'{}' FROM unnest(%s::bigint[]) i",
        (kind.value, ids),
    )
    found = [Ours(kind, row_id, os.urandom(32), new_ref(kind)) for row_id in ids]
    if attempts:
        _attempts(conn, signer, found)
    return found


def _attempts(conn: psycopg.Connection[Any], signer: int, found: Sequence[Ours]) -> None:
    nonces = [next(_serial) for _ in found]
    conn.execute(
        "INSERT INTO nonce_slot (signer_id,nonce,kind,subject_id,state,opened_epoch) "
        "SELECT %s,n,k,i,'live',1 FROM unnest(%s::bigint[],%s::smallint[],%s::bigint[]) t(n,k,i)",
        (signer, nonces, [one.kind.value for one in found], [one.id for one in found]),
    )
    conn.execute(
        "INSERT INTO tx_attempt (signer_id,nonce,seq,tx_hash,raw_tx,max_fee_per_gas,max_priority_fee,gas_limit,state,epoch) "
        "SELECT %s,n,1,h,'\\x02',1,1,21000,'accepted',1 FROM unnest(%s::bigint[],%s::bytea[]) t(n,h)",
        (signer, nonces, [one.tx_hash for one in found]),
    )


def event(
    signature: str, at: tuple[int, int], ref: bytes, tx_hash: bytes, values: Sequence[Any] = (), *, contract: bytes | None = None,
    fork: int = 0,
) -> Envelope:  # fmt: skip
    """The envelope of one event, by way of the raw log that a node would send. `at` is (block, log index)."""
    inner = signature[signature.index("(") + 1 : -1]
    types = _split(inner)[1:]
    topics = [topic(signature), ref]
    if signature.startswith("VerifyProofRequest"):
        topics.append((8009).to_bytes(32, "big"))
        types = types[1:]
    assert signature in SIGNATURES
    emitter = contract or (INPUTS if "Proof" in signature else DECRYPTION)
    return decode_log({
        "address": "0x" + emitter.hex(), "topics": ["0x" + one.hex() for one in topics],
        "data": "0x" + encode(types, values).hex(), "blockNumber": hex(at[0]), "logIndex": hex(at[1]),
        "blockHash": "0x" + block_hash(at[0], fork).hex(), "transactionHash": "0x" + tx_hash.hex(), "removed": False,
    })  # fmt: skip


def _split(inner: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for index, char in enumerate(inner + ","):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(inner[start:index])
            start = index + 1
    return parts


def requested(one: Ours, at: tuple[int, int], *, handles: bool = False) -> Envelope:
    address = "0x" + "11" * 20
    values = {
        Kind.USER_DECRYPT: ([], address, b"", b""),
        Kind.PUBLIC_DECRYPT: ([], b""),
        Kind.INPUT_PROOF: (address, address, b"c", b""),
    }[one.kind]
    return event((HANDLES if handles else MATERIAL)[one.kind], at, one.ref, one.tx_hash, values)


def share(ref: bytes, index: int, at: tuple[int, int], *, extra: bytes = b"\x00", body: bytes = b"") -> Envelope:
    return event(
        "UserDecryptionResponse(uint256,uint256,bytes,bytes,bytes)", at, ref, os.urandom(32),
        (index, body or index.to_bytes(4, "big"), b"s" * 65, extra),
    )  # fmt: skip


def answered(one: Ours, at: tuple[int, int], *, rejected: bool = False) -> Envelope:
    if one.kind is Kind.PUBLIC_DECRYPT:
        return event(
            "PublicDecryptionResponse(uint256,bytes,bytes[],bytes)",
            at,
            one.ref,
            os.urandom(32),
            (b"\x2a", [b"s" * 65], b"\x00"),
        )
    if rejected:
        return event("RejectProofResponse(uint256)", at, one.ref, os.urandom(32))
    return event(
        "VerifyProofResponse(uint256,bytes32[],bytes[])", at, one.ref, os.urandom(32), ([b"h" * 32], [b"s" * 65])
    )


def consensus(ref: bytes, at: tuple[int, int]) -> Envelope:
    return event("UserDecryptionResponseThresholdReached(uint256)", at, ref, os.urandom(32))


def reader(lookup: Any = None, static: int = THRESHOLD) -> Reader:
    return Reader(CONTRACTS, Thresholds(static, lookup))


def applier(lookup: Any = None, *, page: int = 1000) -> Applier:
    return Applier(SOURCE, reader(lookup), page=page)


def record(conn: psycopg.Connection[Any], lo: int, hi: int, found: Sequence[Envelope]) -> envelopes.Recorded:
    from workers.chain.events import REQUEST_KINDS

    return envelopes.record_range(conn, SOURCE, lo, hi, found, FENCE, block_hash(hi), request_kinds=REQUEST_KINDS)


def row(conn: psycopg.Connection[Any], one: Ours) -> Any:
    from psycopg.rows import namedtuple_row

    with conn.cursor(row_factory=namedtuple_row) as cursor:
        return cursor.execute(f"SELECT * FROM {one.kind.table} WHERE id=%s", (one.id,)).fetchone()


def status(conn: psycopg.Connection[Any], one: Ours) -> str:
    return str(row(conn, one).status)


def verbs(conn: psycopg.Connection[Any], one: Ours) -> list[str]:
    return [found[0] for found in conn.execute(
        "SELECT verb FROM req_transition WHERE kind=%s AND request_id=%s ORDER BY id", (one.kind.value, one.id)
    )]  # fmt: skip


def clean_bands(conn: psycopg.Connection[Any]) -> None:
    """Drop every partition, so that bands have to be made."""
    for (name,) in conn.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent IN ('envelope_meta'::regclass,'envelope_blob'::regclass)"
    ).fetchall():
        conn.execute(f"DROP TABLE {name} CASCADE")
    conn.execute("DELETE FROM envelope_band")
