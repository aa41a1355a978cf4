"""Benchmarks: measurements, baselines, tables of them; and checks of a GPU."""
