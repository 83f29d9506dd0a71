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


class WalletCheckFailed(RelayerError):
    """The host chain could not be asked whether a wallet accepts a signature."""
