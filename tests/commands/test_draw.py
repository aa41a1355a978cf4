"""The page of `python -m experiments.draw`, and what it computes, in a browser and in Python."""

import base64
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from browser import check_page
from factories import changed
from PIL import Image

from deepbig_runtime.errors import Problem
from deform_gpu import field, warp
from experiments import draw, table1
from experiments.datasets import data
from experiments.results import trained
from experiments.training import nets, store
from experiments.training.configs import Config
from experiments.training.net_files import NetFile
from mlp_gpu.network import NETS, Network

N = 200


pytestmark = pytest.mark.usefixtures("pictures_are_for_load_digits")


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    """The run file of a small net."""
    folder = tmp_path_factory.mktemp("runs")
    options = ["--hidden", "50", "--data", "digits", "--epochs", "3", "--eta", "5e-3"]
    table1.main([*options, "--out", str(folder)])
    return store.run_files(folder)[0]


@pytest.fixture(scope="module")
def written(net):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RUNS_DIR", str(net.parent))
        draw.main(["--net", str(net)])
    return net.parent / "draw.html"


@pytest.fixture(scope="module")
def member(net):
    return draw.usable(trained.load(net))


def content(path):
    """What the page knows."""
    return json.loads(re.search(r"const DATA = (.*);", path.read_text())[1])


def visit(browser, path, work, width=1000):
    """What work(page) returns; nothing must go wrong on the page."""

    def look(page, problems):
        found = work(page)
        assert not problems
        return found

    return browser.visit(path, width, look)


def ask(browser, path, script, argument=None):
    """What a script returns on the page."""
    return visit(browser, path, lambda page: page.evaluate(script, argument))


def digits():
    """Test digits uint8 (N, 28, 28) of load_digits, enlarged."""
    small = (15 * data.load_pixels("digits").test_images[:N]).astype(np.uint8)
    return np.stack([np.asarray(Image.fromarray(x).resize((28, 28))) for x in small])


def test_the_page_holds_the_net_and_digits_that_it_gets_wrong(written, member):
    found = content(written)
    for text, W in zip(found["weights"], member.network.unpadded(), strict=True):
        weights = np.frombuffer(base64.b64decode(text), "<f2").reshape(W.shape)
        np.testing.assert_array_equal(weights, W.astype(np.float16))
    assert found["sizes"] == [841, 50, 10]
    dataset = data.load("digits")
    outputs = nets.predictor(member.config, member.network).predict(dataset.test_images)
    wrong = np.flatnonzero(outputs.argmax(axis=1) != dataset.test_labels)
    assert len(found["examples"]) == min(len(wrong), 24)
    believed = []
    for example in found["examples"]:
        pixels = np.frombuffer(base64.b64decode(example["pixels"]), np.uint8).reshape(29, 29)
        off = np.abs(dataset.test_images - (pixels / 127.5 - 1)).max(axis=(1, 2))
        k = off.argmin()
        assert off[k] < 0.01
        assert (example["label"], example["guess"]) == (dataset.test_labels[k], outputs[k].argmax())
        assert k in wrong
        believed.append(outputs[k, example["label"]])
    assert believed == sorted(believed)
    assert written.stat().st_size < 3_000_000
    assert not re.search(r"https?://|src=|href=|import ", written.read_text())


def test_a_text_cannot_end_the_script(member, monkeypatch):
    monkeypatch.setattr(Config, "title", "</script><b>")
    text = draw.page(member, [])
    assert text.count("</script>") == 1


@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_whole_in_a_browser(browser, written, width, scheme, tmp_path):
    shot = tmp_path / "page.png"
    facts = check_page(browser, written, width, shot, scheme=scheme)
    bright = (np.asarray(Image.open(shot).convert("L")) > 200).mean()
    assert bright > 0.9 if scheme == "light" else bright < 0.05
    assert [level for level, _ in facts["headings"]] == [1, 2, 2, 2, 2, 2]
    assert "841-50-10" in facts["text"]


def test_200_digits_have_the_outputs_of_python(browser, written, member):
    pixels = digits()
    found = np.array(
        ask(
            browser,
            written,
            "(all) => all.map((pixels) => Array.from(classify(to29(pixels))))",
            pixels.reshape(N, -1).tolist(),
        )
    )
    expected = trained.recognise([member], pixels)
    assert np.abs(found - expected).max() < 1e-3
    assert (found.argmax(axis=1) == expected.argmax(axis=1)).all()
    assert len(set(expected.argmax(axis=1))) > 1


