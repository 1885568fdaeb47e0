"""Container, LXC and virtual machine: what hides or limits the host."""
