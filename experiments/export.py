"""Export a run: as CSV files, or its net alone.

--csv writes RUN.metrics.csv, a row per epoch, and RUN.outputs.csv, a row per test digit, with the
class probabilities at the chosen epoch: p0, p1 and so on, of data of your own p and the class's
name. --net writes RUN.safetensors, the weights
at the chosen epoch in one small file: as float16 if that changes no answer on the test digits; a
message reports it. Files of an earlier export are replaced.
"""

from collections import Counter
from pathlib import Path

import numpy as np
from msgspec.structs import asdict

from deepbig_runtime import files
from deepbig_runtime.errors import Problem, tell
from experiments.results import trained
from experiments.training import cli, configs, net_files, nets, runs, store
from experiments.training.formatting import csv_text, output_cells
from experiments.training.nets import AnyNetwork
from experiments.training.store import Run


def metrics_rows(run: Run) -> list[dict]:
    """A row per epoch: its metrics, and its two errors in percent."""
    columns = asdict(run.metrics)
    for part, n in (("validation", run.config.n_validation), ("test", run.config.data.n_test)):
        columns[f"{part}_percent"] = [100 * errors / n for errors in columns[f"{part}_errors"]]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def outputs_rows(run: Run) -> list[dict]:
    """A row per test digit: its index, label, most likely class, and all class probabilities."""
    names = run.config.class_names
    digits = enumerate(zip(run.labels.tolist(), run.outputs, strict=True))
    return [
        {"index": k, "label": names[label]} | output_cells(p, names) for k, (label, p) in digits
    ]


def write_csv(stem: Path, run: Run) -> list[Path]:
    """Write the two CSV files; returns their paths. Raises files.FileFault if that fails.

    stem: their path up to the endings; its folder is made. Numbers read back to the same bits.
    """
    files.make_folder(stem.parent)
    written = []
    for ending, rows in (("metrics", metrics_rows(run)), ("outputs", outputs_rows(run))):
        path = stem.with_name(f"{stem.name}.{ending}.csv")
        files.replace(path, csv_text(rows).encode())
        written.append(path)
    return written


def write_net(
    path: Path, run: Run, run_path: Path, data_dir: Path | None, in_parts: bool = False
) -> list[Path]:
    """Write a run's net at its chosen epoch as a net file at `path`. Prints a description.

    run_path: the run's file, beside which its weights are. in_parts: as of `net_files.write`.
    Returns the paths written. Raises Problem if the files do not belong together or the run was
    tested on other data, files.FileFault if a file cannot be read or written.
    """
    dataset = configs.load(run.config, data_dir)
    prepared = configs.prepare(dataset, run.config)
    run = store.read_run(run_path)  # anew: a training may have saved meanwhile
    network = runs.load_weights(run_path, run)["chosen"]

    def answers(network: AnyNetwork) -> np.ndarray:
        return nets.predictor(run.config, network).predict(prepared.test_images).argmax(axis=1)

    half, n = False, len(prepared.test_images)
    try:
        changed = np.count_nonzero(answers(net_files.halved(network)) != answers(network))
    except ValueError:
        why = "one is too large for float16"
    else:
        half, why = changed == 0, f"float16 changes {changed} of {n:,} answers on test digits"
    files.make_folder(path.parent)
    written = net_files.write(path, trained.of_run(run, network), half, in_parts)
    n_bytes = sum(part.stat().st_size for part in written)
    tell(
        f"{path.name}: {run.config.title}, epoch {run.chosen}, {n_bytes:,} "
        f"bytes; weights as {'float16' if half else 'float32'}, for {why}"
    )
    return written


def main(argv: list[str] | None = None) -> None:
    parser = cli.Parser("export", __doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN.h5", help="run files")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="write two CSV files per run")
    form.add_argument(
        "--net",
        action="store_true",
        help="write the net of the chosen epoch, RUN.safetensors (default)",
    )
    parser.add_argument(
        "--parts",
        action="store_true",
        help=f"cut a larger RUN.safetensors into parts of at most {net_files.PART_BYTES // 10**6} "
        "MB, RUN.safetensors.1of2 and so on; the name of any part stands for the net",
    )
    cli.add_data_dir_argument(parser)
    cli.add_out_argument(parser, "folder to write in (default: that of the run file)")
    arguments = parser.parse_args(argv)
    if arguments.csv and arguments.parts:
        parser.error("argument --parts: not allowed with argument --csv")
    arguments.runs = store.without_weights(arguments.runs)
    stems = [(arguments.out or path.parent) / path.stem for path in arguments.runs]
    stem, n = Counter(stems).most_common(1)[0]
    if n > 1:
        raise Problem(
            f"{n} runs would be written to {stem}: export them one by one, with another --out"
        )
    found = [store.read_run(path) for path in arguments.runs]  # before anything is written
    for stem, path, run in zip(stems, arguments.runs, found, strict=True):
        if arguments.csv:
            written = write_csv(stem, run)
        else:
            target = stem.with_name(stem.name + net_files.SUFFIX)
            written = write_net(target, run, path, arguments.data_dir, arguments.parts)
        for target in written:
            print(target)


if __name__ == "__main__":
    cli.run(main)
