"""The part of the package that is compiled; everything else stands in setup.cfg."""

from setuptools import Extension, setup

# Optional: without a C compiler the package installs as well, and `guards.watch.python_watch` takes its place.
setup(
    ext_modules=[
        Extension(
            "gearcache.guards.watch._watched",
            ["src/gearcache/guards/watch/_watched.c"],
            extra_compile_args=["-O3"],
            optional=True,
        )
    ]
)
