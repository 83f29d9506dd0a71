"""Tables of the product. Models carry columns, constraints and indexes; states change only in `transitions`."""

from requests_app.models.accounts import Account, ApiKey
from requests_app.models.commands import Command
from requests_app.models.envelopes import (
    ChainCursor,
    ChainIdentity,
    ConsumerCursor,
    DeadEnvelope,
    EnvelopeBand,
    EnvelopeBlob,
    EnvelopeConflict,
    EnvelopeMeta,
    EnvelopeSource,
)
from requests_app.models.jobs import QueueJob
from requests_app.models.leases import ExecLease, WorkerBeat
from requests_app.models.requests import (
    GatewayRef,
    InputProofRequest,
    PublicDecryptRequest,
    PublishedKey,
    RequestClient,
    RequestPayload,
    RequestTransition,
    UserDecryptRequest,
    UserDecryptShare,
)
from requests_app.models.reviews import ReviewCase
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
    "ChainCursor",
    "ChainIdentity",
    "Command",
    "ConsumerCursor",
    "CursorKey",
    "DeadEnvelope",
    "EnvelopeBand",
    "EnvelopeBlob",
    "EnvelopeConflict",
    "EnvelopeMeta",
    "EnvelopeMiss",
    "EnvelopeSource",
    "ExecLease",
    "GatewayRef",
    "InputProofRequest",
    "NonceSlot",
    "OriginatorCongestion",
    "PublicDecryptRequest",
    "PublishedEnvelope",
    "PublishedKey",
    "PublisherHead",
    "QueueJob",
    "RequestClient",
    "RequestPayload",
    "RequestTransition",
    "ReviewCase",
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
