from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from typing import Any

import pytest
from eth_abi.abi import encode
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.chain import events
from workers.chain.abi_reader import MalformedAbi, bytes32_list, bytes_list, dynamic_bytes, word
from workers.chain.events import BadLog, EventKind, decode_log, decode_logs, decode_payload

REFERENCE = {
    "22db480a39bd72556438aadb4a32a3d2a6638b87c03bbec5fef6997e109587ff": EventKind.PUBLIC_DECRYPTION_REQUESTED,
    "9bb088a53f1fe13ec84fa0a1d7b578b589e193268baaccc5e23f7ab785aa3dae": EventKind.PUBLIC_DECRYPTION_REQUESTED,
    "f9011bd6ba0da6049c520d70fe5971f17ed7ab795486052544b51019896c596b": EventKind.USER_DECRYPTION_REQUESTED,
    "1f80a47b51979837976f999a7735fdccbbe570e0d40081644ec88f8ed76c9612": EventKind.USER_DECRYPTION_REQUESTED,
    "c71e32c80f3109c673a9adfcded0b3b2093212ab284084a0e03a281dee2bdd5f": EventKind.USER_DECRYPTION_REQUESTED,
    "8ed4fab8b1d050676cd7d7d9fa448d5d22113375fab8ad4dc690e54593c527bf": EventKind.USER_DECRYPTION_REQUESTED,
    "d7e58a367a0a6c298e76ad5d240004e327aa1423cbe4bd7ff85d4c715ef8d15f": EventKind.PUBLIC_DECRYPTION_RESPONDED,
    "7fcdfb5381917f554a717d0a5470a33f5a49ba6445f05ec43c74c0bc2cc608b2": EventKind.USER_SHARE_RESPONDED,
    "e89752be0ecdb68b2a6eb5ef1a891039e0e92ae3c8a62274c5881e48eea1ed25": EventKind.THRESHOLD_REACHED,
    "4ae54f6a6e900d806ffa5bb46ed91459523d2f6ac9b5d62404feab887686d005": EventKind.PROOF_REQUESTED,
    "fe2c43585786a5a658d2ec5df5dea3fb3385b77c94f60f724ff810896f419835": EventKind.PROOF_VERIFIED,
    "e465e141fa8abd95ab7e0855543307f8506ab0170ef664420fb71ab7de0183de": EventKind.PROOF_REJECTED,
    "98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5": EventKind.AUTHORIZATION_USED,
    "1cdd46ff242716cdaa72d159d339a485b3438398348d68f09d7c8c0a59353d81": EventKind.AUTHORIZATION_CANCELED,
    "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef": EventKind.PAYMENT_TRANSFERRED,
}
SHARE = "7fcdfb5381917f554a717d0a5470a33f5a49ba6445f05ec43c74c0bc2cc608b2"
REF = (2 << 248) + 5
REF_BYTES = REF.to_bytes(32, "big")
CONTRACT, BLOCK_HASH, TX_HASH = b"\xd0" * 20, b"\xb1" * 32, b"\xa1" * 32


def raw_log(topic0: str, body: bytes, **changes: Any) -> dict[str, Any]:
    log = {
        "address": "0x" + CONTRACT.hex(),
        "topics": ["0x" + topic0, "0x" + REF_BYTES.hex()],
        "data": "0x" + body.hex(),
        "blockNumber": "0x10",
        "logIndex": "0x3",
        "blockHash": "0x" + BLOCK_HASH.hex(),
        "transactionHash": "0x" + TX_HASH.hex(),
        "transactionIndex": "0x0",
        "removed": False,
    }
    return {**log, **changes}


def payload(data: bytes, topic0: str = SHARE) -> bytes:
    return b"\x02" + bytes.fromhex(topic0) + REF_BYTES + data


def test_topic_table_is_the_reference() -> None:
    assert {topic.hex(): kind for topic, kind in events.TOPICS.items()} == REFERENCE
    assert set(REFERENCE.values()) == set(EventKind)


def test_stored_numbers_never_change() -> None:
    assert {kind.name: kind.value for kind in EventKind} == {
        "PUBLIC_DECRYPTION_REQUESTED": 1,
        "USER_DECRYPTION_REQUESTED": 2,
        "PROOF_REQUESTED": 3,
        "PUBLIC_DECRYPTION_RESPONDED": 4,
        "USER_SHARE_RESPONDED": 5,
        "THRESHOLD_REACHED": 6,
        "PROOF_VERIFIED": 7,
        "PROOF_REJECTED": 8,
        "AUTHORIZATION_USED": 9,
        "AUTHORIZATION_CANCELED": 10,
        "PAYMENT_TRANSFERRED": 11,
    }


def test_log_becomes_an_envelope() -> None:
    data = encode(["uint256", "bytes", "bytes", "bytes"], [4, b"share", b"s" * 65, b"\0"])
    envelope = decode_log(raw_log(SHARE, data))
    assert (envelope.kind, envelope.position) == (EventKind.USER_SHARE_RESPONDED, 16 << 20 | 3)
    assert (envelope.ref, envelope.contract) == (REF_BYTES, CONTRACT)
    assert (envelope.block_hash, envelope.tx_hash) == (BLOCK_HASH, TX_HASH)
    assert envelope.payload == payload(data)
    assert envelope.digest == sha256(BLOCK_HASH + TX_HASH + payload(data)).digest()
    event = decode_payload(envelope.kind, envelope.payload)
    assert event == events.UserShareResponded(REF_BYTES, 4, b"share", b"s" * 65, b"\0")


