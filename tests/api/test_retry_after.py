"""Retry-After: every number of fhevm_http 19.3 and the rules of 11."""

from __future__ import annotations

import pytest

from requests_app.api.retry_after import Pace
from requests_app.errors import ConfigurationError
from requests_app.states import Kind, Status

PACE = Pace()
DECRYPTS = [Kind.USER_DECRYPT, Kind.PUBLIC_DECRYPT]


@pytest.mark.parametrize(
    ("size", "seconds"), [(0, 3), (1, 3), (20, 4), (100, 9), (1000, 63), (4999, 300), (5000, 300), (20000, 300)]
)
def test_19_3_input_proof_post(size: int, seconds: int) -> None:
    assert PACE.after_submit(Kind.INPUT_PROOF, 0, size) == seconds


@pytest.mark.parametrize("kind", DECRYPTS)
@pytest.mark.parametrize(
    ("readiness", "tx", "seconds"),
    [
        (0, 0, 8),
        (1, 0, 13),
        (250, 0, 13),
        (251, 0, 18),
        (0, 20, 9),
        (250, 100, 19),
        (1000, 1000, 87),
        (10000, 0, 200),
        (10000, 10000, 300),
    ],
)
def test_19_3_decrypt_post(kind: Kind, readiness: int, tx: int, seconds: int) -> None:
    assert PACE.after_submit(kind, readiness, tx) == seconds
    assert PACE.after_poll(kind, Status.QUEUED, readiness, tx, 0) == seconds


def test_input_proofs_do_not_wait_for_readiness() -> None:
    assert PACE.after_submit(Kind.INPUT_PROOF, 10_000, 0) == 3


@pytest.mark.parametrize(
    ("kind", "status", "seconds"),
    [
        (Kind.INPUT_PROOF, Status.PROCESSING, 3),
        (Kind.INPUT_PROOF, Status.TX_IN_FLIGHT, 3),
        (Kind.PUBLIC_DECRYPT, Status.PROCESSING, 8),
        (Kind.PUBLIC_DECRYPT, Status.TX_IN_FLIGHT, 8),
        (Kind.USER_DECRYPT, Status.PROCESSING, 8),
        (Kind.USER_DECRYPT, Status.TX_IN_FLIGHT, 8),
        (Kind.USER_DECRYPT, Status.RECEIPT_RECEIVED, 4),
        (Kind.USER_DECRYPT, Status.NEEDS_REVIEW, 300),
    ],
)
def test_20_5_idle_values_by_state(kind: Kind, status: Status, seconds: int) -> None:
    assert PACE.after_poll(kind, status, 5000, 5000, 0) == seconds


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILURE, Status.TIMED_OUT])
def test_final_states_have_no_header(status: Status) -> None:
    assert PACE.after_poll(Kind.USER_DECRYPT, status, 0, 0, 0) is None


@pytest.mark.parametrize(
    ("elapsed", "seconds"), [(0, 4), (59.9, 4), (60, 10), (120, 30), (300, 60), (899, 60), (900, 300), (1e9, 300)]
)
def test_waiting_for_the_answer_backs_off_with_real_time(elapsed: float, seconds: int) -> None:
    assert PACE.after_poll(Kind.USER_DECRYPT, Status.RECEIPT_RECEIVED, 0, 0, elapsed) == seconds


def test_the_margin_is_a_widened_float32() -> None:
    # 1000 * 1.2 is exact, but float32(0.2) is a little more: 1201 ms, so two seconds from 1667 * 1.2 = 2000.4 on
    assert PACE.finish(1000) == 2
    assert Pace(safety_margin=0.0).finish(1000) == 1
    assert PACE.finish(2500) == 4  # 3001 ms, not 3000


def test_raw_values_saturate() -> None:
    assert Pace(max_seconds=2**31).finish(2**60) == -(-(2**32 - 1) // 1000)


def test_a_rate_of_zero_is_the_longest_wait() -> None:
    assert Pace(user_decrypt_tps=0).tx_wait_ms(Kind.USER_DECRYPT, 1) == 300_000
    assert Pace(readiness_concurrency=0).readiness_wait_ms(1) == 300_000


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_seconds": 301},
        {"min_seconds": 0},
        {"safety_margin": 1.5},
        {"safety_margin": -0.1},
        {"backoff": ((0, 4), (0, 5))},
        {"backoff": ()},
    ],
)
def test_contradicting_parameters_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        Pace(**wrong)  # type: ignore[arg-type]
