"""Writes the parameters of torch's private functions into src/gearcache/torch_parameters.txt.

    PYTHONPATH=src python scripts/torch_parameters.py

Run it with a release of torch with which the tests have passed; lines of other releases stay.
"""

from __future__ import annotations

import torch

from gearcache.torch_names import functions
from gearcache.torch_parameters import PARAMETERS, known


def main() -> None:
    """Replace the lines of the installed release."""
    release = ".".join(torch.__version__.split(".")[:2])
    forms: dict[str, dict[str, list[str]]] = {
        name: {form: [each for each in releases if each != release] for form, releases in seen.items()}
        for name, seen in known().items()
    }
    for name, form in functions().items():
        forms.setdefault(name, {}).setdefault(form, []).append(release)
    lines = [
        f"{name}({form}): {' '.join(sorted(releases))}"
        for name, seen in sorted(forms.items())
        for form, releases in sorted(seen.items(), key=lambda item: sorted(item[1]))
        if releases
    ]
    PARAMETERS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
