"""Tables of the product. Models carry columns, constraints and indexes; states change only in `transitions`."""

from requests_app.models.accounts import Account, ApiKey
from requests_app.models.commands import Command
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
from requests_app.models.figures import FiguresUpTo, FinishedFigure
from requests_app.models.jobs import QueueJob
from requests_app.models.leases import ExecLease, WorkerBeat
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
    UsageSettled,
    UsageUnsettled,
)

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
    "InputProofRequest",
    "KeptShare",
    "NonceSlot",
    "OriginatorCongestion",
    "PublicDecryptRequest",
    "PublishedEnvelope",
    "PublishedKey",
    "PublisherHead",
    "QueueJob",
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
    "UsageSettled",
    "UsageUnsettled",
    "UserDecryptRequest",
    "UserDecryptShare",
    "WorkerBeat",
]
