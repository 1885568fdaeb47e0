"""No text makes a parser raise or hang: random bytes, cut, shuffled and spliced lines of real tools."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from uncork.host.attached import plain
from uncork.host.derived import from_bare_value, from_kind
from uncork.host.kinds import classify
from uncork.host.pieces import pieces
from uncork.parsers import (
    collect_env,
    container_text,
    cpu,
    dmesg,
    engine_command,
    engine_log,
    environment,
    fabricmanager,
    ip_addr,
    limits,
    lspci,
    lspci_tree,
    modprobe,
    nccl_log,
    nccl_tests,
    nccl_topo,
    nvidia_smi,
    nvlink,
    p2p_test,
    packages,
    rocm,
    statements,
    topo,
    ucx,
)

PARSERS = (
    *(collect_env.parse, container_text.parse, cpu.parse_lscpu, dmesg.parse),
    *(engine_command.parse, engine_log.parse, environment.parse, fabricmanager.parse),
    *(
        ip_addr.parse,
        limits.parse,
        lambda text: limits.parse(text, "ulimit -l"),
        lspci.parse,
        lspci_tree.parse,
    ),
    *(modprobe.parse, nccl_log.parse, nccl_tests.parse, nccl_topo.parse),
    *(
        nvidia_smi.parse,
        nvidia_smi.parse_q,
        nvidia_smi.parse_xml,
        nvidia_smi.parse_table,
        nvidia_smi.parse_csv,
    ),
    *(nvlink.parse, nvlink.query_times_s, p2p_test.parse, packages.parse, rocm.parse),
    statements.parse,
    *(topo.parse, ucx.parse, classify, lambda text: list(pieces("file", text))),
)

# A line of each tool, from which texts are spliced; digits and signs are then disturbed.
LINES = tuple((Path(__file__).parent / "lines.txt").read_text(encoding="utf-8").split("\n")[:-1])


@st.composite
def texts(draw):
    """Lines of real tools in any order, some cut, some with characters replaced, some all noise."""
    lines = draw(st.lists(st.one_of(st.sampled_from(LINES), st.text(max_size=60)), max_size=40))
    text = "\n".join(lines)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(text)))
        text = (
            text[:at]
            + draw(st.sampled_from(["", "9" * 40, ".", "..", "-", "\t", "\x1b[0m", "\ufffd", "²", "٣", ":"]))
            + text[at + 1 :]
        )
    return text[: draw(st.integers(0, 4000))] if draw(st.booleans()) else text


@settings(max_examples=150, deadline=None)
@given(texts())
def test_no_text_makes_a_parser_raise(text):
    for parse in PARSERS:
        parse(text)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=2000))
def test_no_bytes_make_a_parser_raise(data):
    text = plain(data)

    for parse in PARSERS:
        parse(text)


@settings(max_examples=60, deadline=None)
@given(texts())
def test_what_is_recognised_can_be_given_back_as_files(text):
    for kind, part in classify(text).items():
        for path, content in from_kind(kind, part):
            assert path.startswith("/") and isinstance(content, str)
    assert all(path.startswith("/") for path, _ in from_bare_value("cpu.max", text))


@settings(max_examples=60, deadline=None)
@given(texts())
def test_splitting_by_kind_loses_no_line(text):
    kept = "\n".join(classify(text).values())

    assert {line for line in text.split("\n") if line.strip()} <= set(kept.split("\n"))
