"""What every test needs: each process of the runner stands for a host of its own, with a lock of its own."""

import atexit
import os
import shutil
import tempfile

from hypothesis import HealthCheck, settings

os.environ["UNCORK_RUN"] = tempfile.mkdtemp(prefix="uncork-tests-run-")
atexit.register(shutil.rmtree, os.environ["UNCORK_RUN"], ignore_errors=True)

# How busy a machine is must not fail a test.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
