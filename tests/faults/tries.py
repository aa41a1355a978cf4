"""How much the tests of faults try: a little among all tests, a lot in a campaign."""

import os

import hypothesis

# The record that a campaign writes, and the number that all random choices come from.
RECORD = os.environ.get("CAMPAIGN")
SEED = int(os.environ.get("CAMPAIGN_SEED") or 0)


def tries(quick, long):
    """How many of two numbers of tries to make."""
    return long if RECORD else quick


def fuzz(quick, long):
    """A decorator that has hypothesis make so many examples."""
    settings = hypothesis.settings(
        max_examples=tries(quick, long),
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    return lambda test: hypothesis.seed(SEED)(settings(test))
