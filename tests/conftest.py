"""What every test needs: each process of the test runner stands for a host of its own, with its own host lock."""

import atexit
import os
import shutil
import tempfile

os.environ["UNCORK_RUN"] = tempfile.mkdtemp(prefix="uncork-tests-run-")
atexit.register(shutil.rmtree, os.environ["UNCORK_RUN"], ignore_errors=True)
