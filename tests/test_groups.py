"""Tests of one group run on one worker: those that change this host must not run beside each other."""

import os

import pytest


@pytest.mark.xdist_group("groups")
@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="pytest runs without workers (-n)")
def test_the_runner_heeds_groups(request):
    assert request.node.nodeid.endswith("@groups")
