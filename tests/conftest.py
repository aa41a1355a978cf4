"""What several test files share as fixtures."""

import pytest


@pytest.fixture(scope="session")
def cluster():
    """A real Dask cluster: a scheduler and two worker processes, which it starts anew if killed."""
    distributed = pytest.importorskip("distributed", exc_type=ImportError)
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with distributed.LocalCluster(n_workers=2, **options) as cluster:
        yield cluster
