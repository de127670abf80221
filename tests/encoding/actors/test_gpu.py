"""A cluster with GPUs whose ONNX Runtime has no GPU provider is an error, not a slow job."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import ray

from lsr_prod.encoding.actors.actor import EncoderActor, ModelSettings, check_gpu_nodes, require_gpu_runtime
from lsr_prod.errors import ConfigError
from tests.encoding.actors.test_pool import block, wave
from tests.encoding.poison_encoder import poison_factory

_JOB = """
import sys
import ray
from lsr_prod.jobs.encode import encode
ray.init(address="local", num_cpus=1, num_gpus=1, include_dashboard=False, log_to_driver=False)
sys.exit(encode.run(sys.argv[1:]))
"""


@pytest.mark.long
def test_auto_provider_on_gpu_nodes_with_cpu_runtime_is_refused(tmp_path: Path, tiny_bundle: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"_id": "a", "text": "a fox"}\n')
    config = {
        "source": {"paths": [str(tmp_path / "c.jsonl")]},
        "encode": {"bundle": str(tiny_bundle), "table": str(tmp_path / "table")},
    }
    (tmp_path / "d.yaml").write_text(json.dumps(config))
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    environment |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    command = [sys.executable, "-c", _JOB, "--config", str(tmp_path / "d.yaml")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2, done.stderr
    line = done.stderr.splitlines()[-1]
    assert line.startswith("lsr-prod encode: encode.provider: auto: node ")
    assert "install onnxruntime-gpu in place of onnxruntime" in line
    assert "or set it to cpu" in line
    assert not (tmp_path / "table").exists()


def test_nodes_are_checked_once_each_and_the_message_names_one(ray_local: None) -> None:
    node = ray.nodes()[0]
    with pytest.raises(ConfigError, match=rf"encode\.provider: cuda: node {node['NodeManagerAddress']}"):
        check_gpu_nodes("cuda", (node["NodeID"], node["NodeID"]))


def test_actor_on_a_node_that_joined_later_refuses_the_cpu(tmp_path: Path) -> None:
    actor = EncoderActor(ModelSettings(poison_factory(), 10, 10, gpu_provider="auto"))
    with pytest.raises(ConfigError, match=r"encode\.provider: auto"):
        actor.encode(wave(tmp_path), {}, ray.get(block(0, ["fox"])), isolated=False)


def test_runtime_with_a_gpu_provider_is_accepted() -> None:
    for provider, available in (
        ("auto", ["TensorrtExecutionProvider", "CPUExecutionProvider"]),
        ("auto", ["CUDAExecutionProvider", "CPUExecutionProvider"]),
        ("cuda", ["CUDAExecutionProvider", "CPUExecutionProvider"]),
    ):
        require_gpu_runtime(provider, available)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="has only CUDAExecutionProvider"):
        require_gpu_runtime("tensorrt", ["CUDAExecutionProvider"])
