"""Each drawing by its name; of each kernel the drawn thread, the arrays, and the idea."""

from collections.abc import Callable
from functools import partial
from itertools import groupby

from matplotlib.figure import Figure

from deform_gpu.field import KERNEL
from deform_gpu.kernels import tiles
from experiments.drawing import hand_drawings
from experiments.drawing.thread_drawing import View, plot_threads
from mlp_gpu.kernels import backward
from mlp_gpu.ladder.net import SIDE
from mlp_gpu.ladder.rung7_one_kernel import KEPT

# Labels of axes.
INPUT, NEURON, CLASS, PIXEL, PART = "input (0: bias)", "neuron", "class", "pixel", "part of the sum"
IMAGE, OF_BLOCK, ROW, COLUMN = "image", "image of the block", "row", "column"
ELEMENT, MAPS, IN, HIDDEN, OUT = (
    "yy yx y1 xy xx x1",
    "row; map by map",
    "input",
    "hidden neuron",
    "output neuron",
)
# Parts that are drawn of larger arrays: the first row and column, and the ones after the last.
FIELD, SQUARE, TILE = (0, 0, 50, 50), (0, 0, 32, 32), (56, 56, 136, 136)
FORWARD, BACKWARD, WINDOW = (0, 128, 32, 192), (32, 64, 64, 128), (32, 128, 64, 192)

