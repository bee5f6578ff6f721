"""`python -m gearcache`: the command line."""

from gearcache.cli import main

main(prog_name="gearcache")
