"""A snapshot replays byte for byte, holds no secret, and a damaged or hostile one ends as a sentence."""

import io
import json
import tarfile

import msgspec
import pytest
import zstandard
from tests.hosts import DictHost

from uncork.audit import audit
from uncork.checks.gpus import lines
from uncork.checks.hosts import seen
from uncork.cli.look import shown
from uncork.errors import BadInput, Corrupt
from uncork.host import Output, redact
from uncork.host.live import LiveHost
from uncork.host.recording import RecordingHost
from uncork.host.redact import Names
from uncork.host.snapshot import SnapshotHost, is_snapshot, save
from uncork.model.unknown import Unknown


def _json(found):
    return msgspec.json.encode(shown(found), order="deterministic")


def test_the_audit_of_this_machine_and_of_its_snapshot_are_the_same_bytes(tmp_path):
    host = RecordingHost(LiveHost())
    live = audit(host)
    save(host.answers, host.name, tmp_path / "h.tar.zst")

    replayed = audit(RecordingHost(SnapshotHost(tmp_path / "h.tar.zst")))

    assert _json(replayed) == _json(live)


@pytest.mark.parametrize(
    "identifier",
    ["4c4c4544-0051-3610-8054-b7c04f4e4d32", "b8:59:9f:12:34:56", "Serial Number: 1234567890123"],
)
def test_an_identifier_at_the_edge_of_what_is_shown_is_neither_shown_nor_told_otherwise_by_a_replay(
    identifier,
):
    for before in range(360, 402):
        line = f"{'x' * before} {identifier} {'y' * 60}"

        live = [redact.text(one.text) for one in (*seen("log", line), *lines("log", [line]))]
        replayed = [redact.text(one.text) for one in seen("log", redact.text(line))] * 2

        assert live == replayed


def test_every_kind_of_answer_comes_back_as_it_was(tmp_path):
    answers = {
        ("read", "/a", "1"): b"text\n",
        ("read", "/b", "2"): b"\x00\xff\x10",
        ("read", "/c", "1"): Unknown("/c: Permission denied"),
        ("read", "/d", "1"): Unknown("/d: No such file", absent=True),
        ("list", "/e"): ("x", "y"),
        ("glob", "/f*"): ("/f1",),
        ("link", "/g"): "/h",
        ("exists", "/i"): False,
        ("run", "lspci", "-t"): Output(1, "out", "err"),
        ("query", "statvfs:/"): {"size_bytes": 1, "list": [1, None]},
        ("query", "nothing"): None,
    }
    save(answers, "node", tmp_path / "h.tar.zst")

    host = SnapshotHost(tmp_path / "h.tar.zst")

    assert (host.name, host.read("/a"), host.read_bytes("/b", sample=2)) == (
        "node",
        "text\n",
        b"\x00\xff\x10",
    )
    assert (host.read("/c").reason, host.read("/c").absent, host.read("/d").absent) == (
        "/c: Permission denied",
        False,
        True,
    )
    assert (host.list("/e"), host.glob("/f*"), host.link("/g"), host.exists("/i")) == (
        ("x", "y"),
        ("/f1",),
        "/h",
        False,
    )
    assert host.run(("lspci", "-t")) == Output(1, "out", "err")
    assert (host.query("statvfs:/"), host.query("nothing")) == ({"size_bytes": 1, "list": [1, None]}, None)
    assert host.read("/never").reason == "/never 1: not recorded in this snapshot"
    assert host.glob("/never*") == ()


def _stored(tmp_path, answers, *, names=None):
    path = tmp_path / "h.tar.zst"
    save(answers, "bignode01", path, names=names)
    data = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(path.read_bytes())).read()
    return data.decode("utf-8", "replace")


