"""The command line. Data on stdout, everything else on stderr; one file per command in `gearcache.commands`.

| exit code | meaning |
|---|---|
| 0 | done, nothing wrong |
| 1 | something is wrong: damaged entries, failed checks, gears that failed or are missing |
| 2 | usage error, a variable of a wrong value, or the name matches no entry |
| 3 | the cache cannot be read or written |
| 4 | entries stayed because processes use them |
| 130 | interrupted by Ctrl-C |
"""

from __future__ import annotations

import errno
import importlib
import sys
from typing import Any

import click

from gearcache.errors import CacheError, OptionError
from gearcache.version import __version__

#: Command -> module in `gearcache.commands` and what `--help` says; a module is imported when its command runs.
COMMANDS = {
    "list": ("list_entries", "List the entries of a cache."),
    "show": ("show", "Show one entry: key, evidence, gears, frame and graph."),
    "explain": ("explain", "Say why an entry is not used, or how two entries differ."),
    "diff": ("diff", "Say which entries two caches or bundles share."),
    "report": ("report", "Write an HTML page that shows the cache."),
    "stats": ("stats", "Hits, misses by reason, seconds saved, bytes."),
    "du": ("disk_use", "How much of the disk each method takes."),
    "dir": ("folder", "Print the folder of the cache."),
    "config": ("config", "Show every setting, its value and where that is from."),
    "doctor": ("doctor", "Check what works on this host, and say what to do."),
    "prewarm": ("prewarm", "Compile and store what a function calls, before traffic."),
    "verify": ("verify", "Verify every byte of a cache."),
    "clear": ("clear", "Remove entries."),
    "prune": ("prune", "Remove the least recently used entries, down to a limit."),
    "bundle": ("bundle", "Write entries into one file."),
    "unbundle": ("unbundle", "Take entries from a file that `bundle` wrote."),
    "pack": ("pack", "Write entries as an image of containers."),
    "keys": ("keys", "Make and list keys that sign entries."),
    "push": ("push", "Send entries to tiers beyond this host."),
    "pull": ("pull", "Bring entries of tiers to this host."),
    "suggest-gears": ("suggest_gears", "Propose gears from the shapes that all hosts have met."),
    "remote": ("remote", "Look at the tiers: reach, latency, leases, signatures."),
    "completion": ("completion", "Print the script of shell completion."),
}

EPILOG = """\b
Exit codes:
  0    done, nothing wrong
  1    something is wrong: damaged entries, failed checks, missing gears
  2    usage error, or the name matches no entry
  3    the cache cannot be read or written
  4    entries stayed because processes use them
  130  interrupted by Ctrl-C

The cache is --cache-dir, else $TORCHAIR_CACHE_HOME, else ./.torchair_cache.
"""


class CommandGroup(click.Group):
    """Imports a command's module when it runs, so that each pays for itself only."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Return a command, or None when there is none of that name."""
        if name not in COMMANDS:
            return None
        _leave_traces(name)
        found: click.Command = importlib.import_module(f"gearcache.commands.{COMMANDS[name][0]}").command
        return found

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands without importing one."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

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
        from gearcache.commands.printing import echo

        echo(f"error: {text}", err=True)
        raise click.exceptions.Exit(code)


def _leave_traces(name: str) -> None:
    """Record nothing where a command only looks: beside a server it has the variable of the server's trace as well."""
    found = sys.modules.get("gearcache.telemetry.start_trace")
    if found is not None and name != "prewarm":
        found.stop_recording()


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.version_option(__version__, prog_name="gearcache", message="%(prog)s %(version)s")
def main() -> None:
    """Look into, check, fill and clear a cache of compiled PyTorch methods."""
