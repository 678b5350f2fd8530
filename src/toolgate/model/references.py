"""How a record refers to what it never holds: variables and secrets of the node, resolved at connect time."""

import re
from typing import Final

REFERENCE: Final = re.compile(r"\$\{ENV:([A-Za-z_][A-Za-z0-9_]*)(?::-((?:[^}$]|\$(?!\{))*+))?\}")
"""`${ENV:NAME}` or `${ENV:NAME:-default}`: the variable's name, and what stands in for it.

No reference begins within a default: a text full of those that nobody closes is gone through once.
"""
SECRET_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""What `auth_ref` may be: also the name of a file in the node's secrets directory, so no path."""
