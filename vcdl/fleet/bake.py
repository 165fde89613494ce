"""Making of a machine image that has everything which an instance's set-up installs: `vcdl fleet bake`.

All steps are found again by tag, so a killed `bake` goes on when it is started again. The instance that becomes the
image has a tag value of its own: no pass takes it for capacity, and `down` and `list` find it.
"""

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from uuid import uuid4

from vcdl.errors import FleetError, FleetUnavailable
from vcdl.fleet.billing import IMAGE_USD_PER_GB_MONTH
from vcdl.fleet.instance import Instance, Pool
from vcdl.fleet.machine import setup_hash, user_data
from vcdl.fleet.prices import PriceTable, price_of
from vcdl.fleet.provider import BakedImage, Provider, baking_name
from vcdl.fleet.refusal import ProblemKind
from vcdl.fleet.settings import FleetSettings
from vcdl.report.wording import duration

UBUNTU = "Ubuntu 24.04"
"""The base of an image whose fleet file names none."""
_READY = re.compile("vcdl-setup: ready as an image ([0-9a-f]{12})")
_SETUP_LIMIT_S = 2700.0
_LIMIT_S = 7200.0
"""For all, the copies among it; the instance ends itself after an hour."""
_REMOVALS = 6
_LINES = 5
"""Console lines shown for a failed instance."""


def base_of(settings: FleetSettings, images: Iterable[BakedImage]) -> str:
    """The image that the fleet file's is made from, or that image itself if it is not baked."""
    named = settings.image_in(settings.regions[0]) or UBUNTU
    return next((image.base for image in images if image.id == named), named)


def baking_settings(settings: FleetSettings, base: str) -> FleetSettings:
    """The settings of the fleet that bakes: one instance in the first place, from the base."""
    first = settings.places[0].model_copy(update={"image": None if base == UBUNTU else base})
    unit = "gpu" if settings.capacity.unit == "gpu" else "instance"
    changed = {
        "name": baking_name(settings.name),
        "image": None if base == UBUNTU else settings.image,
        "places": (first, *settings.places[1:]),
        "capacity": settings.capacity.model_copy(update={"unit": unit}),
        "max_life_h": 1,
        "drain_s": 0,
    }
    return settings.model_copy(update=changed)


def old_images(settings: FleetSettings, images: Iterable[BakedImage]) -> tuple[str, ...]:
    """A line for each baked image in the fleet file that lacks something of today's set-up."""
    named = {settings.image_in(region) for region in settings.regions}
    return tuple(
        f"image {image.id} was baked with another set-up: instances install what is missing; `vcdl fleet bake` makes "
        "a new one"
        for image in images
        if image.id in named and image.setup != setup_hash(settings, image.base)
    )


def remove_image(provider: Provider, image: BakedImage, every_s: float = 5.0) -> tuple[str, ...]:
    """Remove an image with everything behind it; returns a line for each thing that is still there."""
    for _ in range(_REMOVALS):
        provider.remove(image.leftovers)
        left = set(image.leftovers).intersection(provider.look(every_fleet=True).found)
        if not left:
            break
        time.sleep(every_s)
    return tuple(sorted(map(str, left)))


