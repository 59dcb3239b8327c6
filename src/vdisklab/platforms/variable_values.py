"""Files with values of a template's variables, named beside the template: `vdisklab audit vm/*`.

Terraform's and Packer's readers take them from the template's own directory.
"""

from __future__ import annotations

import re

from vdisklab.platforms.reading import DisklessGuest, GuestText

_VALUES_FILE = re.compile(r".+\.(tfvars(\.json)?|pkrvars\.(hcl|json))")
"""Of Terraform and Packer ("Input Variables" in their manuals)."""


def is_values_file(text: GuestText) -> bool:
    """True for a file of values by its name."""
    return _VALUES_FILE.fullmatch(text.file_name) is not None


def said(text: GuestText) -> DisklessGuest:
    """What a file of values is, and what to name."""
    return DisklessGuest(
        text.file_name,
        "values of variables, which are read with the file beside them that uses them",
        f"name that file (main.tf, build.pkr.hcl), not {text.file_name} alone",
    )
