"""scikit-learn estimators over the engines: on-line back-propagation, one image, one weight update.

From the same prepared images, seed and settings `fit` trains to the same bits as the commands do
(`make table1`, `make cnn`); it keeps the last epoch, where these choose one. An estimator holds
parameters and arrays alone: threads and a GPU's memory are taken in `fit`, `partial_fit` and
`predict`, and given back there.
"""

import math
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from operator import index
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data
from tqdm import tqdm

from cnn_gpu.engines import make_engine as make_conv_engine
from cnn_gpu.layers import Maps
from cnn_gpu.network import ConvNetwork
from deepbig_runtime import gpu
from deform_gpu import Deformation
from deform_gpu.checks import check_integer
from deform_gpu.epochs import deformer
from mlp_gpu.engine import WINDOW, Engine
from mlp_gpu.engines import choose_engine, make_engine
from mlp_gpu.network import Network
from mlp_gpu.training import Schedule, checked_tick, image_order

MOST_CLASSES = 256  # labels are uint8
SATURATED = 12.0  # root mean square of activations: for half of these tanh has hardly a slope


@contextmanager
def _restored_on_failure(estimator: BaseEstimator) -> Iterator[None]:
    """Restore all attributes if the training inside fails or is interrupted."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


class _OnlineClassifier(ClassifierMixin, BaseEstimator):
    """The training and the prediction of both estimators.

    Attributes after `fit`: classes_, the labels in order; network_, the net with its weights;
    n_iter_, the number of epochs; loss_, the mean cross-entropy of the last one, in nats.
    """

    epochs: int
    eta: float
    decay: float
    eta_min: float
    deformation: Deformation | None
    engine: str
    seed: int
    verbose: bool
    classes_: np.ndarray
    network_: Any  # a Network or a ConvNetwork
    n_iter_: int
    loss_: float

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        """Train a new net for `epochs` epochs.

        X: see the class; float32 in C order is used without a copy, others are copied to it. y:
        (n,) labels of 2 to 256 classes, numbers or strings. Raises ValueError for arrays or
        parameters that do not fit, mlp_gpu.training.Diverged if the loss is not finite any more,
        deepbig_runtime.faults.GpuFault if `engine` is "cuda" without a usable GPU, or a GPU fails.
        """
        with _restored_on_failure(self):
            self._train(X, y, None, is_new=True, epochs=self.epochs)
        return self

    def partial_fit(self, X: np.ndarray, y: np.ndarray, classes: np.ndarray | None = None) -> Self:
        """Train for one epoch more; the first call makes the net.

        classes: of the first call, all labels that y will ever have; None: those it has now. The
        other parameters and the errors are those of `fit`.
        """
        with _restored_on_failure(self):
            self._train(X, y, classes, is_new=not hasattr(self, "network_"), epochs=1)
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Class probabilities, float32 (n, classes), in the order of `classes_`.

        Raises ValueError for an X that the net does not take, and GpuFault as `fit`.
        """
        check_is_fitted(self)
        images = self._checked_images(X, is_new=False)
        engine = self._make_engine(self._engine_name())
        engine.set_network(self.network_)
        return engine.predict(images)

    def predict(self, X: np.ndarray) -> np.ndarray:
        """The label of the highest probability, (n,)."""
        outputs = self.predict_proba(X)
        return self.classes_[outputs.argmax(axis=1)]

    @abstractmethod
    def _checked_images(self, X: np.ndarray, is_new: bool) -> np.ndarray:
        """X as float32 in C order. is_new: whether it decides the shape of the net's inputs."""

    @abstractmethod
    def _initial(self, images: np.ndarray, n_classes: int) -> Network | ConvNetwork:
        """The net before its first step."""

    @abstractmethod
    def _make_engine(self, name: str) -> Engine:
        """The engine of that name."""

    @abstractmethod
    def _as_pictures(self, images: np.ndarray) -> np.ndarray:
        """Images as (n, side, side) or (n, side, side, maps), to deform them."""

    def _train(
        self, X: np.ndarray, y: np.ndarray, classes: np.ndarray | None, is_new: bool, epochs: int
    ) -> None:
        schedule = self._schedule()
        images = self._checked_images(X, is_new)
        labels = self._checked_labels(y, len(images), classes, is_new)
        network = self._initial(images, len(self.classes_)) if is_new else self.network_
        if is_new:
            self._warn_if_saturated(images, network)
        done = 0 if is_new else self.n_iter_
        name = self._engine_name()
        engine = self._make_engine(name)
        engine.set_network(network)
        images_of = self._deformer(images, labels, done + epochs, name)
        with tqdm(total=epochs * len(labels), unit="image", disable=not self.verbose) as bar:
            for epoch in range(done + 1, done + epochs + 1):
                eta = schedule.eta_of(epoch)
                order = image_order(len(labels), self.seed, epoch)
                tick = checked_tick(epoch, eta, len(order), bar.update)
                loss = engine.train(images_of(epoch), labels, order, eta, tick)
                bar.set_postfix(epoch=epoch, loss=f"{loss:.4f}")
        self.network_, self.n_iter_, self.loss_ = engine.get_network(), done + epochs, loss

    def _warn_if_saturated(self, images: np.ndarray, network: Any) -> None:
        """Warn if most units of the first layer saturate before any step."""
        first = next(W for W in network.weights if W is not None)
        mean_square = np.vdot(images, images) / images.size  # makes no copy of the images
        if np.sqrt(np.square(first).sum(axis=0).max() * mean_square) > SATURATED:
            warnings.warn(
                f"inputs are as large as {abs(images).max():g}, so that most units of the first "
                "layer saturate before the first step and the net may learn nothing; scale X, for "
                "example with sklearn.preprocessing.MinMaxScaler((-1, 1))",
                ConvergenceWarning,
                stacklevel=4,  # where `fit` is called
            )

    def _schedule(self) -> Schedule:
        check_integer("epochs", self.epochs, 1, 2**32 - 1)
        if not (0 < self.eta < math.inf and 0 < self.decay <= 1 and 0 <= self.eta_min < math.inf):
            raise ValueError(
                f"eta {self.eta}, decay {self.decay}, eta_min {self.eta_min}: expected an eta "
                "above 0, a decay above 0 and up to 1, an eta_min from 0, all finite"
            )
        check_integer("seed", self.seed, 0, 2**64 - 1)
        return Schedule(self.epochs, self.eta, self.decay, self.eta_min)

    def _engine_name(self) -> str:
        return choose_engine(self.engine, gpu.missing, warnings.warn)

    def _checked_labels(
        self, y: np.ndarray, n: int, classes: np.ndarray | None, is_new: bool
    ) -> np.ndarray:
        """The place of each label in `classes_`, uint8 (n,). is_new: whether to set `classes_`."""
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        y = column_or_1d(y, warn=True)
        check_array(y, dtype=None, ensure_2d=False, input_name="y")  # finite
        check_classification_targets(y)
        if len(y) != n:
            raise ValueError(f"{len(y)} labels for {n} images; expected one each")
        if is_new:
            found = np.unique(y if classes is None else classes)
            if not 2 <= len(found) <= MOST_CLASSES:
                raise ValueError(
                    f"expected 2 to {MOST_CLASSES} classes, found {len(found)} "
                    f"class{'' if len(found) == 1 else 'es'}"
                )
            self.classes_ = found
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(
                f"classes are {self.classes_.tolist()} since the first call; keep them"
            )
        places = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        if unknown := set(y[self.classes_[places] != y].tolist()):
            raise ValueError(f"y has the label {min(unknown)!r}, which is not among the classes")
        return places.astype(np.uint8)

    def _deformer(self, images: np.ndarray, labels: np.ndarray, epochs: int, name: str) -> Any:
        """See `deform_gpu.epochs.deformer`. epochs: the last one."""
        if self.deformation is None:
            return lambda epoch: images
        pictures = self._as_pictures(images)
        digits = self.classes_[labels]  # whose angles may differ
        device = name if pictures.ndim == 3 else "cpu"
        return deformer(pictures, digits, self.deformation, self.seed, epochs, device)