def test_the_deformation_has_the_projects_formulas(browser, written):
    rng = np.random.default_rng(0)
    cells = rng.uniform(-1, 1, (2, 49, 49)).astype(np.float32)
    image = rng.uniform(-1, 1, (29, 29)).astype(np.float32)
    sigma, alpha, beta, gamma = 4.5, 30.0, 20.0, 25.0
    shifts = np.empty((2, 29, 29), np.float32)
    for out, values in zip(shifts, cells, strict=True):
        field.convolve_field(out, values, field.gaussian_weights(sigma), np.float32(alpha))
    for first in (-0.5, 0.5):  # shear, then rotation
        u = [first, 0.7, -0.3, 0.9]
        yy, yx, xy, xx = warp.inverse_affine_formula(
            *map(np.float32, (*u, beta, gamma, gamma, 0.5))
        )
        matrices = np.array([[[yy, yx, 0], [xy, xx, 0]]], np.float32)
        expected = np.empty((1, 29, 29), np.float32)
        displacement = np.zeros((2, 29, 290), np.float32)
        displacement[:, :, :29] = shifts
        warp.warp_batch(expected, image[None], matrices, displacement, 0, np.float32(-1))
        script = """([cells, image, u, sigma, alpha, beta, gamma]) => {
            const [downs, rights] = cells.map((one) => displacement(one, sigma, alpha));
            const matrix = inverseAffine(u, beta, gamma);
            const found = warp(Float32Array.from(image), matrix, downs, rights);
            return [Array.from(downs), matrix, Array.from(found)];
        }"""
        asked = [cells.reshape(2, -1).tolist(), image.ravel().tolist(), u]
        downs, matrix, found = ask(browser, written, script, [*asked, sigma, alpha, beta, gamma])
        np.testing.assert_allclose(downs, shifts[0].ravel(), atol=1e-4)
        np.testing.assert_allclose(matrix, [yy, yx, xy, xx], atol=1e-6)
        np.testing.assert_allclose(found, expected.ravel(), atol=1e-3)


def test_ink_is_centred_as_mnist_has_it(browser, written):
    """A bar, 40 x 200 pixels somewhere on the paper, with a light end."""
    paper = np.zeros((280, 280))
    paper[30:230, 200:240] = 1
    paper[30:60, 200:240] = 0.5
    script = "(ink) => Array.from(centred(Float32Array.from(ink), 280))"
    found = np.array(ask(browser, written, script, paper.ravel().tolist())).reshape(28, 28)
    rows, columns = (np.flatnonzero(found.any(axis=axis)) for axis in (1, 0))
    assert (np.ptp(rows) + 1, np.ptp(columns) + 1) == (20, 4)
    assert set(np.unique(found)) == {0, 128, 255}
    y, x = np.mgrid[:28, :28]
    assert abs((found * y).sum() / found.sum() - 14) <= 0.5
    assert abs((found * x).sum() / found.sum() - 14) <= 0.5
    empty = ask(browser, written, "() => centred(new Float32Array(280 * 280), 280)")
    assert empty is None


def drawn(page):
    """What the page says."""
    return page.evaluate(
        """() => [byId("answer").textContent, byId("deformed-answer").textContent,
        [...byId("bars").rows].map((row) => row.cells[1].textContent)]"""
    )


def test_drawing_with_the_mouse_and_with_keys(browser, written):
    def work(page):
        said = [drawn(page)]
        box = page.locator("#paper").bounding_box()
        page.mouse.move(box["x"] + 140, box["y"] + 40)
        page.mouse.down()
        page.mouse.move(box["x"] + 150, box["y"] + 240, steps=10)
        page.mouse.up()
        page.wait_for_function("() => shown !== null")
        said.append(drawn(page))
        page.locator("#clear").click()
        said.append(drawn(page))
        page.locator("#paper").focus()
        for _ in range(6):
            page.keyboard.press("ArrowUp")
        assert page.evaluate("() => shown") is None
        for _ in range(12):
            page.keyboard.press("Shift+ArrowDown")
        said.append(drawn(page))
        page.keyboard.press("Delete")
        said.append(drawn(page))
        return said

    before, mouse, cleared, keys, deleted = visit(browser, written, work)
    assert before == cleared == deleted
    assert before[0].startswith("Draw a digit")
    assert before[1] == ""
    assert set(before[2]) == {""}
    for answer, deformed, bars in (mouse, keys):
        assert re.fullmatch(r"\d, \d+\.\d %", answer)
        assert re.fullmatch(r"\d, \d+\.\d %", deformed)
        percents = [float(text.removesuffix(" %")) for text in bars]
        assert sum(percents) == pytest.approx(100, abs=0.6)
        most = max(range(10), key=percents.__getitem__)
        assert answer == f"{most}, {bars[most]}"


