"""The plan of record: steps, legal moves, dependencies, directives, approvals, in one SQLite file.

Interface
---------
    store = Store()                                  # state.db in uncork.state.state_dir(); a context manager
    plan = store.create(build(audit))                # one open plan a host
    plan = store.read()                              # any process, any time: one consistent read
    step = find(plan, "gate")                        # by name or by number
    store.start(step)                                # lease + attempt; refused until its needs are met
    store.complete(step, "64 pairs, no error")       # evidence of verdict pass, then completed
    store.evidence(step, "fail", "pair 0-3 ...")     # any verdict; then
    store.fail(step, "gate-failed: pair 0-3 ...")
    store.seal_record(plan.id, sha256)               # before the first change
    approve(store, plan, plan.digest, by=..., how=...)   # approvals.py; used up when an apply step starts
    pause / resume / abort / skip / cancel / add / edit / move / replan (store, plan, ..., words=, by=)
    approved(plan)                                   # whether all that would still be written is covered
    todo(plan)                                       # [{content, status, priority}]
    fold(changes)                                    # lines for people; many equal changes on one

Names of the steps that `build` makes: explore, rank, gate-before, benchmark-before, document, approve,
apply-DIMENSION-KNOB ..., gate, confirm, benchmark, compare, decide, close. Only apply steps carry changes.
`Step.status` is what is stored (seven words), `Step.shown` what a person sees (ready, blocked, interrupted,
unconfirmed, drifted are derived while reading). Every rule stands in schema.sql; a refusal is an error of
`uncork.errors` whose `next` names the call that would be accepted.
"""