def test_every_kind_decodes() -> None:
    def decoded(kind: EventKind, types: list[str], values: list[Any]) -> Any:
        return decode_payload(kind, payload(encode(types, values)))

    h = [b"\x01" * 32, b"\x02" * 32]
    public = decoded(
        EventKind.PUBLIC_DECRYPTION_RESPONDED, ["bytes", "bytes[]", "bytes"], [b"r" * 64, [b"a" * 65, b"b" * 65], b""]
    )
    assert public == events.PublicDecryptionResponded(REF_BYTES, b"r" * 64, (b"a" * 65, b"b" * 65), b"")
    verified = decoded(EventKind.PROOF_VERIFIED, ["bytes32[]", "bytes[]"], [h, [b"a" * 65]])
    assert verified == events.ProofVerified(REF_BYTES, tuple(h), (b"a" * 65,))
    for kind, shape in [
        (EventKind.PUBLIC_DECRYPTION_REQUESTED, events.PublicDecryptionRequested),
        (EventKind.USER_DECRYPTION_REQUESTED, events.UserDecryptionRequested),
        (EventKind.PROOF_REQUESTED, events.ProofRequested),
        (EventKind.THRESHOLD_REACHED, events.ThresholdReached),
        (EventKind.PROOF_REJECTED, events.ProofRejected),
    ]:
        assert decode_payload(kind, payload(b"")) == shape(REF_BYTES)


@pytest.mark.parametrize(
    "changes",
    [
        {"topics": ["0x" + SHARE]},
        {"topics": ["0x" + SHARE, "0x01"]},
        {"topics": ["0x" + SHARE, None]},
        {"topics": None},
        {"data": "0xabc"},
        {"data": None},
        {"removed": True},
        {"blockHash": None},
        {"transactionHash": "0x"},
        {"address": "0x12"},
    ],
)
def test_bad_log_names_its_position(changes: dict[str, Any]) -> None:
    with pytest.raises(BadLog, match="block 16, log 3") as caught:
        decode_log(raw_log(SHARE, b"", **changes))
    assert caught.value.position == 16 << 20 | 3


@pytest.mark.parametrize("changes", [{"blockNumber": None}, {"logIndex": "0x100000"}, {"blockNumber": "0x" + "f" * 40}])
def test_bad_log_without_a_position(changes: dict[str, Any]) -> None:
    with pytest.raises(BadLog) as caught:
        decode_log(raw_log(SHARE, b"", **changes))
    assert caught.value.position is None


def test_one_bad_log_never_hides_the_others() -> None:
    good = [raw_log(SHARE, b"x", logIndex=hex(index)) for index in (9, 2, 5)]
    foreign = raw_log("11" * 32, b"")
    anonymous = raw_log(SHARE, b"", topics=[])
    decoded = decode_logs([good[0], "nonsense", foreign, good[1], raw_log(SHARE, b"", data="0x1"), anonymous, good[2]])
    assert [envelope.position & 0xFFFFF for envelope in decoded.envelopes] == [2, 5, 9]
    assert (len(decoded.bad), decoded.ignored) == (2, 2)


def test_upper_case_topics_are_recognised() -> None:
    log = raw_log(SHARE, b"")
    log["topics"] = ["0x" + SHARE.upper(), log["topics"][1]]
    assert len(decode_logs([log]).envelopes) == 1


SHARES = st.tuples(st.integers(0, 2**31 - 1), st.binary(max_size=400), st.binary(max_size=65), st.binary(max_size=70))


@given(SHARES)
@settings(max_examples=200, deadline=None)
def test_reader_equals_eth_abi_for_shares(values: tuple[int, bytes, bytes, bytes]) -> None:
    data = encode(["uint256", "bytes", "bytes", "bytes"], values)
    assert (word(data, 0), *(dynamic_bytes(data, index) for index in (1, 2, 3))) == values


@given(st.lists(st.binary(max_size=80), max_size=9), st.lists(st.binary(min_size=32, max_size=32), max_size=9))
@settings(max_examples=200, deadline=None)
def test_reader_equals_eth_abi_for_lists(items: list[bytes], words: list[bytes]) -> None:
    data = encode(["bytes[]", "bytes32[]"], [items, words])
    assert (list(bytes_list(data, 0)), list(bytes32_list(data, 1))) == (items, words)


@given(st.sampled_from(list(EventKind)), st.binary(max_size=300), SHARES, st.integers(0, 700), st.integers(0, 255))
@settings(max_examples=400, deadline=None)
def test_damaged_payloads_are_events_or_typed_errors(
    kind: EventKind, noise: bytes, values: tuple[int, bytes, bytes, bytes], cut: int, flip: int
) -> None:
    valid = payload(encode(["uint256", "bytes", "bytes", "bytes"], values))
    flipped = bytearray(valid)
    flipped[cut % len(valid)] ^= flip
    for candidate in (noise, valid[:cut], bytes(flipped), payload(noise)):
        with suppress(BadLog):
            assert decode_payload(kind, candidate, 7).ref is not None


def test_overlapping_list_elements_cannot_multiply_an_answer() -> None:
    count = 1000
    body = (32).to_bytes(32, "big") + count.to_bytes(32, "big")
    body += (count * 32).to_bytes(32, "big") * count + (5000).to_bytes(32, "big") + bytes(5000)
    with pytest.raises(MalformedAbi, match="overlap"):
        bytes_list(body, 0)


def test_unknown_kind_number_is_a_bad_log() -> None:
    with pytest.raises(BadLog):
        decode_payload(99, payload(b""), 7)
