"""The part of the package that is compiled, and the README as a package page shows it; all else stands in setup.cfg."""

import re
from configparser import ConfigParser
from pathlib import Path

from setuptools import Extension, setup

HERE = Path(__file__).resolve().parent
#: A link or a picture of Markdown: text and target.
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def page(readme: str, source: str) -> str:
    """Return the README with links that lead somewhere from any place.

    They lead to `source`, the address of the files. Without one, a link to a file becomes its name, and a picture is
    left out.
    """

    def absolute(link: re.Match[str]) -> str:
        mark, text, target = link.groups()
        if "://" in target or target.startswith("#"):
            return link[0]
        if source:
            return f"{mark}[{text}]({source.rstrip('/')}/{target})"
        if mark:
            return ""
        return text if text == target else f"{text} (`{target}`)"

    return LINK.sub(absolute, readme)


def source_address() -> str:
    """Return where setup.cfg says that the files can be read, or an empty text."""
    config = ConfigParser(interpolation=None)
    config.read(HERE / "setup.cfg", encoding="utf-8")
    addresses = config.get("metadata", "project_urls", fallback="").splitlines()
    named = dict(line.split("=", 1) for line in addresses if "=" in line)
    return next((address.strip() for name, address in named.items() if name.strip() == "Files"), "")


if __name__ == "__main__":
    setup(
        long_description=page((HERE / "README.md").read_text(encoding="utf-8"), source_address()),
        # Optional: without a C compiler the package installs as well, and `guards.watch.python_watch` takes its place.
        ext_modules=[
            Extension(
                "gearcache.guards.watch._watched",
                ["src/gearcache/guards/watch/_watched.c"],
                extra_compile_args=["-O3"],
                optional=True,
            )
        ],
    )
