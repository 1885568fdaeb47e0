"""The HTML report: one file that shows a run at a glance, without a network, without a script.

Interface (everything is a pure function of what was stored):

    story = reading.from_folder(folder, plan=plan, rows=journal_rows)   # raises NotFound, Corrupt
    html = page.page([story, ...])            # the first is told in full, the others are overlaid
    reading.any_of(path)                      # a folder of a run, or of `uncork bench`

Charts are drawn by matplotlib as SVG while the page is built, so that the file needs no script: its content
security policy forbids every one, whatever a host has called itself. Where matplotlib is not installed, the
same numbers stand in their tables and the page says so.
"""
