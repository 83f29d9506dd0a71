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
from requests_app.models.signing import NonceSlot, Signer, TxAttempt

__all__ = [
    "Account",
    "ApiKey",
    "ChainCursor",
    "ChainIdentity",
    "Command",
    "ConsumerCursor",
    "DeadEnvelope",
    "EnvelopeBand",
    "EnvelopeBlob",
    "EnvelopeConflict",
    "EnvelopeMeta",
    "EnvelopeSource",
    "ExecLease",
    "GatewayRef",
    "InputProofRequest",
    "NonceSlot",
    "PublicDecryptRequest",
    "PublishedKey",
    "QueueJob",
    "RequestClient",
    "RequestPayload",
    "RequestTransition",
    "ReviewCase",
    "Signer",
    "TxAttempt",
    "UserDecryptRequest",
    "UserDecryptShare",
    "WorkerBeat",
]
