"""The durable command box: decisions that workers carry out."""

from __future__ import annotations

from enum import IntEnum, StrEnum

from django.db import models
from django.db.models import Q

from requests_app.fields import one_of, stamped, text_choices
from requests_app.states import Kind


class CommandKind(StrEnum):
    """What a command asks for (design 5.1.6)."""

    CANCEL = "cancel"  # a payment for which nothing is signed yet; clients cancel at once, without a command
    HITL = "hitl"  # what a reviewer decided
    PAUSE_SIGNER = "pause_signer"
    RESUME_SIGNER = "resume_signer"
    REDRIVE = "redrive"  # of a halted source: read on. Jobs are given back by sweeps, dead letters from their own page


class Target(IntEnum):
    """What a command or a review case is about when it is no request or payment (those have their Kind)."""

    SIGNER = 100
    SOURCE = 101


def subject_name(kind: int) -> str:
    """What a stored number says a command or a case is about: `user_decrypt`, `payment`, `source`. Raises ValueError."""
    return (Target(kind) if kind >= Target.SIGNER else Kind(kind)).name.lower()


class CommandState(StrEnum):
    """How far a command is."""

    PENDING = "pending"
    CLAIMED = "claimed"
    CONSUMED = "consumed"


class Command(models.Model):
    """Written in the transaction of the decision, consumed by exactly one holder of `resource`, never deleted."""

    command_id = models.TextField(primary_key=True)
    kind = models.TextField(choices=text_choices(CommandKind))
    target_kind = models.SmallIntegerField()
    target_id = models.BigIntegerField()
    resource = models.TextField()
    expected_status = models.TextField(null=True)
    epoch = models.BigIntegerField(null=True)
    payload = models.JSONField()
    payload_hash = models.BinaryField()
    requested_by = models.TextField()
    created_at = stamped()
    state = models.TextField(choices=text_choices(CommandState), db_default=CommandState.PENDING.value)
    claimed_by = models.TextField(null=True)
    claim_until = models.DateTimeField(null=True)
    attempts = models.IntegerField(db_default=0)
    consumed_at = models.DateTimeField(null=True)
    consumer = models.TextField(null=True)
    consumed_epoch = models.BigIntegerField(null=True)
    outcome = models.TextField(null=True)
    result = models.JSONField(null=True)

    class Meta:
        db_table = "command"
        constraints = [
            one_of("kind", [kind.value for kind in CommandKind], "command_kind_known"),
            one_of("state", [state.value for state in CommandState], "command_state_known"),
        ]
        # commands.due: the open ones of a resource, oldest first
        indexes = [
            models.Index(
                fields=["resource", "created_at", "command_id"],
                condition=~Q(state=CommandState.CONSUMED.value),
                name="command_open",
            ),
            # list of the desk: commands are never deleted
            models.Index(fields=["created_at", "command_id"], name="command_created"),
            # what was ordered of a signer, on its page
            models.Index(fields=["target_kind", "target_id", "created_at"], name="command_target"),
        ]

    def __str__(self) -> str:
        return self.command_id
