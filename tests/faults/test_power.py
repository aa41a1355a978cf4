"""Power cuts leave the old epoch or the new one, and a wrong way to save is found."""

import inspect

import power
import pytest
from disk import Disk

from deepbig_runtime import files, hdf5
from experiments.running import runs, store
from mlp_gpu import network


def after_a_cut(followed):
    return {tuple(sorted(state.items())) for state in followed.after_a_cut()}


def test_what_is_not_synced_may_be_lost_or_torn():
    followed = Disk({"a": b"old"})
    assert after_a_cut(followed) == {(("a", b"old"),)}
    followed.create("a.tmp")
    followed.write("a.tmp", b"new")
    names = {"", "n", "ne", "new", "\0\0\0", "n\0\0", "ne\0", "\0ew", "\0\0w"}
    expected = {(("a", b"old"), ("a.tmp", name.encode())) for name in names}
    assert after_a_cut(followed) <= expected | {(("a", b"old"),)}
    assert {(("a", b"old"),), (("a", b"old"), ("a.tmp", b"n\0\0"))} <= after_a_cut(followed)
    followed.rename("a.tmp", "a")
    assert (("a", b"\0ew"),) in after_a_cut(followed)
    followed.sync("a")
    followed.sync_folder()
    assert after_a_cut(followed) == {(("a", b"new"),)}


def check(folder, scenario="middle"):
    """Returns the number of states, all of which hold."""
    run = power.SmallRun(folder)
    n_states = run.record(scenario)
    run.check()
    return n_states


@pytest.mark.parametrize("scenario", power.SCENARIOS)
def test_every_state_after_a_cut_is_the_old_epoch_or_the_new(scenario, tmp_path, tried):
    tried(check(tmp_path, scenario))


@pytest.mark.parametrize(
    ("good", "bad", "complaint"),
    [
        ("os.fsync(file.fileno())", "pass", "damaged|begin with"),
        ("os.fsync(folder)", "pass", "do not belong together|expected 2"),
        ("temporary = path.with", "temporary = path or path.with", "damaged|begin with"),
    ],
)
def test_a_file_that_is_replaced_carelessly_is_found(good, bad, complaint, tmp_path, monkeypatch):
    source = inspect.getsource(files.replace)
    assert good in source
    names = dict(vars(files))
    exec(source.replace(good, bad), names)
    monkeypatch.setattr(hdf5, "replace", names["replace"])
    with pytest.raises(AssertionError, match=complaint):
        check(tmp_path)


def test_two_files_in_the_wrong_order_are_found(tmp_path, monkeypatch):
    def save(path, run, latest, chosen):
        attributes = {"config": run.config.to_json(), "epoch": run.epochs}
        network.save(store.weights_path(path), {"latest": latest, "chosen": chosen}, attributes)
        store.write_run(path, run)

    monkeypatch.setattr(runs, "_save", save)
    with pytest.raises(AssertionError, match="do not belong together"):
        check(tmp_path)


def test_an_epoch_that_is_not_done_again_is_found(tmp_path, monkeypatch):
    """The weights of the epoch before, taken for those of the run file's epoch."""
    resume = runs.resume

    def careless(path, config, *rest):
        run, latest, chosen = resume(path, config, *rest)
        if run.epochs == 1 and path.exists():
            latest = chosen = runs.nets.initial(config)
        return run, latest, chosen

    monkeypatch.setattr(runs, "resume", careless)
    with pytest.raises(AssertionError, match="other bits"):
        check(tmp_path)
