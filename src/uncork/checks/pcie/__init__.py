"""PCIe devices, links and switches."""
