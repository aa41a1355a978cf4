"""timing/report.py: measurements become rows of bench.csv, and such rows tables."""

from dataclasses import replace

import numpy as np
import pytest
from measurements import gpu_measurements, measurement, net_measurement

from experiments.timing import report as timing_report
from experiments.timing.measurement import CopyTimes, Measurement


def test_row_of_a_kernel():
    found = timing_report.row(
        Measurement(
            group="kernel",
            name="some_kernel",
            state="warm",
            us=np.array([1.0, 2, 3, 4, 5, 6, 7]),
            n_bytes=8000,
            copy=CopyTimes(us=np.array([0.5, 0.5, 0.5, 1, 1, 1, 1]), n_bytes=2000),
            paper_gb_per_second=115,
        )
    )
    assert list(found) == list(timing_report.COLUMNS)
    assert (found["us_p20"], found["us"], found["us_p80"]) == pytest.approx((2.2, 4, 5.8))
    assert found["repeats"] == 7
    assert found["gb_a_second"] == pytest.approx(2)  # 8,000 bytes in 4 us
    assert found["copy_gb_a_second"] == pytest.approx(2)  # 2,000 bytes in 1 us
    # Median of 1/2, 1/4, 1/6, 1/4, 1/5, 1/6, 1/7: 1/5 of the time, for 4 times the bytes.
    assert found["percent_of_copy"] == pytest.approx(100 * 4 / 5)
    assert found["paper_gb_a_second"] == 115
    for name in ("images_a_second", "updates_a_second", "times_cpu", "tflop_a_second", "net"):
        assert found[name] is None


def test_row_of_a_net():
    one = measurement(20.0, group="net", name="engine", n_images=1, n_weights=3000)
    found = timing_report.row(replace(one, cpu_engine_us=np.array([70, 80, 90.0])))
    assert found["images_a_second"] == pytest.approx(50_000)
    assert found["updates_a_second"] == pytest.approx(1.5e8)
    assert found["times_cpu"] == pytest.approx(4)
    assert found["gb_a_second"] is found["percent_of_copy"] is None
    assert timing_report.row(one)["updates_a_second"] is None


def test_row_of_an_evaluation():
    one = measurement(250.0, group="evaluation", name="batch", n_images=4096, flops=5e9)
    found = timing_report.row(one)
    assert found["images_a_second"] == pytest.approx(4096 * 4000)
    assert found["tflop_a_second"] == pytest.approx(20)


def test_net_table_has_the_papers_figures_above_ours():
    measurements = [
        net_measurement("engine cpu", 300.0, n_bytes=3_000_000),
        measurement(5.0, group="net", net=1, name="scaled copy", ran_on="it"),
        measurement(10.0, group="deformation", name="deform", n_images=1),
    ]
    lines = timing_report.net_table([timing_report.row(one) for one in measurements])
    assert lines[0]["1e9 updates/s"] == "up to 5"
    assert lines[0]["speedup over CPU"] == "40"
    assert lines[1]["engine"] == "2012, GTX 480"
    assert lines[1]["1e9 updates/s"] == "up to 7.5"
    assert lines[1]["speedup over CPU"] == "50"
    assert lines[2] == {
        "net": "1",
        "engine": "engine cpu",
        "us per image (p20-p80)": "300.0 (300.0-300.0)",
        "images/s": "3,333",
        "1e9 updates/s": "4.49",
        "speedup over CPU": "1.00",
        "GB/s": "10.0",
        "% of copy": "",
        "device": "a chip",
    }
    assert lines[3]["us per image (p20-p80)"] == ""
    assert len(lines) == 4


def test_deform_table_has_the_papers_figures_above_ours():
    measurements = [
        measurement(us, group="deformation", name=name, n_images=1, ran_on="it")
        for name, us in (("CPU, 1 thread", 20.0), ("scipy recipe", 400.0), ("GPU", 0.05))
    ]
    measurements.append(net_measurement("engine cpu", 300.0))
    lines = timing_report.deform_table([timing_report.row(one) for one in measurements])
    assert len(lines) == 6 + 3
    assert lines[1] == {
        "method": "2010, convolution on a GPU",
        "60,000 images (p20-p80)": "9 s",
        "images/s": "6,667",
        "speedup over SciPy recipe": "",
        "device": "the paper",
    }
    assert lines[6] == {
        "method": "CPU, 1 thread",
        "60,000 images (p20-p80)": "1.2 s (1.2 s-1.2 s)",
        "images/s": "50,000",
        "speedup over SciPy recipe": "20.0",
        "device": "it",
    }
    assert lines[7]["speedup over SciPy recipe"] == "1.0"
    assert lines[8]["60,000 images (p20-p80)"] == "3 ms (3 ms-3 ms)"
    assert lines[8]["images/s"] == "20,000,000"
    without = timing_report.deform_table([timing_report.row(measurements[2])])
    assert without[6]["speedup over SciPy recipe"] == ""


def test_kernel_tables_have_both_states_in_a_line():
    found = [timing_report.row(one) for one in gpu_measurements()]
    kernels = timing_report.kernel_table(found, nets=(1, 4))
    evaluation = timing_report.evaluation_table(found)
    assert len(kernels) == 3
    floor = kernels[0]
    assert (floor["kernel"], floor["layer"], floor["MB"]) == ("empty kernel", "", "")
    assert floor["cold: us (p20-p80)"] == "2.75 (2.75-2.75)"
    assert kernels[2] == {
        "net": "4",
        "layer": "1: 841 x 1000",
        "kernel": "forward_partial",
        "MB": "3.400",
        "paper GB/s": "115",
        "warm: us (p20-p80)": "2.00 (2.00-2.00)",
        "warm: GB/s": "1,700",
        "warm: copy GB/s": "3,400",
        "warm: % of copy": "50",
        "cold: us (p20-p80)": "4.00 (4.00-4.00)",
        "cold: GB/s": "850",
        "cold: copy GB/s": "3,400",
        "cold: % of copy": "25",
    }
    assert len(evaluation) == 6
    assert evaluation[0]["TFLOP/s"] == "5000.00"
    assert evaluation[0]["images/s"] == "2,048,000,000"
