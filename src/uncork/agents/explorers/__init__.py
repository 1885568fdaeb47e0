"""Model-driven explorers: they look for what no rule foresees, and nothing they say is believed unchecked.

    eyes.py      the read-only tools, and a copy of everything they returned
    claims.py    the typed answer, and the check that every quote was really returned
    briefs.py    what each explorer is told
    run.py       many side by side, each with a budget of steps, seconds and tokens

What a model reads was perhaps written by an enemy. So an explorer has no tool that writes, its output is bounded
and escaped, and a claim changes neither the plan nor the ranking of what rules found.
"""
