"""PCI functions from lspci's text: whole, fragments, and a drawing alone."""

import pytest

from uncork.audit import judge
from uncork.explorers import explore, pci_text
from uncork.host.attached import AttachedHost
from uncork.host.recording import RecordingHost
from uncork.model.unknown import is_unknown

DRAWING = r"""-[0000:00]-+-00.0  Advanced Micro Devices, Inc. [AMD] Raphael/Granite Ridge Root Complex
           +-01.1-[01]--+-00.0  NVIDIA Corporation AD102 [GeForce RTX 4090]
           |            \-00.1  NVIDIA Corporation AD102 High Definition Audio Controller
           +-02.1-[02-0f]----00.0-[03-0f]--+-00.0-[04]--+-00.0  NVIDIA Corporation AD102 [GeForce RTX 4090]
           |                               |            \-00.1  NVIDIA Corporation AD102 High Definition Audio
           |                               \-0c.0-[0d]----00.0  Advanced Micro Devices, Inc. [AMD] 600 Series Chipset
           \-18.0  Advanced Micro Devices, Inc. [AMD] Raphael Data Fabric
"""
CARD = "01:00.0 VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] (rev a1)\n"


@pytest.fixture
def answers(tmp_path):
    def of(**files: str) -> dict[tuple[str, str], str]:
        for name, text in files.items():
            (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
        found = judge(explore(RecordingHost(AttachedHost([tmp_path]))).facts)
        return {(result.id, result.subject): str(result.answer) for result in found}

    return of


def test_a_drawing_shows_the_card_behind_the_chipset(answers):
    found = answers(tree=DRAWING)

    assert found["pcie.gpu-behind-chipset", "0000:04:00.0"] == "fail"
    assert found["pcie.gpu-behind-chipset", "0000:01:00.0"] == "pass"


def test_lost_lanes_in_a_fragment(answers):
    found = answers(
        lspci=CARD + "\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1\n"
        "\t\tLnkSta:\tSpeed 16GT/s, Width x4 (downgraded)\n"
    )

    assert found["pcie.link-width", "0000:01:00.0"] == "fail"


def test_a_low_speed_without_load_is_not_judged(answers):
    found = answers(lspci="\t\tLnkSta: Speed 2.5GT/s (downgraded), Width x16\n")

    assert {answer for (id, _), answer in found.items() if id == "pcie.link-speed"} == {"unknown"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ACSCtl: SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-", {"fail"}),
        ("ACSCtl: SrcValid+ TransBlk- ReqRedir- CmpltRedir- UpstreamFwd+ EgressCtrl- DirectTrans-", {"pass"}),
    ],
)
def test_redirect_bits_decide_and_others_do_not(answers, line, expected):
    found = answers(lspci=f"\t\t{line}\n")

    assert {answer for (id, _), answer in found.items() if id == "pcie.acs-redirect"} == expected


def test_a_topology_of_nccl_alone_gives_devices_and_nodes_and_no_links(tmp_path):
    (tmp_path / "topo.xml").write_text(
        '<system version="1">\n  <cpu numaid="1" arch="x86_64">\n'
        '    <pci busid="ffff:ff:01.0" class="0x060400" link_speed="16 GT/s" link_width="16">\n'
        '      <pci busid="0003:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>\n'
        '      <pci busid="0103:00:00.0" class="0x020700" link_speed="16 GT/s" link_width="16"/>\n'
        "    </pci>\n  </cpu>\n</system>\n"
    )

    found, tree_known = pci_text.devices(AttachedHost([tmp_path]))

    assert [(one.bdf, one.kind, one.numa_node) for one in found] == [
        ("0003:00:00.0", "gpu", 1),
        ("0103:00:00.0", "nic", 1),
    ]
    assert not tree_known
    assert all(is_unknown(one.speed_gt_s) and is_unknown(one.path) for one in found)
