"""The FHE public key and the CRS that the devnet publishes: ids, files, place in the storage."""

from __future__ import annotations

from pathlib import Path
from typing import Final

KEY_ID: Final = 3
CRS_ID: Final = 4
STORAGE_PREFIX: Final = "PUB-p1"
FHE_KEY_FILE: Final = "PublicKey"
CRS_FILE: Final = "CRS"
KEY_FILES: Final = Path(__file__).resolve().parent / "keys"


def key_file(kind: str) -> Path:
    """The file that is served as `<kind>/<id>`."""
    return KEY_FILES / f"{kind}.bin"
