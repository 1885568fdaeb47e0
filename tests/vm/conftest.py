import pytest
from tests.vm import machine


@pytest.fixture(scope="session")
def bootable():
    reason = machine.missing()
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def guest(bootable):
    vm = machine.Machine().start()
    yield vm
    vm.close()
