"""Benchmarks and checks of a GPU: what is timed, other libraries beside it, rows and tables."""
