"""Private API of Ray that lsr_prod uses: each test fails if an upgrade of Ray changes what the code relies on."""

import ast
import inspect
from collections import defaultdict
from pathlib import Path

import ray

from lsr_prod.cluster.address import serve_variables

ROOT = Path(__file__).parents[2]

PRIVATE_IMPORTS = {
    "ray._private.state.state",
    "ray._common.tls_utils.add_port_to_grpc_server",
    "ray._private.node.Node",
    "ray._private.ray_constants",
    "ray._raylet.Config",
    "ray._raylet.PlacementGroupID",
    "ray.serve._private.controller",
    "ray.serve._private.haproxy",
    "ray.serve._private.haproxy_templates.HAPROXY_CONFIG_TEMPLATE",
    "ray.serve._private.proxy_state.ProxyStateManager",
    "ray.serve._private.replica",
    "ray.train.v2._internal.callbacks.datasets.DatasetsCallback",
    "ray.train.v2._internal.callbacks.placement_group_callback.PlacementGroupCleanerCallback",
}


def private_imports() -> dict[str, set[str]]:
    """Return the files of lsr_prod that import each private name of Ray."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in ROOT.glob("lsr_prod*/**/*.py"):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if "ray." in source else ():
            names: list[str] = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                if name.startswith("ray.") and "._" in name:
                    found[name].add(str(path.relative_to(ROOT)))
    return found


def test_private_names_of_ray_are_imported_in_one_file_each():
    found = private_imports()
    assert found.keys() == PRIVATE_IMPORTS, "move a new use of private API into one module and test it here"
    assert all(len(files) == 1 for files in found.values()), found


def test_trainer_builds_its_callbacks_in_an_overridable_method_that_adds_the_cleaner_and_the_datasets():
    from ray.train.v2._internal.callbacks.datasets import DatasetsCallback
    from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    assert list(inspect.signature(DataParallelTrainer._create_default_callbacks).parameters) == ["self"]
    source = inspect.getsource(DataParallelTrainer)
    assert "self._create_default_callbacks()" in source
    assert f"{PlacementGroupCleanerCallback.__name__}()" in source
    assert f"{DatasetsCallback.__name__}(" in source


def test_trainer_registers_its_sigint_handler_in_an_overridable_method():
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    assert list(inspect.signature(DataParallelTrainer._register_sigint_handler).parameters) == ["self", "controller"]
    assert "self._register_sigint_handler(controller)" in inspect.getsource(DataParallelTrainer)


def test_trainer_of_ray_train_is_the_version_2_trainer_with_its_result():
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
    from ray.train.v2.api.result import Result

    assert inspect.signature(DataParallelTrainer.fit).return_annotation in (Result, "Result")


def test_checkpoints_of_ray_train_have_the_names_that_resumption_reads():
    from ray.train.v2._internal.constants import CHECKPOINT_MANAGER_SNAPSHOT_FILENAME
    from ray.train.v2._internal.execution import storage
    from ray.train.v2._internal.execution.checkpoint import checkpoint_manager

    from lsr_prod.training.loop.result import CHECKPOINT_LIST, CHECKPOINT_PREFIX

    assert CHECKPOINT_MANAGER_SNAPSHOT_FILENAME == CHECKPOINT_LIST
    assert f'return f"{CHECKPOINT_PREFIX}{{' in inspect.getsource(storage)
    source = inspect.getsource(checkpoint_manager)
    assert "checkpoint_dir_name: str" in source
    assert "checkpoint_results: List" in source


def test_placement_group_is_built_from_an_id_in_hex(ray_local: None):
    from ray._raylet import PlacementGroupID
    from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group

    group = placement_group([{"CPU": 0.01}])
    ray.get(group.ready())
    job = ray.get_runtime_context().get_job_id()
    (name,) = [name for name, found in placement_group_table().items() if found["state"] != "REMOVED"]
    assert name.endswith(job)
    assert name == group.id.hex()
    remove_placement_group(PlacementGroup(PlacementGroupID(bytes.fromhex(name))))
    assert placement_group_table()[name]["state"] == "REMOVED"


def test_serve_replica_opens_its_grpc_port_with_the_function_that_we_replace():
    from ray._common.tls_utils import add_port_to_grpc_server
    from ray.serve._private import replica

    assert list(inspect.signature(add_port_to_grpc_server).parameters) == ["server", "address"]
    assert inspect.getsource(replica).count("add_port_to_grpc_server(") == 1


def test_controller_of_serve_starts_the_haproxy_that_we_replace():
    from ray.serve._private import controller, haproxy
    from ray.serve._private.proxy_state import ProxyStateManager

    assert inspect.getsource(controller).count("HAProxyManager") > 1  # imported and used by this name
    assert inspect.getsource(ProxyStateManager).count("self._start_fallback_proxy_if_needed(") > 0
    manager = haproxy.HAProxyManager.__ray_metadata__.modified_class
    assert list(inspect.signature(manager._target_to_server).parameters)[:2] == ["self", "target"]
    assert inspect.iscoroutinefunction(manager.shutdown)
    fields = inspect.signature(haproxy.HAProxyConfig).parameters
    assert fields.keys() >= {"maxconn", "timeout_http_request_s", "error_file_path", "socket_path", "balance_algorithm"}
    assert "HAPROXY_CONFIG_TEMPLATE" in inspect.getsource(haproxy.HAProxyApi)


def test_serve_replica_starts_its_http_server_with_the_function_that_we_replace():
    from ray.serve._private import replica

    assert inspect.getsource(replica).count("await start_asgi_http_server(") > 0


def test_environment_variables_that_we_set_are_read_by_ray():
    from ray._private import ray_constants
    from ray._private.accelerators import RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO_ENV_VAR
    from ray.serve._private import constants as serve_constants
    from ray.train.v2._internal import constants as train_constants

    assert ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR == "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    assert RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO_ENV_VAR == "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"
    assert train_constants.COLLECTIVE_TIMEOUT_S_ENV_VAR == "RAY_TRAIN_COLLECTIVE_TIMEOUT_S"
    assert train_constants.HEALTH_CHECK_INTERVAL_S_ENV_VAR == "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"
    source = inspect.getsource(serve_constants)
    assert [name for name in serve_variables({}) if f'"{name}"' not in source] == []


def test_api_server_of_a_local_cluster_only_reports_usage():
    from ray._private import services
    from ray._private.node import Node

    assert list(inspect.signature(Node.start_api_server).parameters) == [
        "self",
        "include_dashboard",
        "raise_on_failure",
    ]
    assert "self.start_api_server(" in inspect.getsource(Node.start_head_processes)
    assert 'command.append("--modules-to-load=UsageStatsHead")' in inspect.getsource(services.start_api_server)


def test_ray_does_not_print_unhandled_errors_of_tasks_if_a_variable_is_set() -> None:
    assert '"RAY_IGNORE_UNHANDLED_ERRORS" in os.environ' in inspect.getsource(ray._private.worker.Worker.raise_errors)
