"""People come in here: one file a verb, imported only when its verb is called.

A verb's file holds `app`, a Typer application of its own: one function for a plain verb, several for a verb
with sub-verbs. Its line of help stands in `VERBS`, so that `uncork --help` imports none of them.
"""

VERBS = {
    "run": "The whole loop: audit, plan, record, apply, verify, benchmark, compare.",
    "audit": "Look at this host (or a snapshot) and rank what is wrong. Changes nothing.",
    "explain": "Why a check matters, what it read here, how to cure it and undo that.",
    "snapshot": "Record what an audit reads, without secrets, for another machine.",
    "bench": "Measure a server: latency and throughput, with the error of the client itself.",
    "compare": "Before against after: what the repeats support, and no more.",
    "results": "Read result files of other benchmark tools, or write ours in their shape.",
    "bound": "The most this model can give on this hardware, and where the rest of the time went.",
    "plan": "The plan of record: show it, watch it, pause it, change it.",
    "verify": "Prove that the devices deliver the right data at the speed of their links.",
    "approve": "Approve the exact changes of the plan.",
    "rollback": "Put back everything uncork changed.",
    "hold": "What reverts by itself, and when: extend or confirm it.",
    "persist": "Keep over a reboot what was proven: write boot files, or take them away.",
    "journal": "What was done to this host, and whether the record of it is intact.",
    "record": "system-improve.md: list, show, verify that its sealed part never changed.",
    "report": "One HTML file that shows a run at a glance, offline; or several, overlaid.",
    "watch": "The report live on loopback while a run goes on, read-only.",
    "brief": "The plan, the findings and the next calls, short enough to paste.",
    "explore": "Let a model look for what no rule foresees; its claims are checked.",
    "mcp": "Let an assistant read, plan and (only where allowed) apply, over MCP.",
}
