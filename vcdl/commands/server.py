"""`vcdl server`: a whole BOINC server with VCDL, on a machine of its own."""

import getpass
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vcdl.commands._options import PATH, say
from vcdl.errors import ExitCode

if TYPE_CHECKING:
    from vcdl.boinc.server.settings import ServerSettings

_EXAMPLES = """\b
Examples:
  vcdl server install --boinc /opt/boinc --host train.example.org --email ada@example.org --tls letsencrypt
  vcdl server install --redis --dry-run
  vcdl server adopt ~boincadm/projects/mine --boinc /opt/boinc --email ada@example.org
  vcdl server backup --to /srv/backup
  vcdl server restore --from s3://my-bucket/train --boinc /opt/boinc
  vcdl server restore --from /srv/backup --rehearse
  vcdl server upgrade vcdl-0.2.0-py3-none-any.whl
  vcdl server upgrade --back
  vcdl server rotate-keys"""
_name = click.option("--name", metavar="NAME", help="The project.  [default: the only one here]")
_dry_run = click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")


@click.group("server", epilog=_EXAMPLES)
def command() -> None:
    """Install, back up, restore and upgrade a whole BOINC server."""


def _here(name: str | None) -> "ServerSettings":
    """Check that the user is root, and return the settings of a server on this machine.

    Args:
        name: Name of the project, or None for the only one on this machine.

    Raises:
        ServerError: There is no server on this machine, or the user is not root.
    """
    from vcdl.boinc.server.settings import load_installed
    from vcdl.boinc.server.system import check_root

    check_root()
    return load_installed(name)


@command.command("install")
@click.option("--name", metavar="NAME", default="vcdl", show_default=True, help="The project's short name.")
@click.option("--boinc", metavar="TREE", type=PATH, help="A built tree of BOINC's server.")
@click.option("--host", metavar="HOST", help="The full name, or the address, by which clients reach it.")
@click.option("--email", metavar="E", help="E-mail address of the operator.")
@click.option("--tls", metavar="HOW", help="letsencrypt, self-signed, or CERTIFICATE,KEY.")
@click.option("--title", metavar="TEXT", help="The project's long name.")
@click.option("--user", metavar="USER", help="The project's user.  [default: boincadm]")
@click.option("--backup-to", metavar="PLACE", help="Back up every night: a folder, or s3://BUCKET/PREFIX.")
@click.option("--backup-for", metavar="KEY", help="Encrypt backups for this key of age or gpg, or KEY,KEY.")
@click.option("--redis/--no-redis", default=None, help="Keep weights in a Redis on this machine.")
@click.option("--firewall/--no-firewall", default=None, help="Let only ssh and the web in.")
@_dry_run
def install_command(name: str, dry_run: bool, boinc: Path | None, **options: Any) -> ExitCode:
    """Make this machine the server of a project; run it again after a change, or a kill."""
    from vcdl.boinc.project.install_options import service_path
    from vcdl.boinc.server.project_steps import has_web, install_steps
    from vcdl.boinc.server.settings import ServerSettings, load_installed, settings_file
    from vcdl.boinc.server.steps import carry_out
    from vcdl.boinc.server.system import check_root

    # Make the path absolute: the settings keep it, and later commands run in other folders.
    options["boinc"] = boinc and boinc.resolve()
    made = {key: value for key, value in options.items() if value is not None}  # else as an earlier installation has it
    if settings_file(name).exists():
        settings = load_installed(name).with_changes(made)
    else:
        # A server that is installed keeps these three, so only a new one has to name them.
        if missing := [f"--{key}" for key in ("boinc", "host", "email") if not made.get(key)]:
            raise click.UsageError(f"a new server needs {', '.join(missing)}")
        settings = ServerSettings(name=name, python=Path(sys.executable), **made)
    # A dry run changes nothing, so any user may see the steps.
    if not dry_run:
        check_root()
    say(carry_out(install_steps(settings), dry_run=dry_run))
    if not dry_run:
        click.echo(f"clients attach to {settings.url}")
        click.echo(f"submit jobs as {settings.user}: vcdl submit JOB.yaml --project-dir {settings.project}")
        if settings.tls and has_web():
            click.echo(
                f"from elsewhere by {settings.url_base.rstrip('/')}{service_path(settings.url)}/, with a token: "
                f"vcdl token add NAME --role submitter --project-dir {settings.project}"
            )
    return ExitCode.OK