class OnlineMLPClassifier(_OnlineClassifier):
    """A multi-layer perceptron: scaled tanh, softmax, weights uniform in [-0.05, 0.05] (2010).

    Its X is (n, features), or images (n, side, side), best scaled to [-1, 1].

    hidden: neurons of each hidden layer. epochs: times that each image is learnt. eta, decay,
    eta_min: learning rate of an epoch, eta decay^(epoch - 1), but at least eta_min. deformation: a
    deform_gpu.Deformation of square images, anew for each epoch; None: none. engine: "cpu", "cuda",
    or "auto", a GPU where one can be used. seed: 0..2**64 - 1, of weights, orders and deformations;
    scikit-learn's ensembles do not set it, so their members differ only by their images. verbose:
    whether to show progress. Attributes: those of both estimators, and n_features_in_.
    """

    def __init__(
        self,
        hidden: tuple[int, ...] = (100,),
        *,
        epochs: int = 30,
        eta: float = 0.01,
        decay: float = 0.95,
        eta_min: float = 1e-6,
        deformation: Deformation | None = None,
        engine: str = "auto",
        seed: int = 0,
        verbose: bool = False,
    ):
        self.hidden = hidden
        self.epochs = epochs
        self.eta = eta
        self.decay = decay
        self.eta_min = eta_min
        self.deformation = deformation
        self.engine = engine
        self.seed = seed
        self.verbose = verbose

    def _checked_images(self, X: np.ndarray, is_new: bool) -> np.ndarray:
        if getattr(X, "ndim", 2) == 3:
            height, width = X.shape[1:]
            if self.deformation is not None and height != width:
                raise ValueError(
                    f"images are {height}x{width}; expected squares, which alone can be deformed, "
                    "or deformation=None"
                )
            X = X.reshape(len(X), -1)
        return validate_data(self, X, reset=is_new, dtype=np.float32, order="C")

    def _initial(self, images: np.ndarray, n_classes: int) -> Network:
        try:
            hidden = tuple(map(index, self.hidden))
        except TypeError:
            raise ValueError(
                f"hidden is {self.hidden!r}; expected a number of neurons for each hidden layer, "
                "such as (100,)"
            ) from None
        return Network.initial((images.shape[1], *hidden, n_classes), self.seed)

    def _make_engine(self, name: str) -> Engine:
        return make_engine(name, WINDOW)

    def _as_pictures(self, images: np.ndarray) -> np.ndarray:
        side = math.isqrt(images.shape[1])
        if side * side != images.shape[1]:
            raise ValueError(
                f"{images.shape[1]} features are no square image, which alone can be deformed; "
                "expected a square number of them, or deformation=None"
            )
        return images.reshape(-1, side, side)