def test_no_secret_and_no_identifier_is_stored(tmp_path):
    environ = (
        b"HF_TOKEN=hf_abcdefghijklmnopqrstuvwx\0NCCL_DEBUG=INFO\0VLLM_API_KEY=topsecret1\0HOME=/home/ann\0"
    )
    inner = DictHost(
        {
            "/proc/7/environ": environ.decode(),
            "/proc/7/cmdline": "vllm\0serve\0--api-key\0topsecret2\0--max-num-batched-tokens\x008192\0",
            "/sys/class/net/eth0/address": "b8:59:9f:12:34:56\n",
            "/sys/class/dmi/id/product_serial": "SN12345678\n",
            "/etc/x": "url=http://ann:topsecret3@proxy:80 root=UUID=11111111-2222-3333-4444-555555555555\n",
        },
        runs={
            "nvidia-smi -q": "    Serial Number : 1650321004321\n"
            "    GPU UUID : GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee\n"
        },
        queries={"nvml": {"gpus": [{"serial": "1650321004321", "name": "X"}]}},
    )
    host = RecordingHost(inner)
    for path in inner.files:
        host.read(path)
    host.run(("nvidia-smi", "-q"))
    host.query("nvml")

    text = _stored(tmp_path, host.answers)

    for secret in (
        "hf_abc",
        "topsecret",
        "/home/ann",
        "12:34:56",
        "SN12345678",
        "1650321004321",
        "bbbb-cccc",
        "2222-3333",
    ):
        assert secret not in text
    for kept in ("NCCL_DEBUG=INFO", "8192", "b8:59:9f:", '"name": "X"'):
        assert kept in text


def test_names_go_when_asked(tmp_path):
    answers = {("read", "/x", "1"): b"Linux bignode01 6.8 ann@bignode01 /home/annabel annex\n"}

    text = _stored(tmp_path, answers, names=Names("bignode01.example.org", ("annabel", "ann")))

    assert "bignode01" not in text and "annabel" not in text
    assert json.loads(text[text.index('{\n "schema"') : text.index("}") + 1])["host"] == "host"
    assert "annex" in text  # a word is not a name because it starts like one


def test_a_snapshot_is_told_from_other_compressed_files(tmp_path):
    save({}, "n", tmp_path / "a")
    (tmp_path / "b").write_bytes(zstandard.ZstdCompressor().compress(b"hello"))
    (tmp_path / "c").write_bytes(b"\x28\xb5\x2f\xfdgarbage")
    (tmp_path / "d").write_text("text", encoding="utf-8")

    assert [is_snapshot(tmp_path / name) for name in "abcd"] == [True, False, False, False]


def _archive(path, members):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    path.write_bytes(zstandard.ZstdCompressor().compress(data.getvalue()))


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ([], Corrupt),
        ([("manifest.json", b"{}"), ("answers.jsonl", b"")], Corrupt),
        ([("manifest.json", b"[]"), ("answers.jsonl", b"")], Corrupt),
        ([("manifest.json", b"not json"), ("answers.jsonl", b"")], Corrupt),
        ([("manifest.json", b'{"schema": 9}'), ("answers.jsonl", b"")], BadInput),
        ([("manifest.json", b'{"schema": 1, "sha256": "0", "host": "x"}'), ("answers.jsonl", b"x")], Corrupt),
        ([("../manifest.json", b"{}"), ("/etc/answers.jsonl", b"")], Corrupt),
        ([("manifest.json", b"[" * 100_000), ("answers.jsonl", b"")], Corrupt),
    ],
)
def test_what_is_not_a_whole_snapshot_is_refused_in_a_sentence(tmp_path, members, error):
    _archive(tmp_path / "x", members)

    with pytest.raises(error):
        SnapshotHost(tmp_path / "x")


def test_a_cut_or_garbled_file_is_refused(tmp_path):
    save({("read", "/a", "1"): b"x" * 10_000}, "n", tmp_path / "a")
    whole = (tmp_path / "a").read_bytes()
    (tmp_path / "cut").write_bytes(whole[:-20])
    (tmp_path / "garbled").write_bytes(whole[:30] + bytes(20) + whole[50:])

    for name in ("cut", "garbled"):
        with pytest.raises((Corrupt, BadInput)):
            SnapshotHost(tmp_path / name)


def test_a_snapshot_that_cannot_be_written_leaves_the_old_one(tmp_path):
    with pytest.raises(BadInput, match="no snapshot was stored"):
        save({}, "n", tmp_path / "missing" / "h.tar.zst")
    assert list(tmp_path.iterdir()) == []
