"""Processes that end with their parent, so that `kill -9` of a supervisor, a q2 parent or a sentinel leaves no orphan.

On Linux the kernel does it (PR_SET_PDEATHSIG); elsewhere a thread watches the parent's id. As a program:

    python -m workers.lifeline [--signal TERM] [--empty DIRECTORY] -- command ...

runs a command that knows nothing of this (anvil), tied to whoever started it.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1
_LOOK_SECONDS = 0.5
_parent_before_fork = 0


def die_with_parent(number: int = signal.SIGKILL, parent: int | None = None) -> None:
    """Have this process get signal `number` when its parent ends, however that happens.

    Call it from the main thread, in the child. With `parent`, the expected parent's id, a parent that has ended meanwhile counts too.
    The setting survives exec, not fork.
    """
    if sys.platform == "linux":
        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) refused")
    else:
        threading.Thread(target=_watch_parent, args=(number,), name="lifeline", daemon=True).start()
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), number)


def tie_every_fork() -> None:
    """Have every process that this one forks, and that those fork, end with its own parent (SIGKILL: our work survives crashes)."""
    os.register_at_fork(before=_remember, after_in_child=_tie)


def command(*arguments: str, number: int = signal.SIGKILL, empty: str = "") -> list[str]:
    """The argument list that runs `arguments` tied to its parent; `empty` names a directory to be emptied first."""
    name = signal.Signals(number).name.removeprefix("SIG")
    options = ["--signal", name, *(["--empty", empty] if empty else [])]
    return [sys.executable, "-m", "workers.lifeline", *options, "--", *arguments]


def _remember() -> None:
    global _parent_before_fork
    _parent_before_fork = os.getpid()


def _tie() -> None:
    die_with_parent(signal.SIGKILL, _parent_before_fork)


def _watch_parent(number: int) -> None:
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os.kill(os.getpid(), number)


def _empty(directory: str) -> None:
    # prometheus_client's files of the processes before: their counters would be added to ours.
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory, exist_ok=True)


def _run_beside(arguments: list[str], number: int) -> int:
    # Without a kernel's help exec would lose the watching thread: stay, pass signals on, look after both sides.
    child = subprocess.Popen(arguments)
    for passed in (signal.SIGTERM, signal.SIGINT):
        signal.signal(passed, lambda received, _frame: child.send_signal(received))
    parent = os.getppid()
    while child.poll() is None:
        if os.getppid() != parent:
            child.send_signal(number)
        time.sleep(_LOOK_SECONDS)
    return child.returncode


def main(arguments: list[str]) -> None:
    """Run the command after `--` and end as it ends; on Linux this process becomes it."""
    parser = argparse.ArgumentParser(prog="workers.lifeline", description=__doc__)
    parser.add_argument("--signal", default="KILL", help="what the command gets when its parent ends (default KILL)")
    parser.add_argument("--empty", default="", help="a directory to empty first")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    number = signal.Signals[f"SIG{options.signal}"]
    if options.empty:
        _empty(options.empty)
    if sys.platform != "linux":
        sys.exit(_run_beside(options.command, number))
    die_with_parent(number)
    os.execvp(options.command[0], options.command)


if __name__ == "__main__":
    main(sys.argv[1:])