@dataclass
class Bake:
    """One baking. All calls raise what the provider raises."""

    settings: FleetSettings
    """The result of `baking_settings`."""
    base: str
    provider: Provider
    """The provider of these settings."""
    log: Callable[[str], None]
    """Takes a line."""
    prices: PriceTable = field(default_factory=PriceTable.current)
    clock: Callable[[], float] = field(default_factory=lambda: time.time)
    every_s: float = 10.0
    instance: Instance | None = None
    """The one that becomes the image, once it is known."""

    def run(self) -> tuple[BakedImage, ...]:
        """Returns the images, one for each place, once all can be used; nothing else is left then."""
        try:
            images = self._images()
        finally:
            left = self.provider.sweep()
            for line in left:
                self.log(f"still there: {line}")
        if left:
            raise FleetError("the image is made, but something else is left, as said: `vcdl fleet down` ends it")
        return images

    def cost_lines(self, images: Iterable[BakedImage]) -> tuple[str, ...]:
        """The cost of the instance, if this process saw it, and of the images."""
        gb = sum(image.gb for image in images)
        lines = [f"images cost at most ${gb * IMAGE_USD_PER_GB_MONTH:.2f} a month, for {gb} GB"]
        if self.instance is not None:
            lived_s, pool = self.clock() - self.instance.launched_s, self.instance.pool
            words = f"{pool.type} for {duration(lived_s)}"
            usd = self._usd_per_h(pool) * Decimal(lived_s) / 3600
            lines.insert(0, f"baking cost ${usd:.2f}: {words}" if usd.is_finite() else f"no price is known: {words}")
        return tuple(lines)

    @property
    def _setup(self) -> str:
        return setup_hash(self.settings, self.base)

    def _images(self) -> tuple[BakedImage, ...]:
        began_s = self.clock()
        while True:
            try:
                if (done := self._step()) is not None:
                    return done
            except FleetUnavailable as away:
                self.log(str(away))
            if self.clock() - began_s > _LIMIT_S:
                raise FleetError(f"no image after {duration(_LIMIT_S)}; `vcdl fleet bake` goes on")
            time.sleep(self.every_s)

    def _step(self) -> tuple[BakedImage, ...] | None:
        """Do what can be done now; returns the images once all are ready."""
        found = {image.region: image for image in self.provider.images() if image.setup == self._setup}
        for image in found.values():
            if image.failure:
                self.provider.remove(image.leftovers)
                raise FleetError(f"the cloud could not make image {image.id}: {image.failure}; bake again")
        regions = ("",) if "" in found else self.settings.regions
        source = found.get(regions[0])
        if source is None:
            self._make()
        elif source.is_ready:
            for region in (region for region in regions if region not in found):
                self.log(f"copying {source.id} to {region}")
                self.provider.copy_image(source, region)
        made = tuple(found[region] for region in regions if region in found and found[region].is_ready)
        return made if len(made) == len(regions) else None

    def _make(self) -> None:
        """Bring the image of the first place one step further."""
        before, now_s = self.instance, self.clock()
        live = next((instance for instance in self.provider.find() if instance.is_live), None)
        if live is not None:
            self.instance = live
            self._follow(live, now_s)
        elif before is None:
            self._launch()
        elif now_s - before.launched_s > self.provider.shows_within_s:
            said = self.provider.last_words(before.id, _LINES)
            raise FleetError(f"{before.id} ended before its set-up was done: {said}; bake again")

    def _launch(self) -> None:
        """One instance of the cheapest type that can be launched."""
        region = self.settings.regions[0]
        pools = [replace(pool, on_demand=True) for pool in self.provider.pools() if pool.region == region]
        text, why = user_data(self.settings, "", self._setup), f"no type of the fleet is offered in {region}"
        for name in dict.fromkeys(pool.type for pool in sorted(pools, key=lambda p: (self._usd_per_h(p), p))):
            of_type = [pool for pool in pools if pool.type == name]
            launched = self.provider.launch(of_type, 1, str(uuid4()), text)
            if launched.instances:
                self.instance = launched.instances[0]
                self.log(f"launched {self.instance.id} ({self.instance.pool})")
                return
            why = "; ".join(dict.fromkeys(problem.words for problem in launched.problems)) or "nothing was launched"
            if any(problem.kind is not ProblemKind.NO_CAPACITY for problem in launched.problems):
                break
        raise FleetError(f"no instance to bake: {why}")

    def _follow(self, instance: Instance, now_s: float) -> None:
        """Wait for the set-up, then have the image made."""
        ready = _READY.findall(self.provider.console(instance.id))
        if self._setup in ready:
            self.log(f"{instance.id} is set up: its image is made")
            self.provider.make_image(instance, self._setup, self.base)
        elif ready:
            self.log(f"{instance.id} has another set-up, so it is ended")
            self.provider.terminate([instance.id])
            self.instance = None
        elif now_s - instance.launched_s > _SETUP_LIMIT_S:
            said = self.provider.last_words(instance.id, _LINES)
            raise FleetError(f"{instance.id} was not set up after {duration(_SETUP_LIMIT_S)}: {said}")

    def _usd_per_h(self, pool: Pool) -> Decimal:
        price = price_of(pool, self.prices, self.settings, self.clock())
        return Decimal("Infinity") if price is None else price.on_demand_usd_per_h + price.extras_usd_per_h
