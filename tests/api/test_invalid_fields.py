"""Every invalid value of fhevm_http 20.2 and 20.3 with its field and issue, and a fuzz of every field (I12)."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from requests_app.api import rules
from requests_app.api.refusals import Refused
from requests_app.identity import content_hash
from tests.api import bodies
from tests.api.reading import DD, IP, PD, UD, V3, Form, details, key_paths, read

# Values are made when the module is read, long before the last test of a run.
A_DAY = 86_400

CHAIN = rules.NOT_A_CHAIN_ID
EXTRA = rules.WRONG_EXTRA_DATA
UNTAGGED_V1 = "0x01" + "06" + "00" * 31
UNTAGGED_V2 = "0x02" + "07" + "00" * 31 + "07" + "00" * 31


INVALID: list[tuple[Form, str, Any, str]] = [
    *[
        (form, "contractChainId" if form is IP else "contractsChainId", value, CHAIN)
        for form in (IP, UD, DD)
        for value in (
            "",
            "abc123",
            "0xzzz",
            " 8009",
            "8_009",
            "-1",
            "8009\n",
            8009.5,
            -1,
            2**64,
            str(2**64),
            "0x1" + "0" * 16,
            "٣",
        )
    ],
    *[
        (form, field, value, issue)
        for form, field in (
            (IP, "contractAddress"),
            (IP, "userAddress"),
            (UD, "userAddress"),
            (DD, "delegatorAddress"),
            (DD, "delegateAddress"),
        )
        for value, issue in (
            ("", rules.MUST_START),
            ("11" * 20, rules.MUST_START),
            ("0xfds", rules.WRONG_LENGTH_42),
            ("0x" + "1" * 41, rules.WRONG_LENGTH_42),
            ("0x" + "1" * 39 + "z", rules.NOT_HEX_ADDRESS),
            ("0x" + "g" * 40, rules.NOT_HEX_ADDRESS),
            ("0x" + "1" * 39 + "\n", rules.NOT_HEX_ADDRESS),
        )
    ],
    *[
        (form, "contractAddresses", value, issue)
        for form in (UD, DD)
        for value, issue in (
            ([], rules.EMPTY),
            (["0xfds"], rules.WRONG_LENGTH_42),
            ([bodies.CONTRACT, ""], rules.MUST_START),
        )
    ],
    (IP, "ciphertextWithInputVerification", "", rules.EMPTY),
    (IP, "ciphertextWithInputVerification", "abc", rules.NOT_HEX),
    (IP, "ciphertextWithInputVerification", "zz", rules.NOT_HEX),
    (IP, "ciphertextWithInputVerification", "ab cd", rules.NOT_HEX),
    (IP, "ciphertextWithInputVerification", "0xabcdef", rules.MUST_NOT_START),
    (PD, "ciphertextHandles", [], rules.EMPTY),
    (PD, "ciphertextHandles", ["0xabc"], rules.NOT_HEX),
    (PD, "ciphertextHandles", [bodies.H1, "0xzz"], rules.NOT_HEX),
    (PD, "ciphertextHandles", [""], rules.MUST_START),
    (PD, "ciphertextHandles", ["abcd"], rules.MUST_START),
    *[
        (form, "handleContractPairs", value, issue)
        for form in (UD, DD)
        for value, issue in (
            ([], rules.EMPTY),
            ([{"handle": "0x00", "contractAddress": bodies.CONTRACT}], rules.WRONG_LENGTH_HANDLE),
            ([{"handle": bodies.H1 + "00", "contractAddress": bodies.CONTRACT}], rules.WRONG_LENGTH_HANDLE),
            ([{"handle": bodies.H1[:-1] + "z", "contractAddress": bodies.CONTRACT}], rules.NOT_HEX),
            ([{"handle": bodies.H1[2:], "contractAddress": bodies.CONTRACT}], rules.MUST_START),
            ([{"handle": "", "contractAddress": bodies.CONTRACT}], rules.MUST_START),
            ([{"handle": bodies.H1, "contractAddress": "0x12"}], rules.WRONG_LENGTH_42),
        )
    ],
    *[
        (form, "signature", value, issue)
        for form in (UD, DD)
        for value, issue in (
            ("ab" * 64, rules.WRONG_LENGTH_SIGNATURE),
            ("ab" * 66, rules.WRONG_LENGTH_SIGNATURE),
            ("", rules.WRONG_LENGTH_SIGNATURE),
            ("0x" + "ab" * 64, rules.MUST_NOT_START),
            ("zz" * 65, rules.NOT_HEX),
        )
    ],
    *[
        (form, "publicKey", value, issue)
        for form in (UD, DD)
        for value, issue in (("0xabcd", rules.MUST_NOT_START), ("abzz", rules.NOT_HEX), ("", rules.EMPTY))
    ],
    *[
        (form, "extraData", value, EXTRA)
        for form in (IP, PD, UD, DD)
        for value in ("", "0x", "0x01", "invalid", "0x000")
    ],
    *[
        (form, "extraData", value, EXTRA)
        for form in (PD, UD, DD)
        for value in (
            UNTAGGED_V1,
            UNTAGGED_V2,
            bodies.CONTEXT_V1 + "00",
            bodies.CONTEXT_V2[:-2],
            "0X00",
            bodies.CONTEXT_V1.replace("0x", "0X"),
        )
    ],
    (IP, "extraData", bodies.CONTEXT_V1, EXTRA),
    (
        UD,
        "requestValidity",
        {"startTimestamp": str(int(time.time()) + A_DAY), "durationDays": "1"},
        rules.IN_THE_FUTURE,
    ),
    (UD, "requestValidity", {"startTimestamp": str(2**70), "durationDays": "1"}, rules.IN_THE_FUTURE),
    (UD, "requestValidity", {"startTimestamp": "soon", "durationDays": "1"}, rules.NOT_U256),
    (UD, "requestValidity", {"startTimestamp": "9" * 5000, "durationDays": "1"}, rules.NOT_U256),
    (UD, "requestValidity", {"startTimestamp": "1", "durationDays": str(2**32)}, rules.NOT_U32),
    (UD, "requestValidity", {"startTimestamp": "1", "durationDays": "1.5"}, rules.NOT_U32),
    (DD, "startTimestamp", "4102444800", rules.IN_THE_FUTURE),
    (DD, "durationDays", "-1", rules.NOT_U32),
]


@pytest.mark.parametrize(("form", "field", "value", "issue"), INVALID)
def test_20_2_invalid_values(form: Form, field: str, value: Any, issue: str) -> None:
    assert (field, issue) in details(form, form[1](**{field: value}))


NOW = int(time.time())


@pytest.mark.parametrize(
    ("changes", "field", "issue"),
    [
        (
            {"attestationType": "x"},
            "attestationType",
            "Unsupported attestationType; expected one of: [eip712-unified-user-decrypt-v1]",
        ),
        ({"payload": {"version": "1.0"}}, "attestedPayload.version", 'Unsupported version; expected "2.0"'),
        ({"payload": {"type": "x"}}, "attestedPayload.type", 'Unsupported payload type; expected "user_decryption"'),
        ({"payload": {"handles": []}}, "attestedPayload.handles", rules.EMPTY),
        (
            {"payload": {"handles": [{"ctHandle": "0x", "contractAddress": "", "ownerAddress": ""}]}},
            "attestedPayload.handles",
            rules.WRONG_LENGTH_HANDLE,
        ),
        ({"payload": {"userAddress": "0x"}}, "attestedPayload.userAddress", rules.WRONG_LENGTH_42),
        ({"payload": {"allowedContracts": ["x"]}}, "attestedPayload.allowedContracts", rules.MUST_START),
        (
            {"payload": {"requestValidity": {"startTimestamp": str(NOW - 100), "durationSeconds": "99"}}},
            "attestedPayload.requestValidity",
            "requestValidity window has already expired",
        ),
        (
            {"payload": {"requestValidity": {"startTimestamp": "0x1", "durationSeconds": str(2**63)}}},
            "attestedPayload.requestValidity",
            "startTimestamp must be a valid u64 number",
        ),
        (
            {"payload": {"requestValidity": {"startTimestamp": "", "durationSeconds": str(2**63)}}},
            "attestedPayload.requestValidity",
            "startTimestamp must be a valid u64 number",
        ),
        (
            {"payload": {"requestValidity": {"startTimestamp": str(NOW + A_DAY), "durationSeconds": "99"}}},
            "attestedPayload.requestValidity",
            rules.IN_THE_FUTURE,
        ),
        (
            {"payload": {"requestValidity": {"startTimestamp": "1", "durationSeconds": str(2**64)}}},
            "attestedPayload.requestValidity",
            rules.NOT_U64,
        ),
        ({"payload": {"publicKey": "0x"}}, "attestedPayload.publicKey", rules.EMPTY),
        ({"payload": {"publicKey": "abcd"}}, "attestedPayload.publicKey", rules.MUST_START),
        ({"payload": {"extraData": UNTAGGED_V1}}, "attestedPayload.extraData", EXTRA),
        ({"payload": {"extraData": UNTAGGED_V2}}, "attestedPayload.extraData", EXTRA),
        ({"signature": "abcd"}, "signature", rules.MUST_START),
        ({"signature": "0xabc"}, "signature", rules.NOT_HEX),
        ({"extraneousField": 1}, "extraneousField", "Unknown field"),
        ({"payload": {"surplus": 1}}, "surplus", "Unknown field"),
    ],
)
def test_20_3_v3_fields(changes: dict[str, Any], field: str, issue: str) -> None:
    assert details(V3, bodies.unified(**changes)) == {(field, issue)}


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=70)
    | st.text("0123456789abcdefxX+_ ", max_size=70).map(lambda text: "0x" + text)
    | st.sampled_from(["", "0x", bodies.H1, bodies.USER, "9" * 5000, "\x00", "٣٤", str(2**256)])
)


@pytest.mark.parametrize("form", [IP, PD, UD, DD, V3], ids=["IP", "PD", "UD", "DD", "V3"])
@settings(deadline=None)
@given(data=st.data())
def test_i12_no_value_anywhere_is_a_500(form: Form, data: st.DataObject) -> None:
    """A mutated body is taken whole, with a content hash, or refused with a label of its own fault."""
    body: Any = form[1]()
    for path in data.draw(st.lists(st.sampled_from(key_paths(body)), min_size=1, max_size=3, unique=True)):
        place = body
        try:
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = data.draw(scalars | st.lists(scalars, max_size=3))
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change has replaced this branch
    try:
        taken = read(form, body)
    except Refused as refused:
        label = str(refused.label)
    else:
        label = "taken"
        assert len(content_hash(taken.kind, taken.req_type, taken.body)) == 32
        assert all(0 <= chain_id < 2**64 for chain_id in taken.host_chains())
    too_long = {"internal_server_error"} if form is PD else set()
    assert label in {"taken", "malformed_json", "missing_fields", "validation_failed"} | too_long
