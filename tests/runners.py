"""Two runners side by side (`pytest -n 2`): which tests go to the same one."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

# Their tests run whole systems, kill processes or take times: one of them at a time. They are a good half of the work, and the rest is
# small, so that both runners end together; chaos alone at the end would leave one of them idle.
SYSTEMS = {"stack", "wire", "sdk", "faults", "processes", "browser", "fuzz", "chaos"}
# Whole systems that bear company.
SOCIABLE = {"crash", "devnet"}
# So do these: servers and commands of their own, and nothing is timed.
SELF_CONTAINED = {"tests/processes/test_embedded.py", "tests/processes/test_check_deploy.py"}


class SystemsApart(LoadScopeScheduling):
    """One runner has what runs whole systems, the others have the rest, file by file."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        folder = file.split("/")[1]
        if folder in SYSTEMS and file not in SELF_CONTAINED:
            return "system"
        return folder if folder in SOCIABLE else file
