"""Every way uncork refuses or fails: one tree, a stable code and an exit status each.

    UncorkError
    ├── Refused        10-19  nothing was changed
    ├── ChangeFailed   20-29  the host was touched and put back
    ├── UndoFailed     30     the host was touched and could not be put back
    ├── Corrupt        40     journal, database or record do not match what was written
    ├── MeasureFailed  50-59  a measurement could not be made; what was finished is kept
    └── BadInput       2      the command line or a file given to it

Other exit statuses: 0 done, 1 findings at or above `--fail-on` or a verdict that is not a pass, 70 a bug of
ours, 130 Ctrl-C.  Never 255, which ssh uses.
"""


class UncorkError(Exception):
    """A foreseeable end: `says` what happened and what was not done, `next` the command to run now."""

    code = "error"
    exit = 70

    def __init__(self, says: str, *, next: str = "") -> None:
        super().__init__(says)
        self.says = says
        self.next = next


class BadInput(UncorkError):
    """Something given on the command line, or a file it names, cannot be used."""

    code = "bad-input"
    exit = 2


class Refused(UncorkError):
    """Nothing was changed."""

    code = "refused"
    exit = 10


class NotApproved(Refused):
    """A write without a valid approval."""

    code = "not-approved"
    exit = 11


class StaleRevision(Refused):
    """The plan has a newer revision than the one the caller saw."""

    code = "stale-revision"
    exit = 12


class Drifted(Refused):
    """A target no longer has the value that was approved."""

    code = "drifted"
    exit = 13


class Conflict(Refused):
    """Another owner (tuned, irqbalance, another setting) holds the target."""

    code = "conflict"
    exit = 14


class GateClosed(Refused):
    """A benchmark or comparison is blocked because the gate did not pass."""

    code = "gate-closed"
    exit = 15


class Locked(Refused):
    """Another uncork works on this host."""

    code = "locked"
    exit = 16


class StateUnwritable(Refused):
    """The state folder cannot be written (full, read-only, no permission), so nothing is attempted."""

    code = "state-unwritable"
    exit = 17


class NotFound(Refused):
    """The plan, step, run or check that was named does not exist."""

    code = "not-found"
    exit = 18


class IllegalMove(Refused):
    """A step cannot take that status from where it is; `next` names the call that would be accepted."""

    code = "illegal-move"
    exit = 19


class ChangeFailed(UncorkError):
    """A change did not take; the group was put back."""

    code = "change-failed"
    exit = 20


class NotPermitted(ChangeFailed):
    """The kernel refused the write (EPERM, EACCES, EROFS)."""

    code = "not-permitted"
    exit = 21


class BadValue(ChangeFailed):
    """The kernel refused the value (EINVAL, ENOTSUPP)."""

    code = "bad-value"
    exit = 22


class Busy(ChangeFailed):
    """The target stayed busy through the retries."""

    code = "busy"
    exit = 23


class Vanished(ChangeFailed):
    """The target disappeared (a device off the bus)."""

    code = "vanished"
    exit = 24


class ReadbackDiffers(ChangeFailed):
    """The kernel took the write and reads back something else."""

    code = "readback-differs"
    exit = 25


class Stuck(ChangeFailed):
    """A write did not return within its time limit; the plan is frozen."""

    code = "stuck"
    exit = 26


class UndoFailed(UncorkError):
    """A value could not be put back; the message lists the commands to run by hand."""

    code = "undo-failed"
    exit = 30


class Corrupt(UncorkError):
    """What is stored does not match its hash or its schema."""

    code = "corrupt"
    exit = 40


class MeasureFailed(UncorkError):
    """A measurement could not be made."""

    code = "measure-failed"
    exit = 50


class NoServer(MeasureFailed):
    """No inference server answers."""

    code = "no-server"
    exit = 51


class ServerDied(MeasureFailed):
    """The inference server went away during the measurement; finished levels are kept."""

    code = "server-died"
    exit = 52


class NotComparable(MeasureFailed):
    """Two runs differ in something other than the change under test."""

    code = "not-comparable"
    exit = 53


class MissingExtra(MeasureFailed):
    """An optional part is not installed."""

    code = "missing-extra"
    exit = 54
