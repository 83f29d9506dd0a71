"""Crash points that the plain life of a request does not pass: by whose tests they are passed, as patterns without before_/after_."""

from __future__ import annotations

ELSEWHERE = {
    "tests/listen: reorganisations, conflicts, refused windows": (
        "headers_rpc", "witness_rpc", "reorg_commit", "halt_commit", "conflict_commit", "seal_replayed_commit", "window_commit",
        "judge_evidence_commit",
    ),
    "tests/listen: deadlines and the chain's evidence": (
        "overdue_*", "extend_deadlines_commit", "read_again_rpc", "range_rpc", "insert_below_seal_commit", "apply_now_commit",
        "thresholds_commit", "duty_band_commit", "purge_commit",
    ),
    "tests/send, tests/txm: answers that a healthy node does not give, and decisions of people": (
        "depth_rpc", "replay_rpc", "revert_commit", "receipts_rpc", "record_lookups_commit", "refresh_count_rpc", "hold_back_commit",
        "lift_pause_commit", "market_rpc", "store_replacements_commit", "park_commit", "park_again_commit", "resolve_parked_commit",
        "left_nack_commit", "send_*_commit", "end_unsent_commit", "submit_denied_commit", "cancel_commit", "readiness_defer_commit",
        "absence_rpc", "bury_slots_commit", "close_slots_commit", "final_blocks_rpc", "finalize_slots_commit", "noop_gas_rpc", "reopen_slots_commit",
        "passed_over_rpc", "fee_balance_rpc", "purge_congestion_commit", "*command*", "attach_*", "approve_commit", "decide_commit",
        "reopen_attempts_commit", "forget_steps_commit", "figures_commit", "waiting_figures_commit", "tell_signer_commit", "*beats_commit",
    ),
    "tests/payments: payments are confirmed, lost, doubted and reconciled": (
        "confirm_head_rpc", "confirm_blocks_rpc", "hidden_receipts_rpc", "stuck_head_rpc", "recon_window_rpc", "open_recon_commit",
        "heed_commit", "settle_payments_commit", "lose_payments_commit", "doubt_payments_commit", "reconcile_commit",
    ),
    "tests/processes: shifts, slots, watchdog": ("shift_enqueue_commit", "slot_open_commit", "watchdog_beat_commit"),
    "tests/envelopes: publishing and bands": (
        "append*", "band_*", "mark_band_commit", "cursor_key_commit", "open_publisher_commit", "publish*_commit",
        "purge_published_commit", "*_usage_commit", "stage_commit",
    ),
}  # fmt: skip
