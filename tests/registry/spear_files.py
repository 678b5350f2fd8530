"""Registry files as SPEAR ships them in `config/sms/mcp.d`: written for these tests, with the same fields."""

from pathlib import Path
from typing import Final

SEARCH: Final = """\
server_id = "web-search"
display_name = "Web Search"
transport = "stdio"
tool_namespace = ""
allowed_tools = ["web_search"]

[stdio]
command = "npx"
args = ["-y", "web-search-server"]
cwd = ""

[budgets]
tool_timeout_ms = 15000
max_concurrency = 1
"""
FILES: Final = """\
server_id = "fs"
display_name = "Filesystem"
transport = "stdio"
tool_namespace = ""
allowed_tools = ["read_*", "list_*", "stat_*", "search_*"]

[stdio]
command = "npx"
args = ["-y", "@modelcontextprotocol/server-filesystem", "./"]
cwd = ""

[budgets]
tool_timeout_ms = 30000
"""
GITLAB: Final = """\
server_id = "gitlab"
display_name = "GitLab"
transport = "stdio"
tool_namespace = ""
allowed_tools = ["*"]

[stdio]
command = "npx"
args = ["-y", "@modelcontextprotocol/server-gitlab"]
env = { GITLAB_TOKEN = "${ENV:GITLAB_TOKEN}", GITLAB_URL = "${ENV:GITLAB_URL:-https://gitlab.com/api/v4}" }
cwd = ""

[budgets]
tool_timeout_ms = 15000
max_concurrency = 2
"""
KUBERNETES: Final = """\
server_id = "kubernetes"
display_name = "Kubernetes"
transport = "stdio"
tool_namespace = ""
allowed_tools = [
  "ping",
  "kubectl_get",
  "explain_resource",
]

[stdio]
command = "npx"
args = ["-y", "mcp-server-kubernetes"]
cwd = ""

[budgets]
tool_timeout_ms = 15000
"""
SPEAR_FILES: Final = {
    "fs.toml": FILES,
    "gitlab.toml": GITLAB,
    "kubernetes.toml": KUBERNETES,
    "web-search.toml": SEARCH,
}


def place(directory: Path) -> None:
    """Write all four."""
    for name, text in SPEAR_FILES.items():
        (directory / name).write_text(text, "utf-8")
