"""Reads a page in the Prometheus text format with prometheus-client, and writes its metrics as JSON."""

import json
import sys

from prometheus_client.parser import text_string_to_metric_families

OF_TYPE = {"le", "quantile"}

families = {}
for family in text_string_to_metric_families(sys.stdin.read()):
    if family.name in families:
        sys.exit(f"{family.name} is there twice")
    labels = {tuple(sorted(set(sample.labels) - OF_TYPE)) for sample in family.samples}
    if len(labels) > 1:
        sys.exit(f"the samples of {family.name} have different labels: {labels}")
    families[family.name] = {"type": family.type, "help": family.documentation, "labels": next(iter(labels), ())}
json.dump(families, sys.stdout)
