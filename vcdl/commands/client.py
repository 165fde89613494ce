"""`vcdl client`: what runs on volunteers' machines, as files; and what makes a machine of one's own a client."""

import re
from pathlib import Path

import click

from vcdl.commands._options import FILE, THERE
from vcdl.errors import ExitCode, FleetError

_PLATFORMS = ("linux-x86_64", "linux-aarch64")
_BACKENDS = ("jax", "tensorflow")
_EXAMPLES = """\b
Examples:
  vcdl client build                     writes vcdl_client.pyz
  vcdl client build -o /tmp/client.pyz
  vcdl client attach-script https://boinc.example.org/mine/ --key-file weak_key
  vcdl client runtime --platform linux-x86_64 --python-archive cpython-3.12-….tar.gz

The same version of vcdl gives the same bytes on every machine, so that what is
signed can be compared with what is published. `vcdl project install` builds the
client by itself, and publishes runtimes with --runtime FILE."""


@click.group("client", epilog=_EXAMPLES)
def command() -> None:
    """Print or build the program that runs on volunteers' machines."""


@command.command("build", epilog=_EXAMPLES)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    default=Path("vcdl_client.pyz"),
    show_default=True,
    type=FILE,
    help="File to write; an existing one is replaced.",
)
def build_command(output: Path) -> ExitCode:
    """Build the client as one file."""
    from vcdl.boinc.project.client_build import build_client, client_modules
    from vcdl.report.wording import size

    digest = build_client(output)
    click.echo(f"client {output} ({size(output.stat().st_size)}, {len(client_modules())} modules)\nsha256 {digest}")
    return ExitCode.OK


@command.command("attach-script")
@click.argument("url")
@click.option(
    "--key-file", required=True, metavar="FILE", help="File on the machine itself with the account's weak key.",
)  # fmt: skip
@click.option("--gpu", is_flag=True, help="Let the client use GPUs.")
def attach_command(url: str, key_file: str, gpu: bool) -> ExitCode:
    """Print a script that makes a machine of yours (Debian, Ubuntu) a client of the project at URL.

    It only installs BOINC's client, with VCDL's settings and the account.
    """
    from vcdl.fleet.machine.attach import attach_script

    # The URL goes into a shell script that runs as root.
    if not re.fullmatch(r"https?://[A-Za-z0-9./:_~%-]{1,250}", url):
        raise FleetError(f"{url!r} is not the URL of a project: expected http://… or https://…")
    # The URL must end with exactly one slash, as the client stores it: another form would count as another project.
    click.echo(attach_script(url.rstrip("/") + "/", key_file, gpu), nl=False)
    return ExitCode.OK


@command.command("runtime", epilog=_EXAMPLES)
@click.option("--platform", "platform_name", required=True, metavar="NAME", help=f"One of {', '.join(_PLATFORMS)}.")
@click.option("--backend", type=click.Choice(_BACKENDS), default=_BACKENDS[0], show_default=True, help="Of Keras.")
@click.option("--gpu", is_flag=True, help="With CUDA, for hosts with an NVIDIA GPU.")
@click.option(
    "--python-archive",
    required=True,
    metavar="FILE",
    type=THERE,
    help="A relocatable Python: an install_only_stripped.tar.gz of python-build-standalone.",
)
@click.option(
    "-o", "--output", metavar="FILE", type=FILE, help="File to write.  [default: vcdl_runtime_PLATFORM_BACKEND.tar]"
)
def runtime_command(platform_name: str, backend: str, gpu: bool, python_archive: Path, output: Path | None) -> ExitCode:
    """Make a Python with Keras for volunteers who have none.

    It holds exactly the versions of VCDL's own lock. Whatever was made with the same Python from the same lock has the
    same bytes. Nothing of the packages is run, so the archive of any system can be made on this one.
    """
    from vcdl.boinc.runtime.archive import RuntimeFile
    from vcdl.boinc.runtime.build import BuildOrder, build_runtime
    from vcdl.boinc.runtime.platforms import platform_named
    from vcdl.report.wording import size

    platform = platform_named(platform_name)
    order = BuildOrder(platform, backend, python_archive, gpu)
    name = f"vcdl_runtime_{platform.name}_{backend}{'_gpu' if gpu else ''}.tar"
    for said in build_runtime(order, (output or Path(name)).absolute()):
        if isinstance(said, RuntimeFile):
            manifest = said.manifest
            click.echo(f"runtime {said.path} ({size(said.size)}; unpacked {size(manifest.unpacked_bytes)})")
            needs = [*manifest.processor_needs, *([f"glibc {manifest.glibc}"] if manifest.glibc else [])]
            click.echo(f"needs {', '.join(needs) or 'nothing'}\nsha256 {said.sha256}")
        else:
            click.echo(said)
    return ExitCode.OK


@command.command("base")
@click.option("--platform", "name", type=click.Choice(_PLATFORMS), default=_PLATFORMS[0], show_default=True)
@click.option("-o", "--output", metavar="FILE", type=FILE, help="File to write.  [default: vcdl_base_PLATFORM.tar.gz]")
def base_command(name: str, output: Path | None) -> ExitCode:
    """Make the base of containers: a C library and a shell from Debian's packages, by mmdebstrap.

    With it and BOINC's docker_wrapper, `vcdl project install --container FILE` reaches Windows and macOS.
    """
    from vcdl.boinc.runtime.base import build_base
    from vcdl.boinc.runtime.platforms import platform_named
    from vcdl.files.atomic import file_sha256
    from vcdl.report.wording import size

    path = output or Path(f"vcdl_base_{name}.tar.gz")
    build_base(platform_named(name), path)
    click.echo(f"base {path} ({size(path.stat().st_size)})\nsha256 {file_sha256(path)}")
    return ExitCode.OK
