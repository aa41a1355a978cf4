"""The record of training in blocks, experiments.blocks, as Markdown."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from experiments.results.tables import source_line
from experiments.training.formatting import markdown_table
from experiments.training.provenance import Source
from experiments.training.validation import Count, Number, Text
from mlp_gpu.network import NETS

# The ways to make the same steps that a record has distances of.
PLAIN, ENGINE = "plain float32 loop", "CPU engine"
# Images of a window, and of a block.
WINDOWS = {
    f"window of {window}, B = {block}": (window, block) for window, block in ((16, 64), (32, 128))
}


class BlockRow(Struct, forbid_unknown_fields=True):
    """A net from where it was compared.

    trained_on: number of images it was trained on before. distances: of the weights from those of
    float64, relative to how far these moved, by the names of methods. sweeps_per_image: how often
    a window's images went forward and backward, by the names of WINDOWS.
    """

    sizes: Annotated[tuple[Annotated[int, Meta(ge=1, le=10**6)], ...], Meta(min_length=2)]
    trained_on: Count
    eta: Number
    steps: Count
    distances: dict[str, Number]
    sweeps_per_image: dict[str, Number]


class BlockRecord(Struct, forbid_unknown_fields=True, kw_only=True):
    """The record of experiments.blocks."""

    data: Text
    seed: Count
    rows: Annotated[list[BlockRow], Meta(min_length=1)]
    provenance: Source


def net_name(sizes: Sequence[int]) -> str:
    """What a net is called: its number in Table 1, or its layers."""
    numbers = [number for number, own in NETS.items() if own == tuple(sizes)]
    return f"net {numbers[0]}" if numbers else "-".join(map(str, sizes))


def distance_table(rows: Sequence[BlockRow]) -> list[dict[str, str]]:
    """A line for each net, stage and learning rate: distances from float64, and sweeps."""
    lines = []
    for row in rows:
        trained_on = row.trained_on
        line = {
            "net": net_name(row.sizes),
            "trained before on": f"{trained_on:,} images" if trained_on else "nothing",
            "eta": f"{row.eta:g}",
            "steps": str(row.steps),
        }
        line |= {name: f"{row.distances[name]:.1e}" for name in (PLAIN, ENGINE, *WINDOWS)}
        sweeps = " / ".join(f"{row.sweeps_per_image[name]:.1f}" for name in WINDOWS)
        lines.append(line | {"sweeps of the two windows": sweeps})
    return lines


def tables(record: BlockRecord) -> str:
    """What a record says, with where it comes from."""
    source = source_line(record.provenance.columns())
    heading = f"{record.data}, deformed, seed {record.seed}; {source}:"
    return f"{heading}\n\n{markdown_table(distance_table(record.rows))}"
