"""NCCL and peer-to-peer."""