class OnlineCNNClassifier(_OnlineClassifier):
    """A convolutional net of 2011, such as layers="20M5s1-60M5s1c50%-150N".

    Its X is images, (n, height, width) or (n, height, width, channels), best scaled to [-1, 1].

    layers: the hidden layers, as `cnn_gpu.layers` describes them. The other parameters are those of
    `OnlineMLPClassifier`; images of several channels are deformed on the CPU, their channels alike.
    Attributes: those of both estimators.
    """

    def __init__(
        self,
        layers: str = "20M5-MP2-100N",
        *,
        epochs: int = 30,
        eta: float = 0.01,
        decay: float = 0.95,
        eta_min: float = 1e-6,
        deformation: Deformation | None = None,
        engine: str = "auto",
        seed: int = 0,
        verbose: bool = False,
    ):
        self.layers = layers
        self.epochs = epochs
        self.eta = eta
        self.decay = decay
        self.eta_min = eta_min
        self.deformation = deformation
        self.engine = engine
        self.seed = seed
        self.verbose = verbose

    def _checked_images(self, X: np.ndarray, is_new: bool) -> np.ndarray:
        images = check_array(X, dtype=np.float32, order="C", ensure_2d=False, allow_nd=True)
        if images.ndim not in (3, 4):
            raise ValueError(
                f"X has the shape {images.shape}; expected (n, height, width) or "
                "(n, height, width, channels)"
            )
        if not is_new and _maps(images) != self.network_.source:
            raise ValueError(f"images are {_maps(images)}; the net takes {self.network_.source}")
        return images

    def _initial(self, images: np.ndarray, n_classes: int) -> ConvNetwork:
        return ConvNetwork.initial(self.layers, _maps(images), n_classes, self.seed)

    def _make_engine(self, name: str) -> Engine:
        return make_conv_engine(name)

    def _as_pictures(self, images: np.ndarray) -> np.ndarray:
        return images


def _maps(images: np.ndarray) -> Maps:
    height, width, *channels = images.shape[1:]
    return Maps(channels[0] if channels else 1, height, width)
