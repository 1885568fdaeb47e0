"""Make a process of ours slower by a share, honestly: stop it for that share of the time that it ran.

    python benchmarks/slowed.py PID SHARE

Stops it (SIGSTOP) after every 20 ms that it ran, for SHARE of the time that it ran, until standard input closes; then
leaves it running. Prints a line when it has begun. A real-time policy (chrt) would hide it: the kernel takes five per
cent of such a process's time anyway, and the stops fall into that.
"""

import os
import select
import signal
import sys
import time

RUN_S = 0.020


def main(pid: int, share: float) -> None:
    """Until standard input closes."""
    ran_s, stopped_s, last_s = 0.0, 0.0, time.monotonic()
    print("begun", flush=True)
    try:
        while not select.select([sys.stdin], [], [], RUN_S)[0]:
            now_s = time.monotonic()
            ran_s, last_s = ran_s + now_s - last_s, now_s
            os.kill(pid, signal.SIGSTOP)
            time.sleep(max(0.0, share * ran_s - stopped_s))  # a late wake-up is made good in the next stop
            os.kill(pid, signal.SIGCONT)
            now_s = time.monotonic()
            stopped_s, last_s = stopped_s + now_s - last_s, now_s
    finally:
        os.kill(pid, signal.SIGCONT)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
