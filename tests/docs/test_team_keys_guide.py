"""The guide to keys of a team: its commands are typed in order, and a key is what the guide says of it."""

import re
from pathlib import Path
from typing import get_args

import httpx2

from tests.docs.documents import document
from tests.docs.typed_guide import open_hosts
from tests.scenarios.gateway import Site, running
from toolgate.model.principals import Role

GUIDE = document("docs/how-to/team-keys.md")
KEY = "tg_admin_0123456789abcdefghijklmnopqrstuv"
TASKS = [
    {"task_id": name, "config": {"mcp.enabled": "true", "mcp.default_server_ids": '["local"]'}}
    for name in ("review", "triage", "secret")
]
PATHS = ("/api/v1/mcp/tools?task=triage", "/api/v1/mcp/tools?task=secret", "/metrics")


def test_the_guide_goes_as_it_says(tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    site.root.mkdir()
    key_file = site.root / "admin.key"
    key_file.write_text(KEY, "utf-8")
    site.place(site.stage("local"))
    environ = {"TOOLGATE_TRUST_LOOPBACK": "false", "TOOLGATE_ADMIN_KEY_FILE": str(key_file)}
    with running(site, environ=environ) as gateway:
        gateway.http.headers["authorization"] = f"Bearer {KEY}"
        for task in TASKS:
            gateway.put(f"/admin/api/tasks/{task['task_id']}", task)
        variables = {"TOOLGATE_URL": gateway.url}
        with open_hosts(tmp_path / "hosts", {"workstation": {"\0": ""}}, variables) as hosts:
            home = hosts.hosts["workstation"].path("/home")
            (home / "admin.key").write_text(KEY, "utf-8")
            printed = "".join(hosts.run("workstation", block) for block in GUIDE.blocks("sh"))
            secrets = {path.stem: path.read_text("utf-8").strip() for path in home.glob("*.key")}
        keys = {key["key_id"]: key for key in gateway.get("/admin/api/keys")["keys"]}
        statuses = {
            name: [_status(gateway.url + path, secrets[name]) for path in PATHS]
            for name in ("ada", "ci", "dashboards", "grace")
        }

    assert f"{gateway.url}/api/mcp/t/review" in printed
    assert sorted(keys) == ["ada", "ci-2", "dashboards", "grace"]
    assert (keys["ada"]["ceiling"]["tasks"], keys["ada"]["default_task"]) == (["review", "triage"], "review")
    assert statuses == {
        "ada": [200, 404, 403],
        "ci": [401, 401, 401],
        "dashboards": [200, 200, 200],
        "grace": [200, 200, 200],
    }


def _status(url: str, secret: str) -> int:
    headers = {"authorization": f"Bearer {secret}"}
    return httpx2.get(url, headers=headers, timeout=60, trust_env=False).status_code


def test_every_role_is_explained() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ", GUIDE.text.partition("## Roles")[2], re.MULTILINE)

    assert sorted(rows) == sorted(get_args(Role))