VIEWS = (
    View("pick_image h write", (1, 0), (110, 0), "", PIXEL),
    View("forward_partial W read", (0, 1), (100, 0), INPUT, NEURON, step=10),
    View("forward_partial partial write", (0, 1), (100, 0), PART, NEURON),
    View("forward_reduce partial read", (3, 0), (4, 0), PART, NEURON, step=1),
    View("forward_reduce y write", (3, 0), (4, 0), "", NEURON),
    View("output_delta partial read", (0, 0), (4, 0), PART, CLASS, step=3),
    View("delta_partial W read", (3, 1), (4, 0), INPUT, NEURON, step=10),
    View("delta_partial shared0 read", (3, 1), (4, 0), ROW, COLUMN, 10, backward.STRIDE),
    View("delta_reduce partial read", (0, 0), (4, 0), PART, INPUT, step=3),
    View("update_weights W write", (0, 2), (100, 0), INPUT, NEURON, step=5),
    View("update_weights W read", (0, 2), (100, 0), INPUT, NEURON, 5, region=(32, 96, 64, 128)),
    View("softmax_rows Y write", (1, 0), (10, 0), IMAGE, CLASS, region=(120, 0, 150, 10)),
    View("forward_batch Y write", (1, 1), (37, 0), IMAGE, NEURON, region=TILE),
    View("forward_tensor_batch Y write", (1, 1), (37, 0), IMAGE, NEURON, region=TILE),
    View("draw_matrices matrices write", (0, 0), (100, 0), IMAGE, ELEMENT, 0, 6, (96, 0, 136, 6)),
    # Of fields the y axis, which comes first.
    View("fill_field field write", (0, 1), (12, 3), ROW, COLUMN, region=FIELD),
    View("convolve_columns field read", (0, 1), (12, 5), ROW, COLUMN, region=FIELD),
    View("convolve_rows sums read", (0, 1), (12, 5), ROW, COLUMN, region=(0, 0, 30, 50)),
    View("warp_images out write", (0, 1), (12, 3), ROW, COLUMN),
    View("deform_tiles shared0 read", (0, 0), (70, 0), "row: y, then x", COLUMN, 0, tiles.REGION),
    View("convolve_field field read", (1, 1), (6, 3), ROW, COLUMN),
    View("convolve_field shared1 read", (1, 1), (6, 3), ROW, COLUMN, 0, KERNEL),
    View("forward_products W read", (2, 0), (37, 0), INPUT, NEURON),
    View("forward_products partial write", (2, 0), (37, 0), IMAGE, NEURON, region=FORWARD),
    View("backward_products W read", (1, 1), (37, 0), INPUT, NEURON),
    View("backward_products partial write", (1, 1), (37, 0), IMAGE, INPUT, region=BACKWARD),
    View("forward_tensor_products W read", (2, 0), (37, 0), INPUT, NEURON),
    View("forward_tensor_products partial write", (2, 0), (37, 0), IMAGE, NEURON, region=FORWARD),
    View("backward_tensor_products W read", (1, 1), (37, 0), INPUT, NEURON),
    View("backward_tensor_products partial write", (1, 1), (37, 0), IMAGE, INPUT, region=BACKWARD),
    View("forward_states H_next write", (2, 1), (37, 0), OF_BLOCK, NEURON, region=WINDOW),
    View("forward_states D read", (2, 1), (37, 0), OF_BLOCK, NEURON),
    View("backward_deltas D write", (1, 2), (37, 0), OF_BLOCK, NEURON, region=BACKWARD),
    View("backward_deltas H read", (1, 2), (37, 0), OF_BLOCK, NEURON),
    View("update_weights_of_block W write", (1, 1), (37, 0), INPUT, NEURON, region=TILE),
    View("update_weights_of_block D read", (1, 1), (37, 0), OF_BLOCK, NEURON),
    View("update_tensor_products W write", (1, 1), (37, 0), INPUT, NEURON, region=TILE),
    View("update_tensor_products D read", (1, 1), (37, 0), OF_BLOCK, NEURON),
    View("forward_tensor_sums H_next write", (2, 0), (37, 0), OF_BLOCK, NEURON, region=WINDOW),
    View("forward_tensor_sums D read", (2, 0), (37, 0), OF_BLOCK, NEURON),
    View("backward_tensor_sums D write", (1, 0), (37, 0), OF_BLOCK, NEURON, region=BACKWARD),
    View("backward_tensor_sums H read", (1, 0), (37, 0), OF_BLOCK, NEURON),
    View("gather_images H write", (0, 4), (110, 0), OF_BLOCK, INPUT),
    View("output_deltas D write", (0, 11), (5, 0), OF_BLOCK, CLASS, region=(32, 0, 64, 32)),
    View("slide_window changes read", (0, 0), (41, 0), "change; delta", "image of the window"),
    View("next_block progress write", (0, 0), (0, 0), "", "number of progress"),
    View("convolve_maps h read", (0, 0), (5, 4), MAPS, COLUMN),
    View("pull_deltas delta read", (0, 0), (13, 12), MAPS, COLUMN),
    View("adjust_weights h read", (1, 0), (3, 1), MAPS, COLUMN),
    View("pool_maps h read", (1, 0), (7, 2), MAPS, COLUMN),
    View("unpool_deltas winners read", (0, 0), (15, 5), MAPS, COLUMN),
    View("process_maps h read", (1, 0), (9, 4), MAPS, COLUMN),
    View("rows_to_maps rows read", (1, 0), (9, 4), ROW, COLUMN, 0, 50),
    View("maps_to_rows rows write", (1, 0), (9, 4), ROW, COLUMN, 0, 50),
    View("forward_naive W1 read", (0, 0), (5, 0), HIDDEN, IN, 11, region=SQUARE),
    View("deltas_naive W2 read", (0, 0), (5, 0), OUT, HIDDEN, 4, region=(0, 0, 10, 40)),
    View("update_hidden_naive W1 write", (0, 0), (5, 0), HIDDEN, IN, region=SQUARE),
    View("update_outputs_naive W2 write", (0, 0), (5, 0), OUT, HIDDEN, region=(0, 0, 10, 40)),
    View("forward_tiled W1 read", (0, 0), (21, 0), HIDDEN, IN, region=(0, 0, 32, 24)),
    View("forward_coalesced W1 read", (0, 0), (5, 0), IN, HIDDEN, 11, region=SQUARE),
    View("deltas_coalesced W2 read", (0, 0), (5, 0), HIDDEN, OUT, 4, region=(0, 0, 32, 10)),
    View("update_hidden_coalesced W1 write", (0, 0), (5, 0), IN, HIDDEN, region=SQUARE),
    View("update_outputs_coalesced W2 write", (0, 0), (5, 0), HIDDEN, OUT, region=(0, 0, 32, 10)),
    View("forward_shared images read", (0, 0), (5, 0), ROW, COLUMN, 0, SIDE),
    View("deltas_shared W2 read", (0, 0), (5, 0), HIDDEN, OUT, 4, region=(0, 0, 32, 10)),
    View("update_hidden_shared W1 write", (0, 0), (5, 0), IN, HIDDEN, region=SQUARE),
    View("update_outputs_shared W2 write", (0, 0), (5, 0), HIDDEN, OUT, region=(0, 0, 32, 10)),
    View("train_chunk W1 read", (0, 0), (5, 0), IN, HIDDEN, KEPT + 1, region=(0, 0, 48, 32)),
)

