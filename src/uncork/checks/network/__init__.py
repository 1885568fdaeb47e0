"""Network and RDMA."""
