"""The report as a browser shows it: no complaint, no request, every part opens, also by keyboard."""

import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.record import browser, largest

from uncork.cli.watch import serve
from uncork.model.plan import Kind, PlanDraft, StepDraft
from uncork.plan.store import Store, find
from uncork.record.report.page import page

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(browser.CHROMIUM is None, reason="needs Chromium (apt-get install chromium)"),
    pytest.mark.xdist_group("browser"),
]
PARTS = ("verdict", "speed", "waterfall", "findings", "changes", "paths", "host", "timeline", "telemetry")
ISSUES = """(() => {
  const bad = [];
  const ids = [...document.querySelectorAll('[id]')].map(one => one.id);
  ids.filter((id, at) => ids.indexOf(id) !== at).forEach(id => bad.push('two elements are ' + id));
  document.querySelectorAll('svg[role=img]').forEach(one => {
    for (const id of one.getAttribute('aria-labelledby').split(' '))
      if (!document.getElementById(id)?.textContent) bad.push('a chart without words');
  });
  document.querySelectorAll('input').forEach(one => one.labels.length || bad.push('an input without label'));
  document.querySelectorAll('th').forEach(one => one.scope || bad.push('a th without scope'));
  document.querySelectorAll('a[href^="#"]').forEach(one =>
    document.getElementById(one.hash.slice(1)) || bad.push('a link to nowhere: ' + one.hash));
  document.querySelectorAll('.scroll, .draw').forEach(one => {
    if (one.tabIndex !== 0 || !one.getAttribute('aria-label')) bad.push('a box that scrolls only by mouse');
  });
  let last = 0;
  document.querySelectorAll('h1, h2, h3').forEach(one => {
    const level = +one.tagName[1];
    if (level > last + 1) bad.push('a heading skips a level: ' + one.textContent);
    last = level;
  });
  if (!document.documentElement.lang) bad.push('no language');
  return bad;
})()"""


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page([largest.story()]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def shown(report, tmp_path_factory) -> Iterator[browser.Page]:
    with browser.chromium(tmp_path_factory.mktemp("profile")) as one:
        one.open(report.as_uri())
        yield one


def test_it_opens_from_disk_without_a_complaint_or_a_request(shown, report):
    shown.open(report.as_uri())

    assert shown.complaints() == []
    assert shown.requests() == [report.as_uri()]


def test_every_part_is_there_and_every_fold_opens(shown):
    parts = shown.ask("[...document.querySelectorAll('main > section')].map(one => one.id)")
    left = shown.ask("""(() => {
      const folds = [...document.querySelectorAll('details')];
      folds.forEach(one => { if (!one.open) one.querySelector('summary').click(); });
      return folds.filter(one => !one.open || one.offsetHeight < 20).length;
    })()""")

    assert parts == list(PARTS)
    assert left == 0
    assert shown.complaints() == []


def test_the_main_rules_of_accessibility_hold(shown):
    assert shown.ask(ISSUES) == []


# Colours change nothing but contrasts: the other rules are asked once.
@pytest.mark.parametrize(("colours", "only"), [("light", ""), ("dark", "runOnly: ['color-contrast'],")])
def test_axe_finds_nothing(shown, colours, only):
    found = find_spec("axe_core_python")
    assert found and found.origin
    script = (Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8")
    shown.ask(f"document.getElementById('{colours}').click()")
    shown.ask(script + "; 0")

    found = shown.ask(
        f"axe.run({{{only} resultTypes: ['violations']}})"
        ".then(r => r.violations.map(v => v.id + ': ' + v.nodes[0].html))"
    )

    assert found == []


def test_a_fold_opens_by_keyboard(shown):
    shown.ask("document.querySelectorAll('details').forEach(one => one.open = false)")
    shown.ask("document.querySelector('#findings summary').focus()")
    shown.press("Enter", 13)

    assert shown.ask("document.querySelector('#findings details').open") is True


def test_colours_change_without_a_script(shown):
    def background(choice: str) -> str:
        shown.ask(f"document.getElementById('{choice}').click()")
        return str(shown.ask("getComputedStyle(document.body).backgroundColor"))

    light, dark = background("light"), background("dark")

    assert sum(map(int, light[4:-1].split(", "))) > 600
    assert sum(map(int, dark[4:-1].split(", "))) < 120


@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_never_scrolls_sideways(shown, width):
    shown.call(
        "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False
    )

    assert shown.ask("document.documentElement.scrollWidth") <= width


def test_hostile_text_runs_nothing(shown, tmp_path):
    path = tmp_path / "hostile.html"
    path.write_text(page([largest.hostile()]), encoding="utf-8")

    shown.open(path.as_uri())

    assert shown.ask("typeof window.pwned") == "undefined"
    assert shown.ask("document.querySelectorAll('script, iframe, object, img, link').length") == 0
    assert shown.complaints() == []
    assert shown.requests() == [path.as_uri()]


def test_the_live_page_follows_the_plan(shown, tmp_path, monkeypatch):
    monkeypatch.setenv("UNCORK_STATE", str(tmp_path))
    steps = (StepDraft("explore", Kind.EXPLORE, "Look at the host"), StepDraft("close", Kind.CLOSE, "End"))
    with Store(tmp_path) as store:
        store.create(PlanDraft("node-17", steps))
        server = serve(None, 0)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}/"
            shown.open(f"{address}?token={server.token}")
            first = shown.ask("document.querySelector('#live b').textContent")
            store.start(find(store.read(), "explore"))
            then = shown.ask("""new Promise(done => {
              const look = () => {
                const said = document.querySelector('#live b').textContent;
                said.startsWith('Running') ? done(said) : setTimeout(look, 20);
              };
              look();
            })""")
            requests, complaints = shown.requests(), shown.complaints()
        finally:
            shown.open("about:blank")
            server.shutdown()
            thread.join()
            server.server_close()

    assert (first, then) == ("Next: Look at the host", "Running: Look at the host")
    assert complaints == []
    assert all(one.startswith(address) for one in requests)
