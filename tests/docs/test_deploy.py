"""The dashboard and the alert rules: what they name is counted, and where they lead to is there."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest
import yaml

from tests.docs.documents import ROOT, Document, document

DEPLOY = ROOT / "deploy"
RULES = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text("utf-8"))
DASHBOARD = json.loads((DEPLOY / "grafana/toolgate.json").read_text("utf-8"))
OF_PROMETHEUS = {"instance", "job"}
"""Labels that it adds to every metric."""
_METRIC = re.compile(r"\b((?:mcp|toolgate)_\w+)(?:\{([^}]*)\})?")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPED = re.compile(r"\bby \(([^)]*)\)")
_SHOWN = re.compile(r"\{\{ ?(?:\$labels\.)?(\w+) ?\}\}")


class Named(NamedTuple):
    """One expression, and the labels that the text next to it shows."""

    where: str
    expression: str
    shown: set[str]


def expressions() -> Iterator[Named]:
    """All of them."""
    for group in RULES["groups"]:
        for rule in group["rules"]:
            texts = " ".join(rule["annotations"].values())
            yield Named(rule["alert"], rule["expr"], set(_SHOWN.findall(texts)))
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield Named(panel["title"], target["expr"], set(_SHOWN.findall(target["legendFormat"])))
    for variable in DASHBOARD["templating"]["list"][1:]:
        yield Named(variable["name"], variable["query"]["query"], set())


def counted() -> Mapping[str, set[str]]:
    """Every series by its name, with its labels."""
    found: dict[str, set[str]] = {}
    for line in document("docs/reference/metrics.md").text.splitlines():
        match line.split("|"):
            case [_, name, kind, labels, *_] if "`" in name:
                plain, known = name.strip(" `"), set(re.findall(r"`(\w+)`", labels))
                suffixes = (
                    {"_bucket": {"le"}, "_sum": set(), "_count": set()}
                    if "histogram" in kind
                    else {"": set()}
                )
                found |= {plain + suffix: known | more for suffix, more in suffixes.items()}
    return found


@pytest.mark.parametrize("named", [*expressions()], ids=lambda named: named.where)
def test_what_is_asked_for_is_counted_by_these_labels(named: Named) -> None:
    known = counted()
    metrics = [(name, set(_LABEL.findall(labels))) for name, labels in _METRIC.findall(named.expression)]
    grouped = {label.strip() for found in _GROUPED.findall(named.expression) for label in found.split(",")}
    labels = set.union(set(), *(known.get(name, set()) for name, _ in metrics)) | OF_PROMETHEUS

    assert [name for name, _ in metrics if name not in known] == []
    assert [used - known[name] - OF_PROMETHEUS for name, used in metrics] == [set()] * len(metrics)
    assert (grouped | named.shown) - labels == set()
    assert metrics or "up{" in named.expression


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {name for named in expressions() for name, _ in _METRIC.findall(named.expression)}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}

    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in counted()} - families == set()


def test_every_alert_says_what_to_do_and_leads_to_a_document() -> None:
    rules: list[Any] = [rule for group in RULES["groups"] for rule in group["rules"]]
    broken = []
    for rule in rules:
        name, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        target = Document(ROOT / name)
        if not target.path.is_file() or (anchor and anchor not in target.anchors):
            broken.append(rule["alert"])

    assert broken == []
    assert [
        rule["alert"] for rule in rules if not {"summary", "description"} <= rule["annotations"].keys()
    ] == []
    assert len({rule["alert"] for rule in rules}) == len(rules)


def test_panels_do_not_overlap_and_have_numbers_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]

    assert len(cells) == len(set(cells))
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_the_example_of_a_scrape_has_a_key_in_a_file_and_the_rules() -> None:
    example = yaml.safe_load((DEPLOY / "prometheus/scrape.yml").read_text("utf-8"))
    [job] = example["scrape_configs"]

    assert job["authorization"].keys() == {"type", "credentials_file"}
    assert (job["job_name"], example["rule_files"]) == ("toolgate", ["alerts.yml"])