@command.command("adopt")
@click.argument("project_dir", metavar="PROJECT", type=PATH)
@click.option("--boinc", metavar="TREE", type=PATH, required=True, help="A built tree of BOINC's server.")
@click.option("--email", metavar="E", required=True, help="E-mail address of the operator.")
@click.option("--tls", metavar="HOW", default="", help="letsencrypt, or CERTIFICATE,KEY of a project with https.")
@click.option("--backup-for", metavar="KEY", default="", help="Encrypt backups for this key of age or gpg, or KEY,KEY.")
def adopt_command(project_dir: Path, boinc: Path, email: str, tls: str, backup_for: str) -> ExitCode:
    """Make a project known that was made by hand, so that it can be backed up and restored; nothing in it changes."""
    from vcdl.boinc.server.adopting import adopt, read_settings
    from vcdl.boinc.server.system import check_root

    check_root()
    return say([adopt(read_settings(project_dir, email, boinc.resolve(), tls, backup_for))])


@command.command("backup")
@_name
@click.option("--to", "place", metavar="PLACE", help="A folder, or s3://BUCKET/PREFIX.  [default: install's]")
@click.option("--for", "key", metavar="KEY", help="Encrypt it for this key, or KEY,KEY.  [default: install's]")
def backup_command(name: str | None, place: str | None, key: str | None) -> ExitCode:
    """Back up database, jobs, files and keys while jobs run, and thin older backups."""
    from vcdl.boinc.server.backup import back_up

    settings = _here(name)
    if not (place or settings.backup_to):
        raise click.UsageError("say where: --to PLACE, or once for all `vcdl server install --backup-to PLACE`")
    return say(back_up(settings, place or settings.backup_to, settings.backup_for if key is None else key))


@command.command("restore")
@click.option("--from", "place", metavar="PLACE", required=True, help="A folder, or s3://BUCKET/PREFIX.")
@click.option("--backup", metavar="BACKUP", help="Its name.  [default: the newest]")
@click.option("--name", metavar="NAME", help="The project.  [default: of the newest backup]")
@click.option("--boinc", metavar="TREE", type=PATH, help="A built tree of BOINC's server.")
@click.option("--identity", metavar="FILE", type=click.Path(path_type=Path, exists=True), help="The key of age.")
@click.option("--rehearse", is_flag=True, help="Only find out whether the backup would come up.")
def restore_command(
    place: str, backup: str | None, name: str | None, boinc: Path | None, identity: Path | None, rehearse: bool
) -> ExitCode:
    """Make this machine the server that a backup is of."""
    from vcdl.boinc.server import restoring
    from vcdl.boinc.server.backup import WORK
    from vcdl.boinc.server.steps import carry_out
    from vcdl.boinc.server.system import check_root
    from vcdl.boinc.server.vault import vault_at

    check_root()
    vault = vault_at(place)
    backup = backup or vault.newest(name)
    click.echo(f"backup {backup}")
    if rehearse:
        with restoring.fetch_temporarily(vault, backup, identity) as fetched:
            say(restoring.rehearse(fetched))
        return say(["it would come up"])
    if boinc is None:
        raise click.UsageError("say where BOINC's built tree is: --boinc TREE")
    fetched = restoring.fetch(vault, backup, WORK / "restore" / backup, identity)
    settings = restoring.read_backup_settings(fetched, boinc.resolve(), Path(sys.executable))
    say(carry_out(restoring.restore_steps(settings, fetched)))
    click.echo(f"let the name {settings.host} lead to this machine: clients follow it")
    return ExitCode.OK


