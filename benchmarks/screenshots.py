"""The pictures of the service in docs/images, by a real Chromium: `python -m benchmarks.screenshots`."""

import tempfile
from pathlib import Path

from benchmarks.service_runs import write_run
from tests.web.served import chromium, looking, served
from vcdl.run.folder import RunLock
from vcdl.run.kind import BOINC

IMAGES = Path(__file__).parents[1] / "docs" / "images"


def main() -> None:
    """Draw them."""
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        running = write_run(runs / "fashion", 20, 50, 12, until=0.6)
        write_run(runs / "volunteers", 30, 40, 20, BOINC, until=0.3, refused=0.1)
        for number in range(1, 4):
            write_run(runs / f"digits-{number}", 12, 20, 4)
        with RunLock(running), served(runs, "--public") as service, chromium() as browser:
            for dark in (False, True):
                suffix = "_dark" if dark else ""
                with looking(browser, service, dark=dark) as page:
                    page.locator("main").screenshot(path=IMAGES / f"service_jobs{suffix}.png")
                    page.goto(f"{service.url}/hosts")
                    page.locator("main").screenshot(path=IMAGES / f"service_hosts{suffix}.png")
                    page.goto(f"{service.url}/jobs/fashion")
                    page.set_viewport_size({"width": 1000, "height": 900})
                    page.screenshot(path=IMAGES / f"service_job{suffix}.png")
            visitor = browser.new_page(viewport={"width": 1000, "height": 760})
            visitor.goto(f"{service.url}/jobs/volunteers")
            visitor.screenshot(path=IMAGES / "service_public.png")


if __name__ == "__main__":
    main()
