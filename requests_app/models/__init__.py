"""Tables of the product. Models carry columns, constraints and indexes; states change only in `transitions`."""

from requests_app.models.accounts import Account, ApiKey
from requests_app.models.commands import Command
from requests_app.models.desk import DeskLoginCount
from requests_app.models.envelopes import (
    ChainBlock,
    ChainCursor,
    ChainIdentity,
    ChainReorg,
    ConsumerCursor,
    DeadEnvelope,
    EnvelopeBand,
    EnvelopeBlob,
    EnvelopeConflict,
    EnvelopeMeta,
    EnvelopeOrphan,
    EnvelopeSource,
    ReorgEvidence,
)
from requests_app.models.figures import FiguresUpTo, FinishedFigure, JobFigure, LiveFigure
from requests_app.models.jobs import DeadLetter, QueueJob
from requests_app.models.leases import ExecLease, WorkerBeat
from requests_app.models.ledger import LedgerBalance, LedgerEntry, LedgerLeg
from requests_app.models.payments import (
    IdempotencyRecord,
    IntentTransitionRow,
    PaymentIntent,
    PaymentObservation,
    ReconCursor,
    ReconFinding,
)
from requests_app.models.requests import (
    GatewayRef,
    InputProofRequest,
    KeptShare,
    PublicDecryptRequest,
    PublishedKey,
    RequestClient,
    RequestPayload,
    RequestTransition,
    UserDecryptRequest,
    UserDecryptShare,
)
from requests_app.models.reviews import ReviewCase, ReviewDecision
from requests_app.models.runtime import RuntimeChange, RuntimeSetting
from requests_app.models.signing import NonceSlot, Signer, TxAttempt
from requests_app.models.usage import (
    CursorKey,
    EnvelopeMiss,
    OriginatorCongestion,
    PublishedEnvelope,
    PublisherHead,
    StagedEnvelope,
    UsageBilled,
    UsageSettled,
    UsageUnsettled,
)
from requests_app.models.webhooks import Webhook, WebhookDelivery

__all__ = [
    "Account",
    "ApiKey",
    "ChainBlock",
    "ChainCursor",
    "ChainIdentity",
    "ChainReorg",
    "Command",
    "ConsumerCursor",
    "CursorKey",
    "DeadEnvelope",
    "DeadLetter",
    "DeskLoginCount",
    "EnvelopeBand",
    "EnvelopeBlob",
    "EnvelopeConflict",
    "EnvelopeMeta",
    "EnvelopeMiss",
    "EnvelopeOrphan",
    "EnvelopeSource",
    "ExecLease",
    "FiguresUpTo",
    "FinishedFigure",
    "GatewayRef",
    "IdempotencyRecord",
    "InputProofRequest",
    "IntentTransitionRow",
    "JobFigure",
    "KeptShare",
    "LedgerBalance",
    "LedgerEntry",
    "LedgerLeg",
    "LiveFigure",
    "NonceSlot",
    "OriginatorCongestion",
    "PaymentIntent",
    "PaymentObservation",
    "PublicDecryptRequest",
    "PublishedEnvelope",
    "PublishedKey",
    "PublisherHead",
    "QueueJob",
    "ReconCursor",
    "ReconFinding",
    "ReorgEvidence",
    "RequestClient",
    "RequestPayload",
    "RequestTransition",
    "ReviewCase",
    "ReviewDecision",
    "RuntimeChange",
    "RuntimeSetting",
    "Signer",
    "StagedEnvelope",
    "TxAttempt",
    "UsageBilled",
    "UsageSettled",
    "UsageUnsettled",
    "UserDecryptRequest",
    "UserDecryptShare",
    "Webhook",
    "WebhookDelivery",
    "WorkerBeat",
]
