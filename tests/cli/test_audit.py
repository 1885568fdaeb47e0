"""uncork audit, explain and snapshot as a person or a program calls them."""

import json
import re
import stat
import sys
from pathlib import Path

import msgspec
import pytest

from uncork.audit import audit
from uncork.cli import audit_files, look
from uncork.cli.main import main
from uncork.host.attached import AttachedHost
from uncork.model.findings import Answer, Audit, Change, ChangeClass, Evidence, Priority, Result

SCHEMA = Path(__file__).parents[2] / "docs" / "audit.schema.json"
TWO_NODES = "available: 2 nodes (0-1)\nnode 0 cpus: 0 1\nnode 1 cpus: 2 3\n"


def _call(capsys, monkeypatch, *words):
    """Exit status, stdout and stderr of a command line."""
    monkeypatch.setattr(sys, "argv", ["uncork", *map(str, words)])
    try:
        main()
        status = 0
    except SystemExit as end:
        status = end.code or 0
    told = capsys.readouterr()
    return status, told.out, told.err


@pytest.fixture
def bad(tmp_path):
    """Attachments with a P0 and a P1."""
    folder = tmp_path / "bad"
    folder.mkdir()
    (folder / "lspci.txt").write_text(
        "00:01.1 PCI bridge: Advanced Micro Devices, Inc. [AMD] Device 1483\n"
        "\tBus: primary=00, secondary=01, subordinate=01, sec-latency=0\n"
        "\tCapabilities: [58] Express (v2) Root Port (Slot+), MSI 00\n"
        "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n\n"
        "01:00.0 3D controller: NVIDIA Corporation Device 2bb5 (rev a1)\n\t\tLnkSta:\tSpeed 32GT/s, Width x16\n\n"
        "00:03.1 PCI bridge: Advanced Micro Devices, Inc. [AMD] Device 1483\n"
        "\tBus: primary=00, secondary=02, subordinate=02, sec-latency=0\n"
        "\tCapabilities: [58] Express (v2) Root Port (Slot+), MSI 00\n"
        "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n\n"
        "02:00.0 3D controller: NVIDIA Corporation Device 2bb5 (rev a1)\n\t\tLnkSta:\tSpeed 32GT/s, Width x16\n",
        encoding="utf-8",
    )
    (folder / "sysctl.txt").write_text("kernel.numa_balancing = 1\n", encoding="utf-8")
    (folder / "numa.txt").write_text(TWO_NODES, encoding="utf-8")
    return folder


@pytest.fixture
def good(tmp_path):
    """Attachments without a finding."""
    (tmp_path / "good.txt").write_text("kernel.numa_balancing = 0\n" + TWO_NODES, encoding="utf-8")
    return tmp_path / "good.txt"


def _one(id="a.b", answer=Answer.FAIL, subject="", priority=Priority.P1, **more):
    return Result(
        id,
        answer,
        priority,
        more.pop("change_class", ChangeClass.RUNTIME),
        "kernel",
        f"says {id}",
        subject,
        **more,
    )


def _audit(*results, host="node", explorers=None):
    return Audit(1, "0", host, results, explorers or {"kernel": "ok"}, {})


def test_the_table_is_80_columns_and_the_worst_comes_first(bad, capsys, monkeypatch):
    status, out, err = _call(capsys, monkeypatch, "audit", "--snapshot", bad)

    lines = out.split("\n")
    findings = [line for line in lines if re.match(r"P\d ", line)]
    assert (status, err) == (0, "")
    assert [line for line in lines if len(line) > 80 and not line.startswith("Next:")] == []
    assert [line[:2] for line in findings] == sorted(line[:2] for line in findings)
    assert any("pcie.acs-redirect" in line for line in findings)
    assert any("kernel.numa-balancing" in line for line in findings)
    assert f"Next: uncork explain {findings[0].split()[-1]}" in out


def test_nothing_coloured_goes_into_a_pipe(bad, capsys, monkeypatch):
    _, out, _ = _call(capsys, monkeypatch, "audit", "--snapshot", bad)

    assert "\x1b" not in out


def test_json_has_one_entry_a_check_and_subject_with_the_documented_fields(bad, capsys, monkeypatch):
    _, out, _ = _call(capsys, monkeypatch, "audit", "--snapshot", bad, "--json")

    results = json.loads(out)["results"]
    wanted = {"id", "answer", "priority", "class", "subject", "says", "evidence", "reason", "change"}
    assert all(wanted <= one.keys() for one in results)
    assert {one["answer"] for one in results} <= {"pass", "fail", "unknown", "not-applicable"}
    assert len({(one["id"], one["subject"], one["says"]) for one in results}) == len(results)
    assert all(one["reason"] for one in results if one["answer"] in ("unknown", "not-applicable"))


def test_json_reads_back_as_an_audit_and_is_the_same_twice(bad, capsys, monkeypatch):
    _, first, _ = _call(capsys, monkeypatch, "audit", "--snapshot", bad, "--json")
    _, second, _ = _call(capsys, monkeypatch, "audit", "--snapshot", bad, "--json")

    assert first == second
    assert msgspec.json.decode(first, type=Audit).host == "bad"