IDEAS = {
    "pick_image": "a thread copies a pixel of the next image",
    "forward_partial": "a thread walks down 32 rows of W (2010, Listing 2)",
    "forward_reduce": "a thread adds up the partial sums of a neuron (2010, Listing 2)",
    "output_delta": "one warp; a thread adds up the partial sums of a class",
    "delta_partial": "a thread copies down a column, then sums along a row (2010, Listing 3)",
    "delta_reduce": "a thread adds up the partial sums of an input (2010, Listing 3)",
    "update_weights": "a thread reads 16 weights, then writes them (2010, Listing 4)",
    "softmax_rows": "a thread takes the outputs of an image",
    "forward_batch": "a block makes 64 x 64 states, a thread 4 x 4 of them",
    "forward_tensor_batch": "as forward_batch, on tensor cores",
    "draw_matrices": "a thread draws the affine matrix of an image",
    "fill_field": "a thread draws two cells of each random field",
    "convolve_columns": "a thread reads 21 cells of a column of each field",
    "convolve_rows": "a thread reads 21 sums of a row of each field",
    "warp_images": "a thread interpolates a pixel",
    "deform_tiles": "a thread sums down columns of the field, in shared memory",
    "convolve_field": "a block copies 30 x 21 cells; a thread sums a strip (2010, Listing 1)",
    "forward_products": "a block has 64 columns of W, a thread sums 4 x 4 products",
    "backward_products": "a block has 64 rows of W, a thread sums 4 x 4 products",
    "forward_tensor_products": "a block has 64 columns of W, a thread part of its warp's tile",
    "backward_tensor_products": "a block has 64 rows of W, a thread part of its warp's tile",
    "forward_states": "a thread corrects two states by the deltas of the images before",
    "backward_deltas": "a thread corrects two deltas by the states of the images before",
    "update_weights_of_block": "a thread updates 4 x 4 weights by the deltas of all images",
    "update_tensor_products": "a warp updates 32 x 32 weights by the deltas of all images",
    "forward_tensor_sums": "a warp corrects 16 x 16 states by the deltas of the images before",
    "backward_tensor_sums": "a warp corrects 16 x 16 deltas by the states of the images before",
    "gather_images": "a block copies an image of the next block of images",
    "output_deltas": "a warp takes an image of the window, a thread a class",
    "slide_window": "a thread reads the largest change and delta of an image of the window",
    "next_block": "one thread sets the numbers of progress anew",
    "convolve_maps": "a thread reads a patch of each map (2011, FP)",
    "pull_deltas": "a thread pulls the deltas of the neurons that read its own (2011, BP)",
    "adjust_weights": "a thread reads all states that its weight multiplies (2011, AW)",
    "pool_maps": "a thread looks for the largest of a rectangle",
    "unpool_deltas": "a thread asks whether its neuron was the largest",
    "process_maps": "a thread reads a patch of the image",
    "rows_to_maps": "a thread copies a neuron from a row to a map",
    "maps_to_rows": "a thread copies a neuron from a map to a row",
    "forward_naive": "a thread walks along a row, its neighbours along theirs",
    "deltas_naive": "a thread walks down a column of W2",
    "update_hidden_naive": "a thread updates a weight; its neighbours are rows apart",
    "update_outputs_naive": "a thread updates a weight; its neighbours are rows apart",
    "forward_tiled": "a block copies 8 columns at a time to shared memory",
    "forward_coalesced": "a thread walks down a column; its warp reads side by side",
    "deltas_coalesced": "a thread walks along a row of W2, 40 bytes from the next",
    "update_hidden_coalesced": "a thread updates a weight; its neighbours are beside it",
    "update_outputs_coalesced": "a thread updates a weight; its neighbours are beside it",
    "forward_shared": "a block copies the image to shared memory",
    "deltas_shared": "as deltas_coalesced; the other factor is in shared memory",
    "update_hidden_shared": "as update_hidden_coalesced; rates are constants",
    "update_outputs_shared": "as update_outputs_coalesced; rates are constants",
    "train_chunk": "four threads share a neuron, for a chunk of images",
}

DRAWINGS: dict[str, Callable[[], Figure]] = {
    **{
        f"threads_{kernel}": partial(plot_threads, f"{kernel}: {IDEAS[kernel]}", list(views))
        for kernel, views in groupby(VIEWS, lambda view: view.name.split()[0])
    },
    "block_of_images": hand_drawings.plot_block,
    "vector_tile": hand_drawings.plot_vector_tiles,
}
