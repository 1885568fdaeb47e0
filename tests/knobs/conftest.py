import pytest
from tests.knobs.fakekernel import FakeKernel, FakePci

from uncork.knobs import knobs_at


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    return FakeKernel(tmp_path).install(monkeypatch)


@pytest.fixture
def knobs(kernel):
    return knobs_at(str(kernel.root))


@pytest.fixture
def pci(kernel):
    return FakePci(kernel)
