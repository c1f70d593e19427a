"""Takes the pictures of live pages: reports and the playground, light and dark, wide and narrow.

`.venv/bin/python docs/pictures/make.py`; needs Chromium and the extra `test`.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))

import site_gallery  # noqa: E402

# Names of pictures, and what they show: the page, and the end of its address.
VIEWS = {
    "pipeline": ("pipeline", "#timeline"),
    "summary": ("pipeline", "#summary"),
    "convolutions": ("convolutions", "#operations"),
    "out_of_memory": ("out_of_memory", "#summary"),
    "playground": ("playground", "#schedules=zero_bubble_h1,one_f_one_b"),
}
# The width and height of the page, and how many pixels of the picture one of its pixels takes.
SIZES = {"": (1000, 600, 1.5), "narrow-": (390, 640, 2)}


def take_picture(browser: Browser, address: str, size: str, scheme: str, path: Path) -> None:
    """Opens a report in a window of a size, and writes what is seen."""
    width, height, scale = SIZES[size]
    page = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme=scheme,  # pyright: ignore[reportArgumentType]
        device_scale_factor=scale,
    )
    page.goto(address)
    page.wait_for_timeout(1000)
    shot = Image.open(io.BytesIO(page.screenshot()))
    shot.quantize(128).save(path, optimize=True)
    page.close()


def main() -> None:
    """Writes all pictures beside this file."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        site_gallery.write_pages(Path(folder))
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, (report, view) in VIEWS.items():
            address = Path(folder, f"{report}.html").as_uri() + view
            for size in SIZES:
                for scheme in ("light", "dark"):
                    path = FOLDER / f"{name}-{size}{scheme}.png"
                    take_picture(browser, address, size, scheme, path)
        browser.close()


if __name__ == "__main__":
    main()
