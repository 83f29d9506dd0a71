"""Two runners side by side (`pytest -n 2`): which tests go to the same one."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

# Their tests run whole systems, kill processes or take times: one of them at a time. They are a good half of the work, and the rest is
# small, so that both runners end together; chaos alone at the end would leave one of them idle.
SYSTEMS = {"stack", "wire", "sdk", "faults", "processes", "browser", "fuzz", "chaos"}
# Whole systems that bear company.
SOCIABLE = {"crash", "devnet"}


class SystemsApart(LoadScopeScheduling):
    """One runner has what runs whole systems, the others have the rest, file by file."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        folder = file.split("/")[1]
        return "system" if folder in SYSTEMS else folder if folder in SOCIABLE else file
