"""The job of one training, in a process that can be killed: python -m tests.faults.training.driver SETTINGS.json."""

import json
import os
import sys
from pathlib import Path

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
os.environ["HF_HUB_OFFLINE"] = "1"

from lsr_prod.config import Deployment
from lsr_prod.jobs.terminal.shell import log_to_stderr
from lsr_prod.training.chain import run_chain

if __name__ == "__main__":
    log_to_stderr()
    summary = run_chain(Deployment.model_validate(json.loads(Path(sys.argv[1]).read_text())))
    sys.stdout.write(json.dumps(summary) + "\n")