def test_the_published_schema_is_the_current_one():
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == json.loads(
        msgspec.json.encode(audit_files.schema())
    )


def test_fail_on_ends_with_1_only_at_or_above_the_priority(bad, good, capsys, monkeypatch):
    assert _call(capsys, monkeypatch, "audit", "--snapshot", bad, "--fail-on", "P0")[0] == 1
    assert _call(capsys, monkeypatch, "audit", "--snapshot", bad, "--fail-on", "p2", "--json")[0] == 1
    assert _call(capsys, monkeypatch, "audit", "--snapshot", good, "--fail-on", "P0")[0] == 0
    status, _, err = _call(capsys, monkeypatch, "audit", "--snapshot", good, "--fail-on", "P7")
    assert (status, "nothing was audited" in err) == (2, True)


def test_paths_are_given_to_snapshot_in_any_number(bad, good, capsys, monkeypatch):
    both = _call(
        capsys,
        monkeypatch,
        "audit",
        "--snapshot",
        bad / "lspci.txt",
        "--snapshot",
        bad / "sysctl.txt",
        "--json",
    )
    rest = _call(capsys, monkeypatch, "audit", "--snapshot", bad / "lspci.txt", bad / "sysctl.txt", "--json")

    assert both[1] == rest[1]
    assert _call(capsys, monkeypatch, "audit", good)[0] == 2


def test_a_path_that_is_not_there_is_a_sentence(tmp_path, capsys, monkeypatch):
    status, out, err = _call(capsys, monkeypatch, "audit", "--snapshot", tmp_path / "no")

    assert (status, out) == (2, "")
    assert "does not exist; nothing was audited" in err and "Traceback" not in err


def test_a_snapshot_file_is_replayed_and_cannot_be_mixed(tmp_path, good, capsys, monkeypatch):
    from uncork.host.recording import RecordingHost
    from uncork.host.snapshot import save

    host = RecordingHost(AttachedHost([good]))
    audit(host)
    save(host.answers, "elsewhere", tmp_path / "h.tar.zst")

    status, out, _ = _call(capsys, monkeypatch, "audit", "--snapshot", tmp_path / "h.tar.zst", "--json")

    assert (status, json.loads(out)["host"]) == (0, "elsewhere")
    assert _call(capsys, monkeypatch, "audit", "--snapshot", tmp_path / "h.tar.zst", good)[0] == 2


def test_control_characters_of_a_host_do_not_reach_the_terminal(tmp_path, capsys, monkeypatch):
    (tmp_path / "x").write_text("NCCL_P2P_DISABLE=1\x1b]0;pwned\x07\x1b[2J\u202e\n", encoding="utf-8")

    for words in (("audit", "--all"), ("explain", "nccl.env-leftovers")):
        _, out, err = _call(capsys, monkeypatch, *words, "--snapshot", tmp_path / "x")
        assert not {"\x1b", "\x07", "\u202e"} & set(out + err)


_LABEL = r"[a-z_]+=\"(?:[^\"\\\n]|\\[\\\"n])*\""
PROMETHEUS_LINE = re.compile(
    rf"# (?:HELP [a-z_]+ \S.*|TYPE [a-z_]+ gauge)|[a-z_]+(?:\{{{_LABEL}(?:,{_LABEL})*\}})? [0-9.]+"
)


def test_prometheus_text_is_well_formed_whatever_a_subject_holds(tmp_path):
    text = audit_files.prometheus(
        _audit(_one(subject='a"b\\c\nd'), _one(subject="", priority=Priority.P0), host='h"\n')
    )

    assert text.endswith("\n")
    assert [line for line in text[:-1].split("\n") if not PROMETHEUS_LINE.fullmatch(line)] == []
    assert 'uncork_audit_findings{priority="P0"} 1' in text
    names = [line.split("{")[0].split()[0] for line in text.split("\n") if line and line[0] != "#"]
    assert names == sorted(names, key=names.index)  # series of a metric stand together


def test_prom_writes_whole_files_that_others_may_read(tmp_path, good, capsys, monkeypatch):
    target = tmp_path / "uncork.prom"
    target.write_text("old", encoding="utf-8")

    status, _, _ = _call(capsys, monkeypatch, "audit", "--snapshot", good, "--prom", target)

    assert (status, stat.S_IMODE(target.stat().st_mode)) == (0, 0o644)
    assert target.read_text(encoding="utf-8").startswith("# HELP uncork_audit_info")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    status, _, err = _call(
        capsys, monkeypatch, "audit", "--snapshot", good, "--prom", tmp_path / "no" / "x.prom"
    )
    assert (status, "cannot be written" in err) == (2, True)


