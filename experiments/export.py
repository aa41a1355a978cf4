"""Export a run: as CSV files, as curves for TensorBoard, or its net alone.

--csv writes RUN.metrics.csv, a row per epoch, and RUN.outputs.csv, a row per test digit, with the
class probabilities p0, p1 and so on at the chosen epoch. --tensorboard writes a folder of curves
over the epochs, RUN.tensorboard; with --out, DIR/RUN, so that 'tensorboard --logdir DIR' shows
several runs. --net writes RUN.safetensors, the weights at the chosen epoch in one small file: as
float16 if that changes no answer on the test digits; a message reports it. Files of an earlier
export are replaced.
"""

import io
import json
from collections import Counter
from datetime import datetime
from itertools import accumulate
from pathlib import Path

import numpy as np
from msgspec.structs import asdict

from deepbig_runtime import files
from deepbig_runtime.errors import Problem
from experiments.results import trained
from experiments.training import cli, configs, jobs, net_files, nets, runs, store
from experiments.training.formatting import csv_text, output_cells
from experiments.training.messages import tell
from experiments.training.nets import AnyNetwork
from experiments.training.store import Run

# Always this name, so that a second export replaces the first; TensorBoard wants 'tfevents' in it.
EVENTS = "events.out.tfevents.deepbig"

# TensorBoard's name of a curve: (column of the metrics, description)
CURVES = {
    "loss/train": ("train_loss", "mean cross-entropy over the deformed training images, nat"),
    "error/validation": ("validation_percent", "wrong among the validation images, %"),
    "error/test": ("test_percent", "wrong among the test images, %"),
    "learning_rate": ("eta", "learning rate of the epoch"),
    "seconds/deform": ("deform_seconds", "time that training waited for its deformed images, s"),
    "seconds/train": ("train_seconds", "time for the on-line steps, s"),
    "seconds/evaluate": ("evaluate_seconds", "time for validation and test, s"),
}


def metrics_rows(run: Run) -> list[dict]:
    """A row per epoch: its metrics, and its two errors in percent."""
    columns = asdict(run.metrics)
    for part, n in (("validation", run.config.n_validation), ("test", run.config.data.n_test)):
        columns[f"{part}_percent"] = [100 * errors / n for errors in columns[f"{part}_errors"]]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def outputs_rows(run: Run) -> list[dict]:
    """A row per test digit: its index, label, most likely class, and all class probabilities."""
    digits = enumerate(zip(run.labels.tolist(), run.outputs, strict=True))
    return [{"index": k, "label": label} | output_cells(p) for k, (label, p) in digits]


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


def write_tensorboard(folder: Path, run: Run) -> Path:
    """Write the curves as TensorBoard's event file in `folder`, which is made; returns the file.

    The wall time of an epoch is the start of the run plus the time of all epochs so far, as if the
    run had never been interrupted. Raises Problem if the package is not installed,
    files.FileFault if the file cannot be written.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import SummaryMetadata
        from tensorboard.plugins.text.summary_v2 import text_pb
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError as error:
        raise Problem(
            "the package tensorboard is not installed: pip install -e '.[tensorboard]'"
        ) from error
    start = datetime.fromisoformat(run.provenance[0].start).timestamp()
    config = f"```json\n{json.dumps(run.config.to_builtins(), indent=1)}\n```"  # Markdown
    events = [
        Event(wall_time=start, file_version="brain.Event:2"),
        Event(wall_time=start, summary=text_pb("config", config)),
    ]
    for row, seconds in zip(metrics_rows(run), accumulate(run.epoch_seconds), strict=True):
        event = Event(wall_time=start + seconds, step=row["epoch"])
        for tag, (column, description) in CURVES.items():
            metadata = SummaryMetadata(summary_description=description)
            event.summary.value.add(tag=tag, simple_value=row[column], metadata=metadata)
        events.append(event)
    # Not by TensorBoard's own writer, but in memory first, so that the file is whole or not there.
    content = io.BytesIO()
    writer = RecordWriter(content)
    for event in events:
        writer.write(event.SerializeToString())
    files.make_folder(folder)
    files.replace(folder / EVENTS, content.getvalue())
    return folder / EVENTS


def write_net(path: Path, run: Run, run_path: Path, data_dir: Path | None) -> Path:
    """Write a run's net at its chosen epoch as a net file at `path`. Prints what it holds.

    run_path: the run's file, beside which its weights are. Raises Problem if they do not belong
    together or the run was tested on other data, files.FileFault if a file cannot be read or
    written.
    """
    dataset = jobs.load_known(run.config, data_dir)
    prepared = configs.prepare(dataset, run.config)
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
    net_files.write(path, trained.of_run(run, network), half)
    tell(
        f"{path.name}: {run.config.title}, epoch {run.chosen}, {path.stat().st_size:,} "
        f"bytes; weights as {'float16' if half else 'float32'}, for {why}"
    )
    return path


def main(argv: list[str] | None = None) -> None:
    parser = cli.Parser("export", __doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN.h5", help="run files")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="write two CSV files per run")
    form.add_argument(
        "--tensorboard",
        action="store_true",
        help="write a folder per run for TensorBoard; needs the package tensorboard, which "
        "pip install -e '.[tensorboard]' installs",
    )
    form.add_argument(
        "--net",
        action="store_true",
        help="write the net of the chosen epoch, RUN.safetensors (default)",
    )
    cli.add_data_dir_argument(parser)
    cli.add_out_argument(parser, "folder to write in (default: that of the run file)")
    arguments = parser.parse_args(argv)
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
        elif arguments.tensorboard:
            folder = stem if arguments.out else stem.with_name(f"{stem.name}.tensorboard")
            written = [write_tensorboard(folder, run)]
        else:
            target = stem.with_name(stem.name + net_files.SUFFIX)
            written = [write_net(target, run, path, arguments.data_dir)]
        for target in written:
            print(target)


if __name__ == "__main__":
    cli.run(main)
