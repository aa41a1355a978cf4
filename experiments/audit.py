"""Look up whether flaws are known of the versions in requirements.lock, with pip-audit.

Asks the database of the package index, over the network. Prints what is known; the exit status is
then 1.
"""

import json
import subprocess
import sys
from importlib.util import find_spec

from experiments.running import cli
from experiments.running.errors import Problem
from experiments.running.formatting import plural
from experiments.running.provenance import REPOSITORY

LOCK = REPOSITORY / "requirements.lock"
OPTIONS = ("--format", "json", "--progress-spinner", "off", "--require-hashes", "--disable-pip")


def look_up() -> list[dict]:
    """What pip-audit says of each package: name, version and vulns.

    Raises Problem if pip-audit is not installed, or if the database did not answer for all.
    """
    if find_spec("pip_audit") is None:
        raise Problem("pip-audit is not installed: pip install -e '.[audit]'")
    command = [sys.executable, "-m", "pip_audit", *OPTIONS, "--requirement", str(LOCK)]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        why = (done.stderr.strip().splitlines() or ["pip-audit says nothing"])[-1]
        raise Problem(f"the database of flaws cannot be reached, try again later: {why}") from None
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if skipped or not packages:
        raise Problem(
            f"the database of flaws answered for {len(packages) - len(skipped)} of "
            f"{plural(len(packages), 'package')} only, so nothing is known; try again where the "
            "package index itself can be reached"
        )
    return packages


def main(argv: list[str] | None = None) -> int:
    cli.Parser("audit", __doc__).parse_args(argv)
    packages = look_up()
    flaws = 0
    for package in packages:
        for flaw in package["vulns"]:
            flaws += 1
            mended = ", ".join(flaw["fix_versions"]) or "no version yet"
            print(f"{package['name']} {package['version']}: {flaw['id']}, mended in {mended}")
    print(f"{plural(flaws, 'known flaw')} in {plural(len(packages), 'package')} of {LOCK.name}")
    return 1 if flaws else 0


if __name__ == "__main__":
    cli.run(main)
