"""`vcdl fleet bake`: machine images from which instances train soon after their launch."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vcdl.commands._options import dry_run_option, fleet_file, opened
from vcdl.errors import ExitCode, FleetError

if TYPE_CHECKING:
    from vcdl.fleet.open import Fleet


@click.command("bake")
@fleet_file
@click.option("--remove", metavar="IMAGE", help="Remove an image that was baked.")
@dry_run_option
def bake_command(file: Path, overrides: tuple[str, ...], remove: str | None, dry_run: bool) -> ExitCode:
    """Make an image, so that instances train soon after their launch."""
    from vcdl.fleet import open as opening
    from vcdl.fleet.bake import Bake, baking_settings, base_of

    fleet = opened(file, overrides)
    if remove is not None:
        return _remove(fleet, remove, dry_run)
    base = base_of(fleet.settings, fleet.baked_images())
    settings = baking_settings(fleet.settings, base)
    if dry_run:
        where = ", ".join(settings.regions)
        click.echo(f"launch an instance on demand, install on {base}, make an image for {where}, end the instance")
        return ExitCode.OK
    baking = Bake(settings, base, opening.open_provider(settings), _log)
    made = baking.run()
    for line in baking.cost_lines(made):
        click.echo(line)
    older = [image.id for image in fleet.baked_images() if image not in made]
    if older:
        click.echo(f"older ones cost, too: {', '.join(older)}; end one with `vcdl fleet bake --remove IMAGE {file}`")
    click.echo(f"for {file}:")
    for image in made:
        click.echo(f"  - {{region: {image.region}, image: {image.id}}}" if image.region else f"image: {image.id}")
    return ExitCode.OK


def old_images(fleet: "Fleet") -> tuple[str, ...]:
    """Lines about baked images in the fleet file; none while the cloud does not answer."""
    if not any(map(fleet.settings.image_in, fleet.settings.regions)):
        return ()
    from vcdl.fleet.bake import old_images

    try:
        return old_images(fleet.settings, fleet.baked_images())
    except FleetError:
        return ()


def _remove(fleet: "Fleet", id: str, dry_run: bool) -> ExitCode:
    from vcdl.fleet.bake import remove_image

    images = {image.id: image for image in fleet.baked_images()}
    if id not in images:
        raise FleetError(f"{id} was not baked for {fleet.settings.name}; these were: {', '.join(images) or 'none'}")
    if id in map(fleet.settings.image_in, fleet.settings.regions):
        raise FleetError(f"{id} is in {fleet.file}, and nothing could be launched without it: replace it there first")
    for leftover in images[id].leftovers:
        click.echo(f"delete {leftover}")
    if not dry_run and (left := remove_image(fleet.provider, images[id])):
        raise FleetError(f"still there: {', '.join(left)}; `vcdl fleet bake --remove {id} {fleet.file}` tries again")
    return ExitCode.OK


def _log(line: str) -> None:
    click.echo(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")