@command.command("upgrade")
@click.argument("source", required=False)
@_name
@click.option("--boinc", metavar="TREE", type=PATH, help="A newer built tree of BOINC, too.")
@click.option("--back", is_flag=True, help="Go back to the version before.")
@_dry_run
def upgrade_command(source: str | None, name: str | None, boinc: Path | None, back: bool, dry_run: bool) -> ExitCode:
    """Change to the VCDL of SOURCE, a wheel or a checkout, while tasks are out."""
    from vcdl.boinc.server.steps import carry_out
    from vcdl.boinc.server.upgrade import back_steps, upgrade, upgrade_steps

    if bool(source) == back:
        raise click.UsageError("give a wheel or a checkout, or --back")
    settings = _here(name)
    tree = boinc.resolve() if boinc else None
    if source and not dry_run:
        # Only an upgrade is reverted if it fails. --back itself, and a dry run, are plain lists of steps.
        lines = upgrade(settings, str(Path(source).resolve()), tree)
    else:
        steps = upgrade_steps(settings, str(Path(source).resolve()), tree) if source else back_steps(settings)
        lines = carry_out(steps, dry_run=dry_run)
    return say(lines)


@command.command("uninstall")
@_name
@click.option("--delete-project", is_flag=True, help="Delete the project's folder and its database, too.")
@_dry_run
def uninstall_command(name: str | None, delete_project: bool, dry_run: bool) -> ExitCode:
    """Take units, site and settings from this machine; the project stays unless you say so."""
    from vcdl.boinc.server.removal import removal_steps
    from vcdl.boinc.server.steps import carry_out

    return say(carry_out(removal_steps(_here(name), delete_project=delete_project), dry_run=dry_run))


@command.command("rotate-keys")
@_name
@click.option("--tls", is_flag=True, help="Change a self-signed certificate: first make it, then use it.")
@click.option("--forget", is_flag=True, help="Delete older private keys: hosts that slept since then must attach anew.")
@click.option("--keys", metavar="DIR", type=PATH, help="Keys of a folder, such as on a machine without network.")
@click.option("--boinc", metavar="TREE", type=PATH, help="BOINC's tree, for --keys.  [default: DIR/../bin]")
def rotate_keys_command(name: str | None, tls: bool, forget: bool, keys: Path | None, boinc: Path | None) -> ExitCode:
    """Change the code signing key; clients take the new one from any older one."""
    from vcdl.boinc.server import rotation
    from vcdl.boinc.server.steps import carry_out

    # With a folder of keys do not read the settings: the machine that keeps the private keys has no installation.
    if keys:
        program = boinc.resolve() / "lib/crypt_prog" if boinc else keys.resolve().parent / "bin/crypt_prog"
        pairs = rotation.SigningKeys(keys.resolve(), program, getpass.getuser())
        if forget:
            click.echo(f"deleted {pairs.forget()} older private keys")
            return ExitCode.OK
        rotation.change_here(pairs)
        click.echo(f"{keys}: code_sign_public, old_key_* and signature_* belong in the project's keys/")
        return ExitCode.OK
    settings = _here(name)
    if tls:
        waiting = rotation.next_certificate(settings)
        click.echo(
            f"Apache serves {settings.certificate[0]}" if waiting is None else
            f"made {waiting}: add it to each client's ca-bundle.crt next to the old one, then run this again"
        )  # fmt: skip
        return ExitCode.OK
    click.echo(f"{rotation.not_asked_since(settings)} hosts of the last 30 days have a key before the one in use")
    if forget:
        click.echo(f"deleted {rotation.keys_of(settings).forget()} older private keys")
        return ExitCode.OK
    return say(carry_out(rotation.signing_steps(settings)))


@command.command("sign")
@click.argument("folder", type=PATH)
@click.option("--key", metavar="FILE", required=True, type=PATH, help="The private key.")
@click.option("--boinc", metavar="TREE", required=True, type=PATH, help="BOINC's built tree.")
def sign_command(folder: Path, key: Path, boinc: Path) -> ExitCode:
    """Sign the files of app versions below FOLDER, on a machine without network."""
    from vcdl.boinc.server.signing import sign

    return say(f"signed {path}" for path in sign(folder, key, boinc))
