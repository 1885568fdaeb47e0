"""The whole page: one file, no network, no script; its security policy forbids both."""

import importlib.resources
from collections.abc import Sequence

from uncork.record.markdown import one_line
from uncork.record.report.findings import findings
from uncork.record.report.host import host
from uncork.record.report.markup import Html, join, tag, text
from uncork.record.report.paths import paths
from uncork.record.report.speed import overlay, speed, where_time_goes
from uncork.record.report.story import Story
from uncork.record.report.telemetry import telemetry
from uncork.record.report.timeline import changes, timeline
from uncork.record.report.verdict import provenance, verdict

# What a report may do: show itself. Not one byte from elsewhere, and no script whatever a text manages to say.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_TITLES = {
    "live": "Now",
    "verdict": "In one minute",
    "runs": "Runs",
    "speed": "Speed",
    "waterfall": "Time",
    "findings": "Findings",
    "changes": "Changes",
    "paths": "Data paths",
    "host": "Host",
    "timeline": "Timeline",
    "telemetry": "While it ran",
}


def page(stories: Sequence[Story], *, policy: str = POLICY, live: str = "", script: str = "") -> str:
    """The page of the first story, with the curves of the others laid over its own.

    `live` and `script` are what `uncork watch` adds; a report has neither.
    """
    first = stories[0]
    title = f"uncork report: {one_line(first.host, 120)}"
    head = [
        tag_open("meta", charset="utf-8"),
        tag_open("meta", http_equiv="Content-Security-Policy", content=policy),
        tag_open("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag_open("meta", name="color-scheme", content="light dark"),
        tag_open("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        Html(f"<style>{_css()}</style>"),
    ]
    body = Html(f'<div class="page" id="page">{body_of(stories, live)}</div>')
    whole = tag("head", *head) + tag("body", body, Html(script))
    return f'<!DOCTYPE html>\n<html lang="en">{whole}</html>\n'


def body_of(stories: Sequence[Story], live: str = "") -> Html:
    """What stands inside the page; `uncork watch` replaces it while a run goes on."""
    first = stories[0]
    parts = {
        "live": Html(live),
        "verdict": verdict(first),
        "runs": overlay(stories),
        "speed": speed(stories),
        "waterfall": where_time_goes(first),
        "findings": findings(first.audit),
        "changes": changes(first),
        "paths": paths(first),
        "host": host(first.topology, first.audit),
        "timeline": timeline(first),
        "telemetry": telemetry(first),
    }
    there = {name: part for name, part in parts.items() if part}
    links = [tag("li", tag("a", _TITLES[name], href=f"#{name}")) for name in there]
    top = tag("div", tag("nav", tag("ul", *links), aria_label="Parts"), _colours(), class_="top")
    skip = tag("a", "Skip to the verdict", href="#verdict", class_="skip")
    header = tag("header", top, tag("h1", f"What holds back {one_line(first.host, 120)}"), provenance(first))
    return join([skip, header, tag("main", *there.values()), _footer(first)])


def tag_open(name: str, /, **attributes: str) -> Html:
    """An element without content or end."""
    return Html(tag(name, **attributes).removesuffix(f"</{name}>"))


def _colours() -> Html:
    choices = [
        tag("label", tag_open("input", type="radio", name="colours", id=id, **checked), f" {name}")
        for id, name, checked in (
            ("auto", "as the system", {"checked": "checked"}),
            ("light", "light", {}),
            ("dark", "dark", {}),
        )
    ]
    return tag("fieldset", tag("legend", "Colours"), *choices)


def _footer(story: Story) -> Html:
    lines = [
        "Numbers are measured unless they are called a tier or a bound; what a bound assumes stands beside it."
    ]
    if story.record:
        lines.append(f"The record: {story.record}")
    if story.plan and story.plan.record_sha256:
        lines.append(
            f"Its sealed part has SHA-256 {story.plan.record_sha256}; uncork record verify checks it."
        )
    if story.chain_head:
        lines.append(f"{story.chain_head}; uncork journal verify checks it.")
    if story.written_at:
        lines.append(f"This page was written {story.written_at}.")
    return tag("footer", *(tag("p", text(line)) for line in lines))


def _css() -> str:
    return (
        importlib.resources.files("uncork.record.report").joinpath("report.css").read_text(encoding="utf-8")
    )
