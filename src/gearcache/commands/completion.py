"""`gearcache completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script that lets SHELL complete commands, options and names of entries.

    \b
    bash:  gearcache completion bash > ~/.local/share/bash-completion/completions/gearcache
    zsh:   gearcache completion zsh > "${fpath[1]}/_gearcache"
    fish:  gearcache completion fish > ~/.config/fish/completions/gearcache.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(context.find_root().command, {}, "gearcache", "_GEARCACHE_COMPLETE").source())
