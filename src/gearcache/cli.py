"""The command line. Data on stdout, everything else on stderr; one file per command in `gearcache.commands`."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import Any, NamedTuple

import click

from gearcache.errors import CacheError, OptionError
from gearcache.version import __version__


class Command(NamedTuple):
    """A command: its module in `gearcache.commands`, which is imported when it runs, what `--help` says, an example."""

    module: str
    text: str
    example: str


#: What a person wants to do -> the commands for it.
GROUPS = {
    "See what is there": {
        "list": Command("entries.list_entries", "List the entries of a cache.", "gearcache list 'Model.*' --sort size"),
        "show": Command(
            "entries.show", "Show one entry: key, evidence, gears, frame, graph.", "gearcache show Model.decode"
        ),
        "stats": Command(
            "figures.stats",
            "Hits, misses by reason, seconds saved, bytes by method.",
            "gearcache stats --json | jq .hit_rate",
        ),
        "report": Command(
            "figures.report",
            "Write an HTML page that shows the cache.",
            "gearcache report --trace start.json --output cache.html",
        ),
    },
    "Find out why": {
        "explain": Command(
            "deployments.explain", "Why calls miss, how entries or two caches differ.", "gearcache explain deploy:build"
        ),
        "doctor": Command(
            "doctor", "What works on this host, is all ready, the settings.", "gearcache doctor --ready deploy:build"
        ),
        "suggest-gears": Command(
            "figures.suggest_gears",
            "Propose gears from the shapes that were met.",
            "gearcache suggest-gears host-*.json --gears 8",
        ),
    },
    "Compile before traffic": {
        "prewarm": Command(
            "deployments.prewarm", "Compile and store what a function calls.", "gearcache prewarm deploy:build --jobs 4"
        ),
    },
    "Share with other hosts": {
        "push": Command("tiers.push", "Send entries to tiers.", "gearcache push --to s3://bucket/team"),
        "pull": Command(
            "tiers.pull",
            "Bring entries of tiers or of a file here.",
            "gearcache pull --from s3://bucket/team 'Model.*'",
        ),
        "pack": Command("pack", "Write entries as an image, a folder or a file.", "gearcache pack --oci build/gears"),
        "keys": Command("keys", "Make and list keys that sign entries.", "gearcache keys new build.key"),
    },
    "Keep it sound and small": {
        "verify": Command("entries.verify", "Read and verify every byte.", "gearcache verify --repair"),
        "clear": Command("entries.clear", "Remove entries.", "gearcache clear --entry Model.decode --wait 60s"),
        "prune": Command(
            "entries.prune", "Remove the least recently used, down to a limit.", "gearcache prune --max-size 20GB"
        ),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
#: Commands that show what is wrong with a variable beside all others.
_TELL_THEMSELVES = ("doctor",)

EPILOG = """\b
Exit codes:
  0    done, nothing wrong
  1    something is wrong: damaged entries, failed checks, graphs that failed or are missing
  2    usage error, a variable of a wrong value, or the name matches no entry
  3    the cache cannot be read or written
  4    entries stayed because processes use them
  130  interrupted by Ctrl-C

The cache is --cache-dir of the command, else $TORCHAIR_CACHE_HOME, else ./.torchair_cache.
"""


class CommandGroup(click.Group):
    """Imports a command's module when it runs, so that each pays for itself only."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Return the command of a name, or None."""
        if name not in COMMANDS:
            return None
        _leave_traces(name)
        click_command: click.Command = importlib.import_module(f"gearcache.commands.{COMMANDS[name].module}").command
        click_command.epilog = f"\b\nExample:\n  {COMMANDS[name].example}"
        return click_command

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Note whether help is asked for, whatever is wrong."""
        context.meta["help"] = not {"-h", "--help"}.isdisjoint(args)
        return super().parse_args(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, by what a person wants to do, without importing one."""
        for title, commands in GROUPS.items():
            with formatter.section(title):
                rows = [((name, each.text), ("", f"$ {each.example}")) for name, each in commands.items()]
                formatter.write_dl([line for pair in rows for line in pair])

    def invoke(self, context: click.Context) -> Any:
        """Run a command; a fault of the cache is one line and exit code 3, a wrong variable 2, Ctrl-C 130."""
        code = 3
        try:
            return super().invoke(context)
        except KeyboardInterrupt:
            text, code = "interrupted", 130
        except CacheError as error:
            text = str(error)
        except OptionError as error:
            text, code = str(error), 2
        except OSError as error:
            if error.errno == errno.EPIPE:  # who reads our output has gone
                raise
            text = f"{f'`{error.filename}`: ' if error.filename else ''}{error.strerror or type(error).__name__}"
        from gearcache.commands.output.printing import echo

        echo(f"error: {text}", err=True)
        raise click.exceptions.Exit(code)


def _leave_traces(name: str) -> None:
    """Record nothing where a command only looks: beside a server it has the variable of the server's trace as well."""
    start_trace = sys.modules.get("gearcache.telemetry.start_trace")
    if start_trace is not None and name != "prewarm":
        start_trace.stop_recording()


def _print_completion(context: click.Context, parameter: click.Parameter, shell: str | None) -> None:
    if shell is not None:
        from click.shell_completion import get_completion_class

        completion = get_completion_class(shell)
        assert completion is not None
        click.echo(completion(context.command, {}, "gearcache", "_GEARCACHE_COMPLETE").source())
        context.exit()


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.option(
    "--completion",
    "shell",
    type=click.Choice(["bash", "zsh", "fish"]),
    is_eager=True,
    expose_value=False,
    callback=_print_completion,
    metavar="SHELL",
    help="Print the script that completes for bash, zsh or fish, and end.",
)
@click.version_option(__version__, prog_name="gearcache", message="%(prog)s %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Look into, check, fill and clear a cache of compiled PyTorch methods."""
    if context.invoked_subcommand in _TELL_THEMSELVES or context.meta["help"]:
        return
    from gearcache.commands.checks.wrong_variables import wrong_variables

    if problems := wrong_variables(os.environ):
        raise OptionError("; ".join(problems))


if __name__ == "__main__":  # else `python -m gearcache.cli doctor --ready …` would do nothing, and succeed
    main(prog_name="gearcache")