def test_a_difference_names_what_came_what_went_and_what_else_changed():
    old = _audit(_one("a.cured"), _one("a.stays"), _one("a.lost", Answer.PASS), _one("a.gone"))
    new = _audit(
        _one("a.cured", Answer.PASS),
        _one("a.stays"),
        _one("a.lost", Answer.UNKNOWN, reason="hidden"),
        _one("a.new", subject="x"),
    )

    found = audit_files.difference(old, new)

    assert [(one.id, one.subject) for one in found.appeared] == [("a.new", "x")]
    assert [(one.id, one.before, one.after) for one in found.gone] == [
        ("a.cured", "fail", "pass"),
        ("a.gone", "fail", ""),
    ]
    assert [(one.id, one.before, one.after, one.says) for one in found.changed] == [
        ("a.lost", "pass", "unknown", "hidden")
    ]


def test_diff_reads_an_earlier_json_and_fails_only_on_what_is_new(tmp_path, bad, capsys, monkeypatch):
    _, before, _ = _call(capsys, monkeypatch, "audit", "--snapshot", bad, "--json")
    (tmp_path / "old.json").write_text(before, encoding="utf-8")

    same = _call(
        capsys, monkeypatch, "audit", "--snapshot", bad, "--diff", tmp_path / "old.json", "--fail-on", "P0"
    )
    (bad / "sysctl.txt").write_text("kernel.numa_balancing = 0\n", encoding="utf-8")
    cured = _call(capsys, monkeypatch, "audit", "--snapshot", bad, "--diff", tmp_path / "old.json")

    assert same[:2] == (0, "Nothing changed since that audit.\n")
    assert re.search(r"^gone +P1 +kernel.numa-balancing: fail -> pass", cured[1], re.MULTILINE)
    (tmp_path / "broken.json").write_text("{}", encoding="utf-8")
    status, _, err = _call(
        capsys, monkeypatch, "audit", "--snapshot", bad, "--diff", tmp_path / "broken.json"
    )
    assert (status, "is not an audit" in err) == (2, True)


def test_the_host_script_changes_only_host_settings_and_quotes_them(tmp_path):
    host = {"change_class": ChangeClass.HOST_ONLY}
    found = _audit(
        _one("a.sysctl", changes=(Change("sysctl", "vm.x", "1; rm -rf /", before="0"),), **host),
        _one("a.sysfs", changes=(Change("sysfs", "/sys/kernel/x*", "never"),), **host),
        _one("a.odd", changes=(Change("sysfs", "/sys/$(reboot)", "1"),), **host),
        _one("a.hands", **host),
        _one("a.mine", changes=(Change("sysctl", "vm.y", "1"),)),
    )

    text, count = audit_files.host_script(found)

    assert count == 2
    assert "sysctl -w vm.x='1; rm -rf /'" in text
    assert 'for file in /sys/kernel/x*; do echo never > "$file"; done' in text
    assert "$(reboot)" not in text and "vm.y" not in text
    assert "#   a.hands: says a.hands" in text and "#   a.odd: says a.odd" in text


def test_explain_says_what_the_docstring_says_and_what_was_read(bad, capsys, monkeypatch):
    status, out, _ = _call(capsys, monkeypatch, "explain", "kernel.numa-balancing", "--snapshot", bad)

    assert status == 0
    for part in ("fail here:", "numa_balancing", "Effect", "Fix", "Undo", "Source"):
        assert part in out
    _, out, _ = _call(capsys, monkeypatch, "explain", "kernel.numa-balancing", "--snapshot", bad, "--json")
    told = json.loads(out)
    assert (told["id"], told["results"][0]["answer"]) == ("kernel.numa-balancing", "fail")


def test_explain_of_an_unknown_id_names_close_ones(capsys, monkeypatch):
    status, out, err = _call(capsys, monkeypatch, "explain", "pcie.acs-redirec")

    assert (status, out) == (18, "")
    assert "pcie.acs-redirect" in err
    assert "kernel.swappiness" in _call(capsys, monkeypatch, "explain", "swapiness")[2]


def test_snapshot_stores_this_host_and_its_audit_is_the_same_elsewhere(tmp_path, capsys, monkeypatch):
    target = tmp_path / "h.tar.zst"

    status, out, _ = _call(capsys, monkeypatch, "snapshot", "-o", target, "--redact-names", "--json")

    assert (status, json.loads(out)["file"]) == (0, str(target))
    first = _call(capsys, monkeypatch, "audit", "--snapshot", target, "--json")[1]
    assert json.loads(first)["host"] == "host"
    assert _call(capsys, monkeypatch, "audit", "--snapshot", target, "--json")[1] == first


def test_identifiers_are_replaced_in_what_is_shown():
    evidence = (
        Evidence(
            "nvidia-smi -q", "GPU UUID : GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee, MAC b8:59:9f:12:34:56"
        ),
    )

    shown = look.shown(_audit(_one(evidence=evidence)))

    assert (
        "bbbb" not in shown.results[0].evidence[0].text
        and "12:34:56" not in shown.results[0].evidence[0].text
    )


def test_progress_moves_only_where_a_person_looks(capsys, monkeypatch):
    with look.Progress() as progress:
        progress("kernel", "running")
        progress("kernel", "ok")

    assert capsys.readouterr().err == ""
