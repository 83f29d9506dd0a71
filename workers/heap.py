"""What a process has loaded before its work begins is never garbage: the collector need not look at it again.

Django, web3 and the models are some 200,000 objects. A full collection walks them all, which took 80 to 120 ms, with every thread of the
process waiting: one request in twenty of the desk paid for it, and so did the POSTs beside it.
"""

from __future__ import annotations

import gc


def freeze_loaded() -> None:
    """Keep everything that is loaded now out of later collections. Call it last before the work, and before forks.

    A forked child shares the parent's pages until somebody writes to them, and a collection writes to every object it looks at
    (https://docs.python.org/3/library/gc.html#gc.freeze).
    """
    gc.collect()
    gc.freeze()