def test_one_finger_draws_and_others_and_other_buttons_do_not(browser, written):
    send = """([kind, options]) => paper.dispatchEvent(new PointerEvent(kind, {
        isPrimary: true, button: 0, buttons: 1, pointerId: 1, bubbles: true, ...options }))"""

    def work(page):
        box = page.locator("#paper").bounding_box()
        page.evaluate("() => { paper.setPointerCapture = () => {}; }")  # of a made-up pointer

        def do(kind, x, y, **options):
            at = {"clientX": box["x"] + x, "clientY": box["y"] + y}
            page.evaluate(send, [kind, at | options])
            page.wait_for_timeout(60)
            return page.evaluate(
                "() => pen.getImageData(0, 0, 280, 280).data.filter(Boolean).length"
            )

        ink = [do("pointerdown", 50, 50, button=2, buttons=2), do("pointermove", 90, 90)]
        ink += [do("pointerdown", 50, 50), do("pointermove", 50, 90)]
        ink += [do("pointermove", 200, 200, isPrimary=False, pointerId=2)]
        ink += [do("pointerup", 200, 200, isPrimary=False, pointerId=2)]
        ink += [do("pointermove", 50, 120)]
        ink += [do("pointermove", 60, 200, buttons=0), do("pointermove", 60, 250)]
        return ink

    right_down, right_moved, down, *rest = visit(browser, written, work)
    moved, other, lifted, more, released, later = rest
    assert right_down == right_moved == 0
    assert 0 < down < moved
    assert moved == other == lifted < more == released == later


def test_answer_is_in_view_on_a_phone_and_spoken_when_the_drawing_rests(browser, written):
    def work(page):
        spoken = "() => byId('spoken').textContent"
        page.wait_for_function(f"{spoken} !== ''")
        before = page.evaluate(spoken)
        page.locator("#examples button").first.click()
        at_once = page.evaluate(spoken)
        page.wait_for_function("() => byId('spoken').textContent.startsWith('The net says')")
        said, answers = page.evaluate(spoken), drawn(page)
        page.set_viewport_size({"width": 360, "height": 640})
        page.locator("#paper").scroll_into_view_if_needed()
        answer, paper = (page.locator(name).bounding_box() for name in ("#answer", "#paper"))
        assert paper["y"] + paper["height"] <= answer["y"]  # so that it does not cover the paper
        assert answer["y"] + answer["height"] <= 640
        page.locator("#paper").focus()
        page.keyboard.press("ArrowLeft")
        ring = page.evaluate(
            "() => [byId('ring').style.left, getComputedStyle(byId('ring')).display]"
        )
        return before, at_once, said, answers, ring

    before, at_once, said, (answer, deformed, _), ring = visit(browser, written, work, 360)
    assert before == at_once == "Draw a digit, or load one below."
    assert said == f"The net says {answer}; deformed: {deformed}"
    assert ring == ["132px", "block"]


def test_hard_digits_are_loaded_and_deformed(browser, written):
    def work(page):
        page.locator("#examples button").first.click()
        answer = page.evaluate("() => [likeliest(classify(shown)), byId('answer').textContent]")
        page.evaluate("() => { for (const id of ['alpha', 'beta', 'gamma']) byId(id).value = 0; }")
        page.locator("#sigma").fill("3")  # the page follows the sliders
        same = page.evaluate(
            "() => [byId('answer').textContent, byId('deformed-answer').textContent]"
        )
        page.locator("#alpha").fill("60")
        random = page.evaluate("() => random.affine[0]")
        page.locator("#again").click()
        assert page.evaluate("() => random.affine[0]") != random
        return answer, same, page.locator("#alpha-value").text_content()

    (guess, said), (answer, deformed), alpha = visit(browser, written, work)
    example = content(written)["examples"][0]
    assert guess == example["guess"]
    assert said.startswith(f"{guess}, ")
    assert answer == deformed  # without any strength nothing is deformed
    assert alpha == "60 pixels"


def test_what_the_page_has_no_room_for_is_refused(member):
    large = NetFile(changed(member.config, sizes=NETS[2]), 1, Network.blank(NETS[2]))
    assert draw.fits(changed(member.config, sizes=NETS[1]))
    assert not draw.fits(large.config)
    with pytest.raises(Problem, match=r"1500-1000-500-10 has 8\.8 MB, at most 8 are sensible"):
        draw.usable(large)
    own = {"name": "mine", "classes": tuple("0123456789")}
    for match, other in (
        ("prepares drawings as load_digits's digits; name the run", {"data": own}),
        ("computes perceptrons alone", {"layers": "2M5s1"}),
    ):
        with pytest.raises(Problem, match=match):
            draw.usable(replace(member, config=changed(member.config, **other)))
    heavy = Network.blank((841, 50, 10))
    heavy.weights[0][3, 4] = 1e6
    with pytest.raises(Problem, match="no room for the net's weights: a weight is beyond float16"):
        draw.usable(NetFile(member.config, 1, heavy))
    narrow = changed(member.config, data={"width": 10})
    with pytest.raises(Problem, match="digits made equally wide"):
        draw.usable(replace(member, config=narrow))
    assert not draw.fits(narrow)
