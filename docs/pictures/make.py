"""Makes the pictures of the README: one page of a report of a pipeline, light and dark.

`.venv/bin/python docs/pictures/make.py`; needs Chromium and the extra `test`.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from PIL import Image
from playwright.sync_api import sync_playwright

import ipujax as ipu
from ipujax.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, pipeline

FOLDER = Path(__file__).parent
STAGES, MICRO_BATCHES, WIDTH, ROWS = 4, 8, 1024, 256


def block(weights: Any, x: Any) -> Any:
    """Of a transformer: the feed-forward half."""
    with jax.named_scope("norm"):
        normed = jax.nn.standardize(x)
    with jax.named_scope("feed_forward"):
        return x + jax.nn.gelu(normed @ weights["up"]) @ weights["down"]


def report() -> Any:
    """What a training step of four blocks on four IPUs costs."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = STAGES
    config.configure_ipu_system()
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def stage(number: int) -> Any:
        def run(params: Any, x: Any) -> Any:
            with jax.named_scope(f"mlp{number}"):
                y = block(params[number], x)
            return (y**2).mean() if number == STAGES - 1 else y

        return run

    def train_step(params: Any, x: Any) -> Any:
        return pipeline(
            [stage(number) for number in range(STAGES)],
            MICRO_BATCHES,
            inputs=[x],
            outfeed_queue=outfeed,
            optimizer_function=lambda loss: OptimizerFunctionOutput(optax.adam(1e-3), loss),
            pipeline_schedule=PipelineSchedule.Grouped,
            offload_weight_update_variables=False,  # lest that be all there is to see
            variables=params,
        )

    def array(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, np.float16)

    params = [{"up": array(WIDTH, 4 * WIDTH), "down": array(4 * WIDTH, WIDTH)}] * STAGES
    return ipu.compile(train_step).lower(params, array(ROWS, WIDTH)).report()


def main() -> None:
    """Writes `report-light.png` and `report-dark.png`."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "report.html"
        report().to_html(path)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            page = browser.new_page(
                viewport={"width": 1100, "height": 620},
                color_scheme=scheme,
                device_scale_factor=1.5,
            )
            page.goto(path.as_uri() + "#timeline")
            page.wait_for_timeout(1000)
            shot = Image.open(io.BytesIO(page.screenshot()))
            shot.quantize(256).save(FOLDER / f"report-{scheme}.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
