"""Benchmarks: what is timed, the peers beside it, and the rows of what came of it."""
