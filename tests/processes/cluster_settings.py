"""Settings of the clusters that the process tests start: the real ones with harmless turns."""

from relayer_site.settings import *  # noqa: F403

SHIFT_TURNS = {name: ["tests.processes.turns.AckTurn"] for name in ("settle", "sweep")}
