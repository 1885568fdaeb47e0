"""Changes that cannot hurt: journal, transaction, hold, recovery, and revert.py, which runs alone.

Interface
---------
    recover(store)                       # recover.py: call it first; what a dead uncork left is put in order
    applied = apply_step(store, step)    # transaction.py: start, preflight, hold + intents, timer, write, read back
    confirm(store, applied.txn)          # hold.py: open -> confirmed; IllegalMove where the deadline was first
    confirm_all(store, plan)             # every open hold of the plan
    extend(store, txn, seconds)          # move the deadline later
    undo(store, txn, why=...)            # put back what is still ours; [{target, end, now, before, by_hand}]
    rollback(store)                      # rollback.py: all of ours that is still in force, newest first
    persist.write(store, persist.draft(store).files); persist.undo(store)    # boot files, after the proof
    predict(step)                        # dry_run.py: would change / would not / cannot predict, by real reads
    chain.head(store.db), chain.broken(store.db)    # the journal's newest hash; where it does not hold

`apply_step` ends the step itself: completed with its hold open (shown as `unconfirmed`), or failed, and raises.
After a `Refused` nothing was written, after a `ChangeFailed` the group was put back, after `UndoFailed` or
`Stuck` the plan is frozen. An apply step that failed does not stop the gate, which judges what is in force.
An `end` is undone, noop (was as before), gone (the device left), drift (someone else's value, left alone),
failed or stuck.

Nothing is undone because a process exits. The revert timer (systemd, or a detached process) undoes a group at
its deadline; it runs the copy of revert.py in the state folder with the base interpreter and the standard
library only.
"""
