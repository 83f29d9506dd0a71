"""The errors of the domain. The text is for people, the label for programs (design 4)."""

from __future__ import annotations


class RelayerError(Exception):
    """Something went wrong in the relayer."""

    label = "internal_server_error"
    http_status = 500

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (self.__doc__ or "").strip().splitlines()[0])


class ConfigurationError(RelayerError):
    """The configuration is incomplete or contradicts itself."""


class ForeignChain(ConfigurationError):
    """The chain behind an endpoint is not the one this database belongs to."""


class StaleEpoch(RelayerError):
    """The lease under which this was decided is no longer ours: nothing was written."""


class IllegalTransition(RelayerError):
    """The state table does not know this change for this actor."""


class SourceHalted(RelayerError):
    """The envelope source is halted after a contradiction; a person must look."""


class EvidenceUnavailable(RelayerError):
    """The chain did not answer what a decision rests on: its command stays claimed and is taken up again."""


class WalletCheckFailed(RelayerError):
    """The host chain could not be asked whether a wallet accepts a signature."""


class UnknownState(RelayerError):
    """There is no such state."""


class TerminalState(RelayerError):
    """It has ended and does not change any more."""

    http_status = 409


class ForbiddenActor(RelayerError):
    """The state table does not give this change to this actor."""


class MissingEvidence(RelayerError):
    """The change needs a transaction hash or a reason that was not given."""


class IntentExpired(RelayerError):
    """The time to authorize this payment is over."""

    http_status = 409


class EvidenceMismatch(RelayerError):
    """What was brought along contradicts what is on record."""

    http_status = 409


class VersionConflict(RelayerError):
    """Somebody else changed it first: read it again."""

    http_status = 409


class RefMismatch(RelayerError):
    """A payment's ref is not that of its terms: nothing was written."""


class IntentMissing(RelayerError):
    """There is no such payment of this account."""

    http_status = 404


class AccountDisabled(RelayerError):
    """The account is disabled."""

    http_status = 403


class LedgerRefused(RelayerError):
    """The journal may not hold this entry."""


class LedgerConflict(RelayerError):
    """The journal holds another entry in this one's place."""
