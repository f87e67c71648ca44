"""`keygen` and `codec-server`: keys for secrets and payloads, and showing encrypted payloads in the Web UI."""

from __future__ import annotations

from pathlib import Path

import click

from towline.cli.session import configuration, print_json, run, say
from towline.errors import UsageError


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--codec", is_flag=True, help="A key of the payload codec instead.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
def keygen(file: Path, codec: bool, as_json: bool) -> int:
    """Put a new private key for secrets into FILE, before those that are there; print its public key."""
    from towline import boxes, keys

    prefix, make = (keys.SHARED, boxes.new_shared_key) if codec else (keys.PRIVATE, boxes.new_private_key)
    with keys.locked(file):
        keys.read(file, prefix, str(file))  # so that nothing is put before what is no key
        key = keys.add(file, prefix, make)
    public = None if codec else keys.show(keys.public_of(key).data, keys.PUBLIC)
    say(f"key {key.id} is the first in {file} now")
    if as_json:
        print_json({"key": key.id, "public_key": public, "file": str(file)})
    elif public:
        click.echo(public)
    return 0


@click.command("codec-server")
@click.option("--host", default="127.0.0.1", show_default=True, help="Who reaches it can read every payload.")
@click.option("--port", type=click.IntRange(0, 65535), default=8081, show_default=True)
@click.option("--origin", "origins", multiple=True, metavar="URL", help="Of the Web UI; default: the embedded one's.")
def codec_server(host: str, port: int, origins: tuple[str, ...]) -> int:
    """Show encrypted payloads in the Temporal Web UI, until Ctrl-C."""
    try:
        from towline.codec_server import serve
    except ImportError:
        raise UsageError("the codec server needs a further package: pip install 'towline[codec]'") from None
    from towline.payload_codec import VARIABLE, read_codec

    config = configuration()
    if config.codec_keys is None:
        raise UsageError(f"there is no key: set {VARIABLE}; `towline keygen --codec FILE` makes one")
    codec = read_codec(config)

    def ready(address: str) -> None:
        say(f"codec server: {address}")
        say("enter this address in the Web UI, under the glasses at the top right; Ctrl-C ends it")

    run(serve(codec, host, port, origins or _embedded_origins(config.home), ready))
    return 0


def _embedded_origins(home: Path) -> tuple[str, ...]:
    """The Web UI of the embedded stack, by both names of this machine."""
    from towline.embedded import StackFiles

    info = StackFiles(home).read()
    port = info.ui_port if info else 8233
    return (f"http://127.0.0.1:{port}", f"http://localhost:{port}")
