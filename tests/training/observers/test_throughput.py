import math
import time

import pytest
import torch
from torch import nn

from lsr_prod.training.observers import throughput
from lsr_prod.training.observers.throughput import ModelWork, ThroughputMeter, known_peak, measured_peak

V = 50


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(V, 8)
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8, bias=False)
        self.head = nn.Linear(8, V)


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)


def test_model_work_is_two_operations_per_weight_and_pass() -> None:
    work = ModelWork.of(Model(), V)
    assert work == ModelWork(body=6 * (8 * 32 + 32 * 8), head=2 * 8 * V, head_active=4 * 8)
    assert work.operations(tokens=10, active=3) == 10 * (6 * 512 + 2 * 400) + 3 * 32


def test_model_work_counts_no_weight_gradient_for_frozen_weights() -> None:
    model = Model()
    model.up.weight.requires_grad_(False)
    model.head.weight.requires_grad_(False)
    assert ModelWork.of(model, V) == ModelWork(body=4 * 256 + 6 * 256, head=2 * 8 * V, head_active=2 * 8)


def test_meter_reports_rates_between_two_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    meter = ThroughputMeter(ModelWork(body=5, head=1, head_active=2), torch.device("cpu"), peak=1000.0)
    for _ in range(4):
        meter.count(documents=10, tokens=300, active=40)
        clock.now += 0.5
    with meter.paused():
        clock.now += 60
    report = meter.report()
    memory = report.pop("peak_memory_bytes")
    assert report == pytest.approx(
        {"docs_per_s": 20, "tokens_per_s": 600, "step_s": 0.5, "mfu": 4 * (6 * 300 + 2 * 40) / 2 / 1000}
    )
    assert memory is not None
    assert 10e6 < memory < 1e12, "bytes of this process"
    clock.now += 1
    meter.count(documents=1, tokens=1, active=0)
    assert meter.report()["docs_per_s"] == pytest.approx(1), "what was reported does not count again"


def test_meter_reports_none_for_unknown_peak_or_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    meter = ThroughputMeter(ModelWork(1, 1, 1), torch.device("cpu"), peak=None)
    clock.now += 1
    assert {name for name, value in meter.report().items() if value is not None} == {"peak_memory_bytes"}
    meter.count(documents=1, tokens=1, active=1)
    clock.now += 1
    report = meter.report()
    assert report["mfu"] is None
    assert report["step_s"] == pytest.approx(1)


def test_paused_propagates_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    meter = ThroughputMeter(ModelWork(1, 1, 1), torch.device("cpu"), peak=None)
    with pytest.raises(KeyError), meter.paused():
        raise KeyError


@pytest.mark.parametrize(
    ("name", "precision", "peak"),
    [
        ("NVIDIA A100-SXM4-40GB", "bf16", 312e12),
        ("NVIDIA A100 80GB PCIe", "fp32", 19.5e12),
        ("NVIDIA H100 80GB HBM3", "bf16", 989e12),
        ("NVIDIA H100 PCIe", "bf16", 756e12),
        ("NVIDIA H200", "fp32", 67e12),
        ("NVIDIA L4", "bf16", 121e12),
        ("NVIDIA L40S", "bf16", 362e12),
        ("NVIDIA L40", "bf16", None),
        ("NVIDIA A10G", "bf16", None),
        ("NVIDIA GeForce RTX 4090", "bf16", None),
    ],
)
def test_known_peak_matches_gpu_names(name: str, precision: str, peak: float | None) -> None:
    assert known_peak(name, bf16=precision == "bf16") == peak


def test_measured_peak_uses_fastest_product(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 3.0, 10.0, 12.0])  # 3 s, then 2 s
    monkeypatch.setattr(throughput.time, "perf_counter", lambda: next(times))
    assert measured_peak(bf16=False, size=10, repeats=2) == pytest.approx(2 * 10**3 / 2)


def test_measured_peak_of_this_cpu_is_finite() -> None:
    peak = measured_peak(bf16=False, size=128, repeats=2)
    assert math.isfinite(peak)
    assert peak > 1e6
