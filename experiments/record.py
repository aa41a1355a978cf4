"""Record the results of finished runs: a small file each, in results/<device>/.

The record of a run, a JSON file, has its configuration, its provenance and its metrics of every
epoch; the record of a committee or a study is a copy of its table, a CSV file. Only finished runs
of a committed source tree count; with --unfinished stopped ones too, which the tables mark as such.
`python -m experiments.readme` makes the tables.
"""

import re
from pathlib import Path

from deepbig_runtime import files
from deepbig_runtime.errors import Problem
from experiments.results import tables
from experiments.results.records import (
    COMMITTEES,
    STUDIES,
    read_committee,
    read_record,
    read_rows,
    read_text,
)
from experiments.results.rows import CommitteeRow, StudyRow, rows_text
from experiments.training import cli, provenance
from experiments.training.store import read_run, without_weights
from experiments.training.validation import to_json


def check_traced(what: str, commits: str) -> None:
    """Raise Problem unless the sources of a result are those of a commit, and say why."""
    if provenance.UNKNOWN in commits:
        raise Problem(
            f"{what} was trained where git did not know the commit of the sources, so its numbers "
            "cannot be traced; clone it with git, or, if another user owns the clone, run "
            f"{provenance.TRUST}; then train again in another folder"
        )
    if not provenance.is_traced(commits):
        raise Problem(
            f"{what} was trained by a source tree with uncommitted changes, or by an installed "
            "package, so its numbers cannot be traced; commit, then train again in another folder"
        )


def keep(content: bytes, target: Path) -> Path:
    """Write a record; returns where."""
    files.make_folder(target.parent)
    files.replace(target, content)
    return target


def write_record(path: Path, unfinished: bool = False) -> Path:
    """Write the record of the run file at `path`; returns where.

    unfinished: whether a run counts that is not finished. Raises Problem if the run does not count,
    files.FileFault if a file cannot be read or written.
    """
    run = read_run(path)
    if not (run.finished or unfinished):
        raise Problem(
            f"{path} has {run.epochs} of {run.config.epochs} epochs: only a finished run "
            "counts; the command that began it goes on with it, --unfinished records it as it is"
        )
    check_traced(f"{path}", tables.run_source(run).commit)
    folder = provenance.device_folder(run.provenance[-1].device)
    target = folder / f"{path.absolute().parent.name}-{path.stem}.json"
    if target.exists():
        earlier = read_record(target)
        if earlier.config != run.config:
            raise Problem(
                f"{target} is the record of a run with another configuration; rename the folder of "
                f"{path}, which the record is named after, or move that file away"
            )
        if earlier.epochs > run.epochs:
            raise Problem(
                f"{target} has {earlier.epochs} epochs of the same run, {path} only {run.epochs}: "
                "train on, or move that file away"
            )
    return keep(to_json(run.to_builtins()), target)


def write_committee(path: Path) -> Path:
    """Keep the table of a committee at `path`; returns where.

    Raises Problem if it does not count, files.FileFault if a file cannot be read or written.
    """
    rows = read_committee(path)
    name = rows[0].experiment
    if not re.fullmatch(COMMITTEES, name):
        raise Problem(f"{path} is of a committee called {name}, which the README has no table for")
    for row in rows:
        if not row.finished:
            raise Problem(f"{path}: {row.member} is not trained to its end, so it does not count")
        check_traced(f"{path}: {row.member}", row.source.commit)
    folder = provenance.device_folder(rows[-1].source.device)
    target = folder / f"{path.absolute().parent.name}-{name}.csv"
    if re.fullmatch(STUDIES, target.name):
        raise Problem(f"{path} is in a folder named as those of studies; rename the folder")
    if target.exists() and settings(read_committee(target)) != settings(rows):
        raise Problem(
            f"{target} is the record of a committee with other members, seeds or schedule; rename "
            f"the folder of {path}, which the record is named after, or move that file away"
        )
    return keep(read_text(path).encode(), target)


def write_study(path: Path) -> Path:
    """Keep the table of a study at `path`; returns where. Nets that it lacks stay on record.

    Raises Problem if it does not count, files.FileFault if a file cannot be read or written.
    """
    rows = read_rows(path, StudyRow)
    for row in rows:
        check_traced(f"{path}: {row.setting}, seed {row.seed}", row.source.commit)
    name = f"{path.absolute().parent.name}.csv"
    if not re.fullmatch(STUDIES, name):
        raise Problem(f"{path} is in a folder that is not named study...; rename the folder")
    target = provenance.device_folder(rows[0].source.device) / name
    before = read_rows(target, StudyRow) if target.exists() else []
    kinds = {
        (row.layers, row.n_validation, row.validation_part, row.images_an_epoch)
        for row in (*before, *rows)
    }
    if len(kinds) > 1:
        raise Problem(
            f"{target} would have nets of several sizes, or with other images held out, which one "
            f"table cannot tell apart; rename the folder of {path}, which the record is named after"
        )
    nets = set(map(_net_of, rows))
    rows = [row for row in before if _net_of(row) not in nets] + rows
    return keep(rows_text(rows).encode(), target)


def _net_of(row: StudyRow) -> tuple:
    """The identity of a net among the nets of a study."""
    return row.factor, row.setting, row.seed, row.epochs


def settings(rows: list[CommitteeRow]) -> list[tuple]:
    """The settings that must be the same in two records of one committee."""
    return [
        (row.member, row.seed, row.epochs, row.images_an_epoch, row.eta, row.eta_decay)
        for row in rows
    ]


def main(argv: list[str] | None = None) -> None:
    parser = cli.Parser("record", __doc__)
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="run files, RUN.h5, and tables of committees and studies, such as experiment6.csv "
        "and study.csv",
    )
    parser.add_argument(
        "--unfinished",
        action="store_true",
        help="also record runs that were stopped before their end; they can be resumed and "
        "recorded again",
    )
    arguments = parser.parse_args(argv)
    for path in without_weights(arguments.files):
        if path.name == "study.csv":
            print(write_study(path))
        elif path.suffix == ".csv":
            print(write_committee(path))
        else:
            print(write_record(path, arguments.unfinished))


if __name__ == "__main__":
    cli.run(main)
