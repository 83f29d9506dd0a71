"""Two runners side by side (`pytest -n 2`): which tests go to the same one."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

# Their tests run whole systems, kill processes or take times: one of them at a time.
SYSTEMS = {"stack", "wire", "sdk", "chaos", "faults", "processes", "devnet", "browser", "crash", "fuzz", "bugs"}


class SystemsApart(LoadScopeScheduling):
    """One runner has everything that runs a whole system, the others have the rest, file by file."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "system" if file.split("/")[1] in SYSTEMS else file
